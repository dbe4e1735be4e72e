// Every row of every rule against one device. Set TESSERA_ORACLE_OP=aten::mm to
// check one operator, and TESSERA_ORACLE_CASES to change how many cases each
// operator gets.
#include <gtest/gtest.h>

#include <atomic>
#include <chrono>
#include <cstdlib>
#include <fstream>
#include <iostream>
#include <thread>

#include <ATen/Parallel.h>
#include <rules/oracle.h>

namespace tessera::oracle {
namespace {

bool is_variant(const c10::FunctionSchema& schema) {
  for (const auto& argument : schema.arguments()) {
    if (argument.is_out()) {
      return true;
    }
  }
  return false;
}

int64_t budget_of(const Ruled& ruled) {
  const char* asked = std::getenv("TESSERA_ORACLE_CASES");
  const int64_t cases = asked != nullptr ? std::atoll(asked) : 300;
  return is_variant(ruled.op.schema()) ? cases / 6 : cases;
}

std::vector<Ruled> asked_operators() {
  std::vector<Ruled> all = ruled_operators(rules());
  if (const char* name = std::getenv("TESSERA_ORACLE_OP")) {
    std::erase_if(all, [&](const Ruled& ruled) {
      return c10::toString(ruled.op.operator_name()) != name;
    });
  }
  return all;
}

// Two threads share the operators.
std::vector<Report> check_all(const std::vector<Ruled>& operators) {
  std::vector<Report> reports(operators.size());
  std::atomic<size_t> next{0};
  const bool loud = std::getenv("TESSERA_ORACLE_LOUD") != nullptr;
  const auto work = [&] {
    at::set_num_threads(1);
    for (size_t i = next++; i < operators.size(); i = next++) {
      if (loud) {
        std::cerr << c10::toString(operators[i].op.operator_name()) << "\n";
      }
      reports[i] = check_operator(
          operators[i].op, operators[i].found, budget_of(operators[i]));
    }
  };
  std::thread other(work);
  work();
  other.join();
  return reports;
}

TEST(Oracle, EveryRowGivesWhatOneDeviceGives) {
  const auto begin = std::chrono::steady_clock::now();
  const std::vector<Ruled> operators = asked_operators();
  const std::vector<Report> reports = check_all(operators);
  std::ofstream file("oracle_cases.txt");
  int64_t cases = 0, dropped = 0, wrong = 0, refused = 0, served = 0;
  for (const Report& report : reports) {
    file << report.name << " cases " << report.cases << " samples "
         << report.samples << " dropped " << report.dropped << " refused "
         << report.refused << " wrong " << report.wrong << "\n";
    cases += report.cases;
    dropped += report.dropped;
    refused += report.refused;
    wrong += report.wrong;
    served += report.cases > 0;
    EXPECT_TRUE(report.cases > 0 || !report.excuse.empty())
        << report.name << " has a rule and no case: " << report.refusal;
    for (const std::string& problem : report.problems) {
      ADD_FAILURE() << problem << "\n  rerun: TESSERA_ORACLE_OP="
                    << report.name << " oracle_test";
    }
  }
  const std::chrono::duration<double> seconds =
      std::chrono::steady_clock::now() - begin;
  std::cout << "oracle: " << cases << " cases, " << served << " operators, "
            << dropped << " rows dropped, " << refused << " samples refused, "
            << wrong << " wrong, " << seconds.count() << " s\n";
}

}  // namespace
}  // namespace tessera::oracle
