// tessera doctor: is everything here that Tessera needs, and what is missing.
#include <c10/util/Exception.h>
#include <unistd.h>
#include <CLI/CLI.hpp>
#include <nlohmann/json.hpp>

#include <cstdio>
#include <memory>
#include <stdexcept>
#include <string>
#include <thread>
#include <vector>

#include "child.h"
#include "command.h"
#include "run.h"
#include "terminal.h"
#include "torch_part.h"

namespace tessera::cli {
namespace {

using Status = Check::Status;

const char* word(Status status) {
  switch (status) {
    case Status::kOk:
      return "ok";
    case Status::kWarn:
      return "warn";
    case Status::kFail:
      return "fail";
  }
  return "";
}

Check check_build() {
#if defined(__clang__)
  const std::string compiler = "clang " __clang_version__;
#else
  const std::string compiler = "g++ " __VERSION__;
#endif
  return {
      "build", Status::kOk,
      "tessera " TESSERA_VERSION ", " + compiler +
          ", LibTorch " TESSERA_BUILD_TORCH ", " TESSERA_BUILD_TYPE,
      ""};
}

Check check_cores() {
  const auto cores = static_cast<int64_t>(std::thread::hardware_concurrency());
  return {"cpu", Status::kOk, counted(cores, "core"), ""};
}

struct Outcome {
  bool worked = false;
  std::string first_line;
};

/// Runs a shell command.
Outcome outcome_of(const std::string& command) {
  FILE* pipe = popen(command.c_str(), "r");
  if (pipe == nullptr) {
    return {};
  }
  std::string text;
  for (int c = 0; (c = std::fgetc(pipe)) != EOF;) {
    text += static_cast<char>(c);
  }
  Outcome outcome{.worked = pclose(pipe) == 0, .first_line = ""};
  outcome.first_line = text.substr(0, text.find('\n'));
  return outcome;
}

/// Starts two ranks as a user would.
Check check_processes(const std::string& engine, const std::string& with) {
  const std::string name = "engine " + engine;
  const std::string self = "'" + own_path() + "'";
  const Outcome outcome = outcome_of(
      self + " run -n 2 --engine " + engine + " --no-prefix -- " + self +
      " doctor --add-ranks 2>&1 </dev/null");
  if (outcome.worked) {
    return {name, Status::kOk, "2 processes added 1 and 2" + with, ""};
  }
  return {
      name, Status::kWarn,
      "2 processes failed" + with + ": " + outcome.first_line,
      "only for runs of several processes; see docs/04_launching.md"};
}

Check check_mpi() {
  const Mpirun mpirun = find_mpirun();
  if (mpirun.path.empty()) {
    return {
        "engine mpi", Status::kWarn, "mpirun is not in PATH",
        "only for runs under mpirun: install openmpi-bin and libopenmpi-dev, "
        "then build again"};
  }
  return check_processes(
      "mpi", " (" + mpirun.path + ": " + mpirun.version + ")");
}

/// What each of those ranks does.
int add_ranks() {
  try {
    load_torch_part().add_ranks();
    return 0;
  } catch (const c10::Error& error) {
    throw std::runtime_error(error.what_without_backtrace());
  }
}

std::vector<Check> all_checks() {
  std::vector<Check> checks = {check_build(), check_cores()};
  try {
    for (Check& check : load_torch_part().inspect()) {
      checks.push_back(std::move(check));
    }
  } catch (const std::exception& error) {
    checks.push_back(
        {"libtorch", Status::kFail, error.what(),
         "run 'make setup' and build again, or put LibTorch's lib folder into "
         "LD_LIBRARY_PATH"});
  }
  checks.push_back(check_processes("gloo", ""));
  checks.push_back(check_mpi());
  return checks;
}

std::string colored_word(Status status, bool color) {
  const std::string text = pad_right(word(status), 4);
  if (!color) {
    return text;
  }
  const char* code = status == Status::kOk     ? "32"
                     : status == Status::kWarn ? "33"
                                               : "31";
  return "\x1b[" + std::string(code) + "m" + text + "\x1b[0m";
}

void print_checks(const std::vector<Check>& checks) {
  const Terminal terminal = detect_terminal(STDOUT_FILENO, false);
  std::string text;
  constexpr int kIndent = 23;  // the width of "warn  sharded tensors  "
  Terminal beside = terminal;  // what is left of it
  beside.width -= kIndent;
  const auto column = [&](const std::string& cell) {
    std::string lines = wrapped(cell, beside);
    for (size_t end = lines.find('\n'); end != std::string::npos;
         end = lines.find('\n', end + 1)) {
      lines.insert(end + 1, repeat(" ", kIndent));
    }
    return lines + "\n";
  };
  for (const Check& check : checks) {
    text += colored_word(check.status, terminal.color) + "  " +
            pad_right(check.name, 17) + column(check.found);
    if (!check.advice.empty()) {
      text += repeat(" ", kIndent) + column("-> " + check.advice);
    }
  }
  print(text);
}

void print_checks_json(const std::vector<Check>& checks, bool usable) {
  auto list = nlohmann::ordered_json::array();
  for (const Check& check : checks) {
    list.push_back(
        {{"name", check.name},
         {"status", word(check.status)},
         {"found", check.found},
         {"advice", check.advice}});
  }
  const nlohmann::ordered_json json = {{"usable", usable}, {"checks", list}};
  print(json.dump() + "\n");  // one line, as logs want it
}

int examine(bool json) {
  const auto checks = all_checks();
  bool usable = true;
  for (const Check& check : checks) {
    usable = usable && check.status != Status::kFail;
  }
  if (json) {
    print_checks_json(checks, usable);
  } else {
    print_checks(checks);
  }
  return usable ? 0 : kExitFailure;
}

}  // namespace

void add_doctor(CLI::App& app, int& exit_code) {
  CLI::App* doctor = app.add_subcommand(
      "doctor", "Check LibTorch, engines and devices on this machine");
  auto json = std::make_shared<bool>(false);
  doctor->add_flag("--json", *json, "print JSON");
  auto adds = std::make_shared<bool>(false);
  doctor->add_flag("--add-ranks", *adds)->group("");
  doctor->footer("Exit code 0 unless something is unusable (fail).");
  doctor->callback([json, adds, &exit_code] {
    exit_code = *adds ? add_ranks() : examine(*json);
  });
}

}  // namespace tessera::cli
