// The names that files of checkpoints have, in all formats: what may be removed
// with a checkpoint, and by what a format is recognised.
#pragma once

#include <string_view>

namespace tessera::detail::inline io_layer {

inline constexpr std::string_view kManifestName = "manifest.jsonl";
inline constexpr std::string_view kDcpMetadataName = ".metadata";
inline constexpr std::string_view kDcpSuffix = ".distcp";
inline constexpr std::string_view kSafetensorsSuffix = ".safetensors";
inline constexpr std::string_view kIndexSuffix = ".safetensors.index.json";

/// Tells whether a name is "rank_00003.0.bin", a data file of our own format.
bool is_tessera_data_name(std::string_view name);
/// Tells whether a name is "__3_0.distcp", a data file of DCP.
bool is_dcp_data_name(std::string_view name);
/// Tells whether a name is "rank_00003.part", which lies in the folder of a
/// save by ranks that do not talk (parts.h) until that is complete.
bool is_part_name(std::string_view name);
/// Tells whether a checkpoint of any format has files of this name.
bool is_checkpoint_file(std::string_view name);

}  // namespace tessera::detail::inline io_layer
