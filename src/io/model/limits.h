// What a checkpoint may ask of its reader. A file that asks for more is refused
// before memory is taken for it; and nobody writes one, since it would replace
// a checkpoint that can be read.
#pragma once

#include <cstddef>
#include <cstdint>

namespace tessera::detail::inline io_layer {

inline constexpr uint64_t kMostManifestBytes = uint64_t{256} << 20;
inline constexpr uint64_t kMostDcpMetadataBytes = uint64_t{1} << 30;
inline constexpr uint64_t kMostSafetensorsIndexBytes = uint64_t{256} << 20;
inline constexpr size_t kMostEntries = 1'000'000;
inline constexpr size_t kMostChunks = 4'000'000;
inline constexpr size_t kMostFiles = 100'000;
inline constexpr size_t kMostDims = 64;
inline constexpr size_t kMostNameBytes = 4096;
inline constexpr size_t kMostPathParts = 64;
/// Lists inside of lists of a plain value.
inline constexpr size_t kMostValueDepth = 64;

}  // namespace tessera::detail::inline io_layer
