// The manifest of our own format: what a checkpoint holds, and where.
//
//   runs/step_000000000100/
//     manifest.jsonl        below
//     rank_00000.0.bin      payloads, each at a multiple of 64 bytes
//     rank_00001.0.bin
//
// manifest.jsonl is JSON Lines: a header, a line for each file, a line for each
// entry (entry_json.h), and the XXH3 of all bytes before the last line.
//
//   {"format":"tessera-checkpoint","version":1,"writer":"tessera 0.1.0",
//    "files":2,"entries":1}
//   {"file":"rank_00000.0.bin","bytes":48}
//   {"file":"rank_00001.0.bin","bytes":48}
//   {"name":"w","dtype":"float32","shape":[4,6],"chunks":[...]}
//   {"xxh3":"0123456789abcdef"}
//
// One content has one text: a manifest that is not written as this writes it is
// refused. So every changed, missing or added byte is found.
//
// Payloads have a checksum for each window of 1 MiB (of larger ones where a
// chunk has more than 1024 of them), so that a part of a tensor can be read and
// verified without the rest: the unit is small beside a shard, and 16 digits
// for each keep the manifest at a 60,000th of the data. Payloads are aligned to
// a cache line and no further: they are read, not mapped, and pages would make
// a checkpoint of many small tensors several times as large.
#pragma once

#include <cstdint>
#include <functional>
#include <string>
#include <string_view>

#include <io/commit/checkpoint_names.h>
#include <io/model/entry.h>

namespace tessera::detail::inline io_layer {

inline constexpr int64_t kManifestVersion = 1;
inline constexpr uint64_t kPayloadAlignment = 64;

struct Manifest {
  std::string writer;  // "tessera 0.1.0"
  io::Contents contents;
};

std::string print_manifest(const Manifest& manifest);
/// Gives the text in parts, so that it need not be in memory as a whole.
void print_manifest(
    const Manifest& manifest,
    const std::function<void(std::string_view)>& write);
/// Reads a manifest; throws io::Error (kCorrupt) for any text that
/// print_manifest() did not make, kUnsupported for a later version. `path` is
/// what errors name.
Manifest parse_manifest(const std::string& path, std::string_view text);

/// Returns the window of the checksums of so many bytes: 1 MiB, doubled until
/// 1024 windows are enough.
uint64_t window_of(uint64_t bytes);

}  // namespace tessera::detail::inline io_layer
