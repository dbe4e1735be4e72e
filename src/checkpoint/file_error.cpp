#include <tessera/checkpoint/file_error.h>

namespace tessera::checkpoint {

FileError::FileError(
    c10::SourceLocation where, std::string text, int error_number)
    : Error(where, std::move(text)), error_number_(error_number) {}

}  // namespace tessera::checkpoint
