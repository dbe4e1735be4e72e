// The index of a model in several safetensors files, as Hugging Face has it.
//
//   {"metadata":{"total_size":72},
//    "weight_map":{"a":"model-00001-of-00002.safetensors", ...}}
#pragma once

#include <cstdint>
#include <map>
#include <string>
#include <string_view>
#include <vector>

namespace tessera::detail::inline io_layer {

inline constexpr const char* kIndexName = "model.safetensors.index.json";

struct SafetensorsIndex {
  uint64_t total_size = 0;                        // bytes of tensors
  std::map<std::string, std::string> weight_map;  // tensor -> file
  /// Files of our own writer that hold values and no tensor, so that no tensor
  /// names them: "TESSERA_FILES" of the metadata.
  std::vector<std::string> other_files;
};

std::string print_index(const SafetensorsIndex& index);
/// Takes unknown members, and a total size that is missing; refuses files that
/// are no plain names.
SafetensorsIndex parse_index(const std::string& path, std::string_view text);

}  // namespace tessera::detail::inline io_layer
