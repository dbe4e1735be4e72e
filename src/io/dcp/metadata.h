// DCP's `.metadata`: a pickle of a Metadata object, read into the common model
// and written from it.
//
//   state_dict_metadata  name -> TensorStorageMetadata (dtype, size, chunks)
//                                or BytesStorageMetadata
//   planner_data         name -> the parts of its path
//   storage_data         MetadataIndex (name, offset) -> _StorageInfo (file,
//                                offset, length)
#pragma once

#include <string>
#include <string_view>

#include <io/model/entry.h>

namespace tessera::detail::inline io_layer {

/// Reads the pickle. The sizes of files are not in it: they are 0.
/// `path` is what errors name.
io::Contents parse_dcp_metadata(
    const std::string& path, std::string_view pickle);

std::string print_dcp_metadata(const io::Contents& contents);

}  // namespace tessera::detail::inline io_layer
