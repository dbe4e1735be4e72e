#include <unistd.h>

#include <cstdio>
#include <cstdlib>
#include <sstream>

#include "run.h"

namespace tessera::cli {
namespace {

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

}  // namespace

Mpirun find_mpirun() {
  Mpirun mpirun{.path = find_program("mpirun"), .version = ""};
  if (!mpirun.path.empty()) {
    mpirun.version =
        first_line_of("'" + mpirun.path + "' --version 2>/dev/null");
  }
  return mpirun;
}

}  // namespace tessera::cli
