#include <tensor/move/step_label.h>

#include <c10/util/StringUtil.h>
#include <comm/call/call.h>
#include <tessera/layout/notation.h>

namespace tessera::detail::inline tensor_layer {

void StepLabel::fill_in(const void* step, CommLogEntry& entry) {
  const Step& s = *static_cast<const Step*>(step);
  entry.kind = to_string(s.kind);
  entry.mesh_dims = dims_of(s);
  entry.dims = s.mesh_dims;
  entry.from = to_string(s.from());
  entry.to = to_string(s.to());
  entry.text = describe(s);
}

void BoxExchangeLabel::fill_in(const void* tilings, CommLogEntry& entry) {
  const auto& [source, target] =
      *static_cast<const decltype(tilings_)*>(tilings);
  entry.kind = to_string(StepKind::kExchange);
  entry.text = c10::str(
      entry.kind, " ", describe_group(entry.ranks), ": ",
      shape_to_string(source->shape()), ", ", source->tiles().size(),
      " tiles -> ", target->tiles().size(), " tiles");
}

}  // namespace tessera::detail::inline tensor_layer
