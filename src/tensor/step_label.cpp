#include <tensor/step_label.h>

namespace tessera::detail {

void StepLabel::fill_in(const void* step, CommLogEntry& entry) {
  const Step& s = *static_cast<const Step*>(step);
  entry.kind = to_string(s.kind);
  entry.mesh_dims = dims_of(s);
  entry.from = to_string(s.from());
  entry.to = to_string(s.to());
  entry.text = describe(s);
}

}  // namespace tessera::detail
