#include <tensor/autograd/local_gradient.h>

#include <c10/util/Exception.h>

namespace tessera::detail::inline tensor_layer {

namespace {

std::string describe_call(const char* call, const DTensorSpec& spec) {
  return std::string(call) + "(" + to_string(spec) + "), rank " +
         std::to_string(spec.mesh().world().rank());
}

// A gradient has the shape of its shard on every rank, so a cut stays that
// cut; copies and partial values are of one shape.
void check_same_shards(
    const char* call, const DTensorSpec& spec, const Placements& given) {
  for (size_t m = 0; m < given.size(); ++m) {
    const Placement& p = spec.placements()[m];
    TORCH_CHECK_VALUE(
        given[m] == p || (!given[m].is_shard() && !p.is_shard()) ||
            spec.mesh().size(static_cast<int64_t>(m)) == 1,
        describe_call(call, spec),
        ": the gradient of a local tensor has its shape; grad_placements gives "
        "mesh dim ",
        m, " ", to_string(given[m]), " where the tensor has ", to_string(p),
        "; repeat ", p.is_shard() ? to_string(p) : "Replicate or Partial",
        " there, and redistribute() before or after");
  }
}

}  // namespace

LocalGradient local_gradient(
    const char* call, const DTensorSpec& spec,
    const std::optional<Placements>& given) {
  if (given) {
    Placements placements =
        Layout(spec.shape(), spec.mesh().mesh_shape(), *given).placements();
    check_same_shards(call, spec, placements);
    return {.placements = std::move(placements)};
  }
  LocalGradient result{.placements = spec.placements()};
  for (size_t m = 0; m < result.placements.size(); ++m) {
    Placement& p = result.placements[m];
    if (!p.is_partial()) {
      continue;
    }
    const int64_t partials = spec.mesh().size(static_cast<int64_t>(m));
    if (p.reduce_op() == ReduceOp::kAvg) {
      result.scale *= static_cast<double>(partials);
    } else if (p.reduce_op() != ReduceOp::kSum && partials > 1) {
      result.known = false;
    }
    p = Replicate();
  }
  return result;
}

void check_known(
    const char* call, const LocalGradient& gradient, const DTensorSpec& spec) {
  TORCH_CHECK_NOT_IMPLEMENTED(
      gradient.known, describe_call(call, spec),
      ": the gradient of one addend depends on the other addends, except with "
      "sum and avg; redistribute() to Replicate first, or say with "
      ".grad_placements what the local gradients are");
}

}  // namespace tessera::detail::inline tensor_layer
