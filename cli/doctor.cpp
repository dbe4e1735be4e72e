// tessera doctor: is everything here that Tessera needs, and what is missing.
#include <sys/wait.h>
#include <unistd.h>
#include <CLI/CLI.hpp>
#include <nlohmann/json.hpp>

#include <cerrno>
#include <cstdio>
#include <cstring>
#include <memory>
#include <sstream>
#include <string>
#include <thread>
#include <vector>

#include "cli/run/child.h"
#include "cli/run/run.h"
#include "cli/text/terminal.h"
#include "command.h"
#include "doctor.h"

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
  int status = -1;   // of waitpid()
  std::string text;  // what it printed, errors too

  bool worked() const { return status == 0; }
  std::string first_line() const { return text.substr(0, text.find('\n')); }
};

/// Runs a program by the shell.
Outcome outcome_of(const std::string& command) {
  FILE* pipe = popen(("exec " + command + " 2>&1 </dev/null").c_str(), "r");
  if (pipe == nullptr) {
    return {};
  }
  Outcome outcome;
  for (int c = 0; (c = std::fgetc(pipe)) != EOF;) {
    outcome.text += static_cast<char>(c);
  }
  outcome.status = pclose(pipe);
  return outcome;
}

std::string quoted_torch_executable() {
  return "'" + program_beside(kTorchExecutable) + "'";
}

Check torch_failure(const std::string& found) {
  return {
      "libtorch", Status::kFail, found,
      "run 'make setup' and build again, or put LibTorch's lib folder into "
      "LD_LIBRARY_PATH"};
}

/// Returns the findings in what the executable printed; other lines are what
/// LibTorch said, and go on to standard error.
std::vector<Check> parse_checks(const std::string& text) {
  std::vector<Check> checks;
  std::istringstream lines(text);
  for (std::string line; std::getline(lines, line);) {
    if (!line.starts_with("[[")) {
      std::fprintf(stderr, "%s\n", line.c_str());
      continue;
    }
    for (const auto& row : nlohmann::json::parse(line)) {
      checks.push_back(
          {.name = row.at(0).get<std::string>(),
           .status = static_cast<Status>(row.at(1).get<int>()),
           .found = row.at(2).get<std::string>(),
           .advice = row.at(3).get<std::string>()});
    }
  }
  return checks;
}

/// Asks LibTorch and the engines, in an executable that loads them.
std::vector<Check> check_torch() {
  const std::string path = program_beside(kTorchExecutable);
  if (access(path.c_str(), X_OK) != 0) {
    return {
        {"libtorch", Status::kFail,
         "not checked: cannot start " + path + ": " + std::strerror(errno),
         "'make build' makes it"}};
  }
  const Outcome outcome =
      outcome_of(quoted_torch_executable() + " " + kDoctorTorch);
  if (outcome.worked()) {
    return parse_checks(outcome.text);
  }
  const std::string line = outcome.first_line();
  return {torch_failure(
      line.empty()
          ? std::string(kTorchExecutable) + " " + ending_text(outcome.status)
          : line)};
}

/// Starts two ranks as a user would.
Check check_processes(const std::string& engine, const std::string& with) {
  const std::string name = "engine " + engine;
  const Outcome outcome = outcome_of(
      "'" + own_path() + "' run -n 2 --engine " + engine + " --no-prefix -- " +
      quoted_torch_executable() + " " + kDoctorAddRanks);
  if (outcome.worked()) {
    return {name, Status::kOk, "2 processes added 1 and 2" + with, ""};
  }
  return {
      name, Status::kWarn,
      "2 processes failed" + with + ": " + outcome.first_line(),
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

std::vector<Check> all_checks() {
  std::vector<Check> checks = {check_build(), check_cores()};
  for (Check& check : check_torch()) {
    checks.push_back(std::move(check));
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

void set_up_doctor(CLI::App& doctor, Invocation& invocation) {
  auto json = std::make_shared<bool>(false);
  doctor.add_flag("--json", *json, "print JSON");
  doctor.footer("Exit code 0 unless something is unusable (fail).");
  doctor.callback(
      [json, &invocation] { invocation.exit_code = examine(*json); });
}

const Command kDoctor{"doctor", &set_up_doctor};

}  // namespace
}  // namespace tessera::cli
