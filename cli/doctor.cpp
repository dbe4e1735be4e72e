// tessera doctor: is everything here that Tessera needs, and what is missing.
#include <unistd.h>
#include <CLI/CLI.hpp>
#include <nlohmann/json.hpp>

#include <cstdio>
#include <cstdlib>
#include <memory>
#include <sstream>
#include <string>
#include <thread>
#include <vector>

#include "command.h"
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

/// Returns the full path of a program in PATH, or nothing.
std::string find_program(const std::string& name) {
  const char* path = std::getenv("PATH");
  std::istringstream folders(path == nullptr ? "" : path);
  for (std::string folder; std::getline(folders, folder, ':');) {
    const std::string candidate = folder + "/" + name;
    if (!folder.empty() && access(candidate.c_str(), X_OK) == 0) {
      return candidate;
    }
  }
  return "";
}

std::string first_line_of(const std::string& command) {
  FILE* pipe = popen(command.c_str(), "r");
  if (pipe == nullptr) {
    return "";
  }
  char line[256] = {};
  const bool got = std::fgets(line, sizeof line, pipe) != nullptr;
  pclose(pipe);
  std::string text = got ? line : "";
  text.erase(text.find_last_not_of(" \n\r") + 1);
  return text;
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

Check check_mpi() {
  const std::string mpirun = find_program("mpirun");
  if (mpirun.empty()) {
    return {
        "mpi", Status::kWarn, "mpirun is not in PATH",
        "only for runs of several processes: install openmpi-bin and "
        "libopenmpi-dev"};
  }
  const std::string version =
      first_line_of("'" + mpirun + "' --version 2>/dev/null");
  return {"mpi", Status::kOk, mpirun + ": " + version, ""};
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
  for (const Check& check : checks) {
    text += colored_word(check.status, terminal.color) + "  " +
            pad_right(check.name, 17) + check.found + "\n";
    if (!check.advice.empty()) {
      text += repeat(" ", 23) + "-> " + check.advice + "\n";
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
  print(json.dump(2) + "\n");
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
  doctor->footer("Exit code 0 unless something is unusable (fail).");
  doctor->callback([json, &exit_code] { exit_code = examine(*json); });
}

}  // namespace tessera::cli
