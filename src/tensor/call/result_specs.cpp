// The specs of results, from what this rank's part of a call returned.
#include <tensor/call/result_specs.h>

#include <ATen/ops/zeros.h>
#include <c10/util/Exception.h>
#include <tensor/call/decision.h>
#include <tensor/impl/sharded_impl.h>
#include <tensor/impl/wrap.h>
#include <tensor/state/strides.h>
#include <tessera/layout/notation.h>

namespace tessera::detail::inline tensor_layer {

namespace {

SpecPtr spec_of_view(
    const ViewResult& view, const DeviceMesh& mesh, const at::Tensor& local) {
  return DTensorSpec::make(
      mesh, view.placements, view.shape, view.strides, local.scalar_type());
}

Placements resolved(const Placements& placements, int64_t ndim) {
  Placements result = placements;
  for (Placement& p : result) {
    p = p.resolved(ndim);
  }
  return result;
}

bool is_replicated(const Placements& placements) {
  for (const Placement& p : placements) {
    if (!p.is_replicate()) {
      return false;
    }
  }
  return true;
}

SpecPtr find_spec(
    const Decision& decision, const DeviceMesh& mesh, size_t result,
    size_t element, const at::Tensor& local) {
  if (!decision.views.empty()) {
    return spec_of_view(decision.views[element], mesh, local);
  }
  const OutputPlan& output = decision.output(result, element);
  const Placements placements = resolved(output.placements, local.dim());
  const std::vector<int64_t> shape = result_shape(output, local.sizes());
  return DTensorSpec::make(
      mesh, placements, shape,
      is_replicated(placements) ? local.strides().vec()
                                : result_strides(decision, shape),
      local.scalar_type());
}

}  // namespace

std::vector<int64_t> result_shape(
    const OutputPlan& output, c10::IntArrayRef local) {
  std::vector<int64_t> shape = local.vec();
  for (size_t m = 0; m < output.placements.size(); ++m) {
    const Placement& p = output.placements[m];
    if (p.is_shard()) {
      const auto ndim = static_cast<int64_t>(shape.size());
      const int64_t d = p.resolved(ndim).dim();
      TORCH_INTERNAL_ASSERT(d >= 0 && d < ndim, "a result has no dim ", d);
      shape[static_cast<size_t>(d)] = output.sharded_sizes[m];
    }
  }
  return shape;
}

std::vector<int64_t> result_strides(
    const Decision& decision, const std::vector<int64_t>& shape) {
  const bool like = decision.like_shape == shape;
  switch (decision.strides) {
    case ResultStrides::kContiguous:
      break;
    case ResultStrides::kLikeOperands:
      if (like || decision.format != c10::MemoryFormat::Preserve) {
        return strides_in_format(
            shape, like ? decision.like_strides : contiguous_strides(shape),
            decision.format);
      }
      break;
    case ResultStrides::kChannelsLast:
      if (shape.size() == 4) {
        return strides_in_format(
            shape, contiguous_strides(shape), decision.format);
      }
      break;
  }
  return contiguous_strides(shape);
}

at::Tensor ResultWrapper::wrap_result(
    at::Tensor&& local, size_t result, size_t element) const {
  if (!local.defined()) {
    return std::move(local);
  }
  const WrapperTemplate* known = decision.templates.find(result, element);
  const WrapperTemplate& wrapper_template =
      known != nullptr && known->fits(local)
          ? *known
          : make_template(local, result, element);
  if (viewed == nullptr) {
    return wrap(std::move(local), wrapper_template);
  }
  if ((copy == nullptr || !*copy) && !meta_nowait(*viewed).copy) {
    return wrap_view(std::move(local), wrapper_template, *viewed);
  }
  const at::Tensor view = wrap_view(
      std::move(local), wrapper_template.spec(), *viewed,
      copy == nullptr ? nullptr : *copy);
  if (!decision.views.empty()) {
    take_offset(view, wrapper_template.start(), *viewed);
  }
  return view;
}

// Zeros of a derivative formula, which have no memory, become plain ones.
const WrapperTemplate& ResultWrapper::make_template(
    at::Tensor& local, size_t result, size_t element) const {
  TORCH_CHECK_NOT_IMPLEMENTED(
      local.layout() == at::kStrided, op.operator_name().name,
      ": the result is ", local.layout(),
      ", and sharded tensors are strided; apply the operator to "
      "full_tensor() or to_local()");
  if (local._is_zerotensor()) {
    local = at::zeros(local.sizes(), local.options());
  }
  const SpecPtr spec =
      find_spec(decision, *decision.mesh, result, element, local);
  TORCH_INTERNAL_ASSERT(
      local.sizes() == at::IntArrayRef(spec->local_shape()), op.operator_name(),
      ", ", decision.reason, ": result ", result, " of this rank has shape ",
      local.sizes(), ", and ", to_string(*spec), " gives it ",
      shape_to_string(spec->local_shape()));
  const ViewStart start =
      decision.views.empty()
          ? ViewStart()
          : decision.start_of_view(
                element, static_cast<int64_t>(local.element_size()));
  return decision.templates.set(
      result, element, WrapperTemplate(local, spec, start));
}

}  // namespace tessera::detail::inline tensor_layer
