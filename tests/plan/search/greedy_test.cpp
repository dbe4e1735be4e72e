#include <fstream>
#include <iostream>
#include <limits>

#include <gtest/gtest.h>
#include <tessera/layout/notation.h>
#include <tessera/plan/redistribute_plan.h>

#include "plan/cases.h"
#include "plan/search/greedy.h"

namespace tessera {
namespace {

struct Transition {
  std::string text;
  Layout source;
  Layout target;
};

// "[16, 8] S(0) R -> R S(1) @ mesh(2, 4)"
Transition parse(const std::string& line) {
  const size_t arrow = line.find(" -> ");
  const size_t mesh = line.find(" @ ");
  const size_t placements = line.find("] ") + 2;
  return {
      line, parse_layout(line.substr(0, arrow) + line.substr(mesh)).layout,
      parse_layout(line.substr(0, placements) + line.substr(arrow + 4)).layout};
}

std::vector<Transition> transitions() {
  std::ifstream file(TESSERA_GREEDY_TRANSITIONS);
  std::vector<Transition> result;
  for (std::string line; std::getline(file, line);) {
    if (line[0] != '#') {
      result.push_back(parse(line));
    }
  }
  return result;
}

TEST(GreedyTest, TwoHundredTransitionsAreListed) {
  const auto all = transitions();
  EXPECT_EQ(all.size(), 200U);
  int64_t strided = 0;
  int64_t ragged = 0;
  int64_t nested = 0;
  for (const auto& [text, source, target] : all) {
    EXPECT_FALSE(source == target) << text;
    strided += text.find("SS(") != std::string::npos ? 1 : 0;
    ragged += text.find("RS(") != std::string::npos ? 1 : 0;
    bool twice = false;
    for (size_t d = 0; d < source.shape().size(); ++d) {
      const auto dim = static_cast<int64_t>(d);
      twice =
          twice || source.cuts(dim).size() > 1 || target.cuts(dim).size() > 1;
    }
    nested += twice ? 1 : 0;
  }
  EXPECT_GE(strided, 30);
  EXPECT_GE(ragged, 30);
  EXPECT_GE(nested, 50);
  std::cout << strided << " strided, " << ragged << " ragged, " << nested
            << " nested\n";
}

TEST(GreedyTest, NoPlanCostsMoreThanAGreedyOne) {
  for (const auto& [name, model] : cases::models()) {
    int64_t cheaper = 0;
    for (const auto& [text, source, target] : transitions()) {
      const auto plan = plan_redistribution(source, target, 4, model);
      const auto other = greedy::Planner(source, target, model).run();
      // A greedy plan beyond the memory limit would be no measure.
      EXPECT_TRUE(other.fits_memory) << text;
      EXPECT_LE(plan.cost, other.cost * (1 + 1e-9)) << text << "\n" << plan;
      cheaper += plan.cost < other.cost * (1 - 1e-9) ? 1 : 0;
    }
    EXPECT_GT(cheaper, 50);
    std::cout << name << ": " << cheaper << " of 200 cheaper\n";
  }
}

TEST(GreedyTest, NoPlanSendsMoreBytesThanAGreedyOneWhenOnlyBytesCount) {
  MachineModel only_bytes;
  only_bytes.link.latency = 0;
  only_bytes.copy_bandwidth = std::numeric_limits<double>::infinity();
  int64_t fewer = 0;
  for (const auto& [text, source, target] : transitions()) {
    const auto plan = plan_redistribution(source, target, 4, only_bytes);
    const auto other = greedy::Planner(source, target, only_bytes).run();
    EXPECT_LE(plan.bytes, other.bytes) << text << "\n" << plan;
    fewer += plan.bytes < other.bytes ? 1 : 0;
  }
  std::cout << "bytes: " << fewer << " of 200 fewer\n";
}

}  // namespace
}  // namespace tessera
