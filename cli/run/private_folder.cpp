#include "private_folder.h"

#include <cerrno>
#include <cstdlib>
#include <cstring>
#include <filesystem>
#include <stdexcept>
#include <system_error>

namespace tessera::cli {

PrivateFolder::PrivateFolder() {
  const char* where = std::getenv("TMPDIR");
  const bool named = where != nullptr && *where != '\0';
  path_ = std::string(named ? where : "/tmp") + "/tessera.XXXXXX";
  if (mkdtemp(path_.data()) == nullptr) {
    throw std::runtime_error(
        "cannot make the folder " + path_ + ": " + std::strerror(errno) +
        (named ? "; TMPDIR names where" : ""));
  }
}

PrivateFolder::~PrivateFolder() {
  std::error_code ignored;
  std::filesystem::remove_all(path_, ignored);
}

}  // namespace tessera::cli
