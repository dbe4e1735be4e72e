// What files say in __metadata__ beyond the format: PyTorch's places of shards,
// and what our own writer keeps for its reader.
//
//   DCP_SHARDING_INFO  {"w":{"saved_offsets":[2,0]}}   of all tensors of a file
//   TESSERA_STATE      {"shapes":{"w":[4,6]},          of tensors in parts
//                       "paths":{"a.w":["a","w"]},     of nested names
//                       "values":[{"name":"step","value":3}]}
//
// From DCP_SHARDING_INFO alone a tensor is as large as its parts reach, so that
// a file that is missing may go unnoticed; with the shapes it does not.
#pragma once

#include <map>
#include <string>
#include <string_view>
#include <vector>

#include <io/model/entry.h>

namespace tessera::detail::inline io_layer {

inline constexpr const char* kShardingInfoKey = "DCP_SHARDING_INFO";
inline constexpr const char* kStateKey = "TESSERA_STATE";

/// The offsets of the parts in a file, by tensor.
using ShardOffsets = std::map<std::string, std::vector<int64_t>, std::less<>>;

struct ExtraState {
  std::map<std::string, std::vector<int64_t>> shapes;
  std::map<std::string, io::Path> paths;
  std::vector<io::Entry> values;
};

std::string print_shard_offsets(const ShardOffsets& offsets);
ShardOffsets parse_shard_offsets(
    const std::string& path, std::string_view text);

std::string print_extra_state(const ExtraState& state);
ExtraState parse_extra_state(const std::string& path, std::string_view text);

}  // namespace tessera::detail::inline io_layer
