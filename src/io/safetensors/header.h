// The header of a safetensors file.
//
//   u64 length N, little endian | N bytes of JSON, from '{', spaces at its end
//   | the bytes of all tensors
//
//   {"__metadata__":{"format":"pt"},
//    "w":{"dtype":"F32","shape":[2,3],"data_offsets":[0,24]}}
//
// A reader checks what the reference implementation checks: at most
// 100,000,000 bytes of header; tensors sorted by their bytes follow each other
// without gaps, from the first to the last byte of the file; sizes agree with
// shapes; no name stands twice.
#pragma once

#include <cstdint>
#include <map>
#include <string>
#include <string_view>
#include <vector>

#include <io/files/file.h>
#include <io/model/dtype.h>

namespace tessera::detail::inline io_layer {

inline constexpr uint64_t kMostHeaderBytes = 100'000'000;
inline constexpr std::string_view kMetadataKey = "__metadata__";
inline constexpr uint64_t kHeaderLengthBytes = 8;

/// One tensor of a file. F4 counts two numbers of four bits each as one
/// element, as torch does: the file's shape [2, 8] is [2, 4] here.
struct SafetensorsTensor {
  std::string name;
  io::Dtype dtype = io::Dtype::kFloat32;
  std::vector<int64_t> shape;
  uint64_t begin = 0;  // bytes from data_offset
  uint64_t end = 0;
};

struct SafetensorsHeader {
  uint64_t data_offset = 0;
  std::vector<SafetensorsTensor> tensors;       // by their bytes
  std::map<std::string, std::string> metadata;  // __metadata__
};

/// Reads the JSON of a header; `data_bytes` are those behind it.
SafetensorsHeader parse_safetensors_header(
    const std::string& path, std::string_view json, uint64_t data_bytes);
/// Reads the header of a file.
SafetensorsHeader read_safetensors_header(const File& file);

/// Sorts the tensors by the size of their elements, the largest first, then by
/// name, gives each its bytes, and returns the header: its length, and JSON
/// padded to a multiple of 8. So every tensor lies at a multiple of its
/// element. Throws for a dtype that the format has no name for.
std::string print_safetensors_header(
    const std::string& path, SafetensorsHeader& header);

/// Returns how many of the format's elements make one of torch's along the last
/// dim: 2 for F4.
inline int64_t packed_elements(io::Dtype dtype) {
  return dtype == io::Dtype::kFloat4E2M1FNX2 ? 2 : 1;
}

}  // namespace tessera::detail::inline io_layer
