#include "holders.h"
#include "show.h"
#include "text_table.h"

namespace tessera::cli {
namespace {

constexpr int64_t kMostTableRows = 32;
constexpr int64_t kHeadRows = 12;  // of a table that is too long
constexpr int64_t kTailRows = 3;
constexpr size_t kMostBoxes = 4;  // per row

std::string boxes_text(const std::vector<Box>& boxes) {
  if (boxes.empty()) {
    return "nothing";
  }
  std::string text;
  for (size_t i = 0; i < boxes.size() && i < kMostBoxes; ++i) {
    text += (i == 0 ? "" : " ") + to_string(boxes[i]);
  }
  if (boxes.size() > kMostBoxes) {
    text += " ... (" + std::to_string(boxes.size()) + " boxes)";
  }
  return text;
}

}  // namespace

std::string draw_table(const Layout& layout, const Terminal& terminal) {
  std::vector<bool> free;
  for (const Placement& placement : layout.placements()) {
    free.push_back(!placement.is_shard());
  }
  const int64_t shards = shard_count(layout);
  TextTable table({"ranks", "coordinate", "local shape", "holds"});
  for (int64_t i = 0; i < shards; ++i) {
    if (shards > kMostTableRows && i == kHeadRows) {
      table.add_gap();
      i = shards - kTailRows;
    }
    const Coordinate at = shard_coordinate(layout, i);
    table.add(
        {holders_text(layout, at), coordinate_text(layout.mesh(), at, free),
         shape_to_string(layout.local_shape(at)),
         boxes_text(layout.boxes(at))});
  }
  return table.draw(terminal);
}

std::string describe_rank(const Layout& layout, int64_t rank) {
  const Coordinate at = coordinate_of_rank(layout, rank);
  const auto shape = layout.local_shape(at);
  std::string text = "rank " + std::to_string(rank) + " at " +
                     coordinate_text(layout.mesh(), at) + ": local shape " +
                     shape_to_string(shape) + ", " +
                     counted(element_count(shape), "element") + " of " +
                     with_commas(element_count(layout.shape())) + "\n";
  const auto boxes = layout.boxes(at);
  if (boxes.empty()) {
    text += "  holds nothing\n";
  }
  for (const Box& box : boxes) {
    text += "  holds " + to_string(box) + "\n";
  }
  if (copy_count(layout) * addend_count(layout) > 1) {
    text += "  held by " + holders_text(layout, at) + "\n";
  }
  return text;
}

}  // namespace tessera::cli
