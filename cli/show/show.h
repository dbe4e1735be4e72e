// The parts of `tessera show` beside the picture: a summary, JSON.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include <tessera/layout/notation.h>

#include "cli/text/terminal.h"

namespace tessera::cli {

/// What holds over all ranks of a layout.
struct ShardSummary {
  std::vector<int64_t> smallest;  // local shape
  std::vector<int64_t> largest;
  int64_t empty_ranks = 0;
};

/// Returns the product of a shape; 1 for 0-d.
int64_t element_count(const std::vector<int64_t>& shape);

/// Looks at every shard of each tensor dim alone, so a 256x256 mesh costs
/// 256 + 256; nothing when one dim is cut more than 2^20 times.
std::optional<ShardSummary> summarize(const Layout& layout);
/// Prints the summary as one line.
std::string summary_line(const Layout& layout);

/// Prints everything as JSON; with a rank, that rank alone and no summary; the
/// sharding texts of XLA where `xla` asks for them.
std::string show_json(
    const TypedLayout& typed, std::optional<int64_t> rank, bool xla);

/// Prints the sharding texts of XLA; a layout without them is an error.
std::string xla_texts(const Layout& layout);

/// Returns where a rank sits; a rank outside the mesh is a UsageError.
std::vector<int64_t> coordinate_of_rank(const Layout& layout, int64_t rank);

}  // namespace tessera::cli
