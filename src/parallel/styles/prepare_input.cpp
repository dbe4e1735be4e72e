#include <tessera/parallel/parallelize_module.h>

namespace tessera {

void PrepareModuleInput::apply_around(StyledModule& target) const {
  target.prepare_input(input_layouts, desired_input_layouts);
}

}  // namespace tessera
