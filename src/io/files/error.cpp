#include <io/files/error.h>

#include <cstring>

namespace tessera::io {

void throw_system_error(
    const std::string& path, const std::string& action, int error_number) {
  const char* name = ::strerrorname_np(error_number);
  const char* text = ::strerrordesc_np(error_number);
  std::string problem = action + ": " + (text == nullptr ? "error" : text) +
                        " (" + (name == nullptr ? "errno " : name) +
                        (name == nullptr ? std::to_string(error_number) : "") +
                        ")";
  throw Error(ErrorKind::kSystem, path, problem, error_number);
}

}  // namespace tessera::io
