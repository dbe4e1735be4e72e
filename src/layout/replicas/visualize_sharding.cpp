#include <tessera/layout/visualize_sharding.h>

#include <vector>

#include <c10/util/Exception.h>
#include <tessera/layout/notation.h>
#include <tessera/layout/replica_groups.h>

#include "base/text_columns.h"
#include "layout/arithmetic.h"
#include "layout/replicas/picture_grid.h"
#include "layout/replicas/picture_table.h"
#include "layout/replicas/shard_text.h"

namespace tessera {
namespace {

/// Returns the number of elements; a Layout has checked that it fits.
int64_t elements_of(const std::vector<int64_t>& shape) {
  return detail::checked_product(shape).value_or(0);
}

}  // namespace

std::string visualize_sharding(
    const Layout& layout, const VisualizeOptions& options) {
  const bool grid = !options.table && detail::fits_grid(layout);
  std::string text = grid ? detail::draw_grid(layout, options)
                          : detail::draw_table(layout, options);
  text.pop_back();  // the last newline
  return text;
}

std::string visualize_shard(const Layout& layout, int64_t rank) {
  const auto at = layout.mesh().coordinate_of(rank);
  TORCH_CHECK_INDEX(
      at.has_value(), "visualize_shard(", to_string(layout),
      "): the rank must be in the mesh; got ", rank, ", the largest is ",
      layout.mesh().max_rank());
  const std::vector<int64_t> shape = layout.local_shape(*at);
  std::string text = "rank " + std::to_string(rank) + " at " +
                     detail::coordinate_text(layout.mesh(), *at) +
                     ": local shape " + shape_to_string(shape) + ", " +
                     base::counted(elements_of(shape), "element") + " of " +
                     base::with_commas(elements_of(layout.shape()));
  const std::vector<Box> boxes = layout.boxes(*at);
  if (boxes.empty()) {
    text += "\n  holds nothing";
  }
  for (const Box& box : boxes) {
    text += "\n  holds " + to_string(box);
  }
  if (replica_count(layout) * partial_count(layout) > 1) {
    text += "\n  held by " + detail::replicas_text(layout, *at);
  }
  return text;
}

}  // namespace tessera
