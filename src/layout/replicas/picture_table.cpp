#include "layout/replicas/picture_table.h"

#include <cstdint>
#include <vector>

#include <tessera/layout/notation.h>

#include "base/text_table.h"
#include "layout/replicas/shard_text.h"

namespace tessera::detail::inline layout_layer {
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

std::string draw_table(const Layout& layout, const VisualizeOptions& options) {
  std::vector<bool> any;
  for (const Placement& placement : layout.placements()) {
    any.push_back(!placement.is_shard());
  }
  const int64_t shards = shard_count(layout);
  base::TextTable table({"ranks", "coordinate", "local shape", "holds"});
  for (int64_t i = 0; i < shards; ++i) {
    if (shards > kMostTableRows && i == kHeadRows) {
      table.add_gap();
      i = shards - kTailRows;
    }
    const Coordinate at = shard_coordinate(layout, i);
    table.add(
        {replicas_text(layout, at), coordinate_text(layout.mesh(), at, any),
         shape_to_string(layout.local_shape(at)),
         boxes_text(layout.boxes(at))});
  }
  return table.draw(options.width, !options.ascii);
}

}  // namespace tessera::detail::inline layout_layer
