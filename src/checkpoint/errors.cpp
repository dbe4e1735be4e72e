#include <checkpoint/errors.h>

#include <c10/util/Exception.h>
#include <tessera/checkpoint/file_error.h>

namespace tessera::detail::inline checkpoint_layer {

void throw_torch_error(const std::string& call, const io::Error& error) {
  const std::string text = call + ": " + error.what();
  switch (error.kind()) {
    case io::ErrorKind::kSystem:
      throw checkpoint::FileError(
          {__func__, __FILE__, __LINE__}, text, error.error_number());
    case io::ErrorKind::kUsage:
      C10_THROW_ERROR(ValueError, text);
    case io::ErrorKind::kUnsupported:
      C10_THROW_ERROR(NotImplementedError, text);
    case io::ErrorKind::kCorrupt:
      break;
  }
  C10_THROW_ERROR(Error, text);
}

Agreement begin_checkpoint_agreement(
    const std::string& call, const Communicator& group) {
  return Agreement(call, group, {error_type<checkpoint::FileError>()});
}

}  // namespace tessera::detail::inline checkpoint_layer
