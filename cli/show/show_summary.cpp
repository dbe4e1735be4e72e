#include <algorithm>
#include <functional>
#include <numeric>

#include <tessera/layout/replica_groups.h>
#include <tessera/layout/xla.h>

#include "cli/command.h"
#include "show.h"

namespace tessera::cli {
namespace {

constexpr int64_t kMostCuts = int64_t{1} << 20;
constexpr int64_t kMostNamed = 4096;  // empty ranks are named up to this mesh

struct DimSummary {
  int64_t smallest;
  int64_t largest;
  int64_t shards = 0;
  int64_t empty = 0;
};

/// Walks the coordinates of the mesh dims that cut one tensor dim.
std::optional<DimSummary> summarize_dim(const Layout& layout, int64_t dim) {
  const auto& cuts = layout.cuts(dim);
  int64_t shards = 1;
  for (const int64_t cut : cuts) {
    shards *= layout.mesh().size(cut);
    if (shards > kMostCuts) {
      return std::nullopt;
    }
  }
  const int64_t length = layout.shape()[static_cast<size_t>(dim)];
  DimSummary summary{length, 0, shards, 0};
  std::vector<int64_t> at(static_cast<size_t>(layout.mesh().ndim()), 0);
  for (int64_t i = 0; i < shards; ++i) {
    int64_t rest = i;
    for (const int64_t cut : cuts) {
      at[static_cast<size_t>(cut)] = rest % layout.mesh().size(cut);
      rest /= layout.mesh().size(cut);
    }
    const int64_t held = total_length(layout.runs(dim, at));
    summary.smallest = std::min(summary.smallest, held);
    summary.largest = std::max(summary.largest, held);
    summary.empty += held == 0 ? 1 : 0;
  }
  return summary;
}

std::string empty_ranks_text(const Layout& layout, int64_t count) {
  if (count == 0) {
    return "no empty ranks";
  }
  std::string text = counted(count, "empty rank");
  if (layout.mesh().size() > kMostNamed) {
    return text;
  }
  std::vector<int64_t> empty;
  for (const int64_t rank : layout.mesh().ranks()) {
    const auto at = layout.mesh().coordinate_of(rank);
    if (element_count(layout.local_shape(*at)) == 0) {
      empty.push_back(rank);
    }
  }
  std::sort(empty.begin(), empty.end());
  return text + ": " + ranks_to_string(empty);
}

}  // namespace

int64_t element_count(const std::vector<int64_t>& shape) {
  return std::accumulate(
      shape.begin(), shape.end(), int64_t{1}, std::multiplies<>());
}

std::optional<ShardSummary> summarize(const Layout& layout) {
  ShardSummary summary;
  // Each mesh dim cuts one tensor dim, so the tensor dims vary independently:
  // a shard with the smallest length of every dim exists, and full shards are
  // the product of full pieces per dim.
  int64_t full_ranks = replica_count(layout) * partial_count(layout);
  for (size_t dim = 0; dim < layout.shape().size(); ++dim) {
    const auto of_dim = summarize_dim(layout, static_cast<int64_t>(dim));
    if (!of_dim) {
      return std::nullopt;
    }
    summary.smallest.push_back(of_dim->smallest);
    summary.largest.push_back(of_dim->largest);
    full_ranks *= of_dim->shards - of_dim->empty;
  }
  summary.empty_ranks = layout.mesh().size() - full_ranks;
  return summary;
}

std::string summary_line(const Layout& layout) {
  const std::string all =
      with_commas(element_count(layout.shape())) + " in all";
  const auto summary = summarize(layout);
  if (!summary) {
    return counted(layout.mesh().size(), "rank") + ", " +
           counted(element_count(layout.shape()), "element") +
           " in all; too many shards to look at each: see --rank\n";
  }
  const int64_t least = element_count(summary->smallest);
  const int64_t most = element_count(summary->largest);
  std::string text =
      "local shape" +
      (summary->smallest == summary->largest
           ? " " + shape_to_string(summary->largest) + " on " +
                 (layout.mesh().size() == 1
                      ? std::string("1 rank")
                      : "all " + counted(layout.mesh().size(), "rank"))
           : "s " + shape_to_string(summary->smallest) + " to " +
                 shape_to_string(summary->largest) + " on " +
                 counted(layout.mesh().size(), "rank"));
  text += "; " +
          (least == most ? counted(most, "element")
                         : with_commas(least) + " to " + with_commas(most) +
                               " elements") +
          " per rank, " + all + "; ";
  return text + empty_ranks_text(layout, summary->empty_ranks) + "\n";
}

std::string xla_texts(const Layout& layout) {
  const std::string hlo = to_hlo_sharding(layout);
  return "HloSharding\n" + hlo + "\n\nShardy\n" + to_shardy(layout) + "\n";
}

std::vector<int64_t> coordinate_of_rank(const Layout& layout, int64_t rank) {
  const auto coordinate = layout.mesh().coordinate_of(rank);
  if (!coordinate) {
    throw UsageError(
        "--rank " + std::to_string(rank) + " is not in " +
        to_string(layout.mesh()) + ", which has " +
        counted(layout.mesh().size(), "rank") + ", the largest " +
        std::to_string(layout.mesh().max_rank()));
  }
  return *coordinate;
}

}  // namespace tessera::cli
