// What goes wrong with files: the system, the bytes, or what was asked for.
#pragma once

#include <stdexcept>
#include <string>

namespace tessera::io {

enum class ErrorKind {
  kSystem,       // a call of the system failed; error_number() says why
  kCorrupt,      // the bytes break a rule of their format: damaged or hostile
  kUnsupported,  // well-formed, but not something that this library reads
  kUsage,        // what the caller asked for makes no sense
};

/// Says which file, which rule was broken, by what, and what to do.
class Error : public std::runtime_error {
 public:
  Error(
      ErrorKind kind, std::string path, const std::string& problem,
      int error_number = 0)
      : std::runtime_error(path + ": " + problem),
        kind_(kind),
        path_(std::move(path)),
        error_number_(error_number) {}

  ErrorKind kind() const { return kind_; }
  const std::string& path() const { return path_; }
  /// The errno of a failed call; 0 where none failed.
  int error_number() const { return error_number_; }

 private:
  ErrorKind kind_;
  std::string path_;
  int error_number_;
};

/// Throws "PATH: ACTION: No space left on device (ENOSPC)".
[[noreturn]] void throw_system_error(
    const std::string& path, const std::string& action, int error_number);

[[noreturn]] inline void throw_corrupt(
    const std::string& path, const std::string& problem) {
  throw Error(ErrorKind::kCorrupt, path, problem);
}

[[noreturn]] inline void throw_unsupported(
    const std::string& path, const std::string& problem) {
  throw Error(ErrorKind::kUnsupported, path, problem);
}

[[noreturn]] inline void throw_usage(
    const std::string& path, const std::string& problem) {
  throw Error(ErrorKind::kUsage, path, problem);
}

}  // namespace tessera::io
