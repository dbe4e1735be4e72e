// The error of a system call on a file of a checkpoint.
#pragma once

#include <string>

#include <c10/util/Exception.h>
#include <tessera/export.h>

namespace tessera::checkpoint {

/// The system refused a file: it is not there, may not be read, the disk is
/// full. Every rank throws it, with the rank and the file that failed. Example:
///   catch (const checkpoint::FileError& error) {
///     if (error.error_number() == ENOSPC) { remove_old_runs(); }
///   }
class TESSERA_API FileError : public c10::Error {
 public:
  FileError(c10::SourceLocation where, std::string text, int error_number);

  /// The errno of the call; 0 where it gave none.
  int error_number() const { return error_number_; }

 private:
  int error_number_;
};

}  // namespace tessera::checkpoint
