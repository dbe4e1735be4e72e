#include <tessera/parallel/parallelize_module.h>

namespace tessera {

void PrepareModuleOutput::apply_around(StyledModule& target) const {
  target.prepare_output(output_layouts, desired_output_layouts);
}

}  // namespace tessera
