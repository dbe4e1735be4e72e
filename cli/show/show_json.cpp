#include <tessera/layout/replica_groups.h>
#include <tessera/layout/xla.h>
#include <nlohmann/json.hpp>

#include "show.h"

namespace tessera::cli {
namespace {

using Json = nlohmann::ordered_json;

Json rank_json(
    const Layout& layout, int64_t rank, const std::vector<int64_t>& at) {
  const auto shape = layout.local_shape(at);
  Json boxes = Json::array();
  for (const Box& box : layout.boxes(at)) {
    boxes.push_back({{"offsets", box.offsets}, {"sizes", box.sizes}});
  }
  return {
      {"rank", rank},
      {"coordinate", at},
      {"local_shape", shape},
      {"elements", element_count(shape)},
      {"boxes", boxes}};
}

Json ranks_json(const Layout& layout, std::optional<int64_t> only) {
  Json ranks = Json::array();
  if (only) {
    ranks.push_back(
        rank_json(layout, *only, coordinate_of_rank(layout, *only)));
    return ranks;
  }
  for (const int64_t rank : layout.mesh().ranks()) {
    ranks.push_back(rank_json(layout, rank, coordinate_of_rank(layout, rank)));
  }
  return ranks;
}

Json summary_json(const ShardSummary& summary) {
  return {
      {"smallest_local_shape", summary.smallest},
      {"largest_local_shape", summary.largest},
      {"fewest_elements", element_count(summary.smallest)},
      {"most_elements", element_count(summary.largest)},
      {"empty_ranks", summary.empty_ranks}};
}

}  // namespace

std::string show_json(
    const TypedLayout& typed, std::optional<int64_t> rank, bool xla) {
  const Layout& layout = typed.layout;
  std::vector<std::string> placements;
  for (const Placement& placement : layout.placements()) {
    placements.push_back(to_string(placement));
  }
  Json json = {
      {"layout", typed.dtype + to_string(layout)},
      {"shape", layout.shape()},
      {"mesh",
       {{"sizes", layout.mesh().sizes()},
        {"names", layout.mesh().names()},
        {"ranks", layout.mesh().size()}}},
      {"placements", placements},
      {"copies", replica_count(layout)},
      {"addends", partial_count(layout)}};
  if (!rank) {
    const auto summary = summarize(layout);
    json["summary"] = summary ? summary_json(*summary) : Json(nullptr);
  }
  if (xla) {
    json["xla"] = {
        {"hlo_sharding", to_hlo_sharding(layout)},
        {"shardy", to_shardy(layout)}};
  }
  json["ranks"] = ranks_json(layout, rank);
  return json.dump();
}

}  // namespace tessera::cli
