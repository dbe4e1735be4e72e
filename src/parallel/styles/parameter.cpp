#include <tessera/parallel/parallelize_module.h>

namespace tessera {

void ParameterParallel::apply(StyledParameter& target) const {
  target.shard(
      placement, CallLayouts{.input = input_layouts, .output = output_layouts});
}

}  // namespace tessera
