#include "plan/transfer/region.h"

namespace tessera::detail::inline plan_layer {

Region region_of(const Layout& layout, const std::vector<int64_t>& coordinate) {
  Region region;
  for (int64_t d = 0; d < static_cast<int64_t>(layout.shape().size()); ++d) {
    region.push_back(layout.runs(d, coordinate));
  }
  return region;
}

Region region_of(const Box& box) {
  Region region;
  for (size_t d = 0; d < box.sizes.size(); ++d) {
    region.push_back({{box.offsets[d], box.offsets[d] + box.sizes[d]}});
  }
  return region;
}

}  // namespace tessera::detail::inline plan_layer
