#include <tensor/run/run_off_mesh.h>

#include <ATen/ExpandUtils.h>
#include <ATen/native/TypeProperties.h>
#include <ATen/ops/empty.h>
#include <ATen/ops/empty_strided.h>
#include <ATen/ops/zeros.h>
#include <c10/core/impl/LocalDispatchKeySet.h>
#include <c10/util/Exception.h>
#include <tensor/call/decomposition.h>
#include <tensor/impl/sharded_impl.h>
#include <tensor/impl/wrap.h>
#include <tensor/move/view_copies.h>
#include <tensor/run/run_decision.h>
#include <tensor/state/dispatch_keys.h>
#include <tensor/state/replicated.h>

namespace tessera::detail::inline tensor_layer {

namespace {

// The local argument of a call on a mesh that this rank is outside of: nothing,
// on the meta device; where an operator has no meta kernel, a value that its
// checks let pass.
enum class OffMeshArgument : uint8_t { kMeta, kOnes, kZeros };

// Runs the call on tensors of the global shapes without the data of this mesh.
// Returns the local arguments of the tensors that the call writes.
std::vector<at::Tensor> run_for_shapes(
    const OpCall& call, OffMeshArgument with) {
  const bool on_meta = with == OffMeshArgument::kMeta;
  std::vector<at::Tensor> written;
  for (size_t i = 0; i < call.size(); ++i) {
    map_tensors(call.argument(i), [&](const at::Tensor& t) {
      if (!t.defined()) {
        return t;
      }
      if (!on_meta && !is_sharded(t) && !call.writes(i)) {
        return t.cpu();  // a mask decides how many elements there are
      }
      const auto options = at::TensorOptions(t.scalar_type())
                               .device(on_meta ? at::kMeta : at::kCPU);
      at::Tensor made = at::empty_strided(t.sizes(), t.strides(), options);
      if (call.writes(i)) {
        written.push_back(made);
      }
      return on_meta ? made
                     : made.fill_(with == OffMeshArgument::kOnes ? 1 : 0);
    });
    if (on_meta && call.argument(i).isDevice()) {
      call.argument(i) = c10::Device(at::kMeta);
    }
  }
  call.op().callBoxed(call.stack());
  return written;
}

// The spec of a tensor of the shape, strides and dtype of `like`.
SpecPtr spec_off_mesh(
    const at::Tensor& like, const DeviceMesh& mesh,
    const Placements& placements) {
  return DTensorSpec::make(
      mesh, placements, like.sizes().vec(), like.strides().vec(),
      like.scalar_type());
}

// This rank's shard in shape only: all its elements are one. Empty outside the
// mesh.
at::Tensor no_data(const DTensorSpec& spec, c10::Device device) {
  const auto options = at::TensorOptions(spec.dtype()).device(device);
  return spec.has_shard() ? at::empty({}, options).expand(spec.local_shape())
                          : at::empty({0}, options);
}

// The spec that a kernel of its own gives results of its shape, on ranks of the
// mesh.
SpecPtr common_spec(const OpCall& call, const OpTraits& traits) {
  const bool passes_partial = traits.is_random || traits.keeps_partial;
  SpecPtr common;
  bool equal = true;
  call.for_each_argument_tensor([&](const at::Tensor& t) {
    if (!is_sharded(t) || t.dim() == 0) {
      return;
    }
    const SpecPtr& spec = meta_ready(t).spec;
    common = common ? common : spec;
    equal = equal && spec->placements() == common->placements() &&
            spec->shape() == common->shape() &&
            (passes_partial || !spec->layout().has_partial());
  });
  return equal ? common : nullptr;
}

void check_returns_tensors(const OpCall& call) {
  for (const auto& result : call.schema().returns()) {
    const bool tensors =
        result.type()->isSubtypeOf(*c10::TensorType::get()) ||
        result.type()->isSubtypeOf(*c10::ListType::ofTensors());
    TORCH_CHECK_VALUE(
        tensors, call.describe(),
        ": the result is a value, and this rank is outside the ",
        "mesh and holds no part of the tensor; ask on a rank of the mesh");
  }
}

// LibTorch has no meta kernel for where(), for what is made of it, and for
// logical_not(); attention calls them all.
at::Tensor made(at::IntArrayRef shape, at::ScalarType dtype) {
  return at::empty(shape, at::TensorOptions(dtype).device(at::kMeta));
}

at::Tensor safe_softmax_result(const OpCall& call) {
  const at::Tensor self = call.argument(0).toTensor();
  const c10::IValue& dtype = call.argument(2);
  return made(
      self.sizes(), dtype.isNone() ? self.scalar_type() : dtype.toScalarType());
}

at::Tensor logical_not_result(const OpCall& call) {
  return made(call.argument(0).toTensor().sizes(), at::kBool);
}

at::Tensor where_result(const OpCall& call) {
  const auto tensor = [&](size_t i) { return call.argument(i).toTensor(); };
  const auto shape = at::infer_size(tensor(1).sizes(), tensor(2).sizes());
  at::native::ResultTypeState types;
  types = at::native::update_result_type_state(tensor(1), types);
  types = at::native::update_result_type_state(tensor(2), types);
  return made(
      at::infer_size(tensor(0).sizes(), shape), at::native::result_type(types));
}

// Runs on the meta device only.
std::vector<at::Tensor> run_on_meta(
    const OpCall& call, const OpTraits& traits) {
  if (traits.meta_result == nullptr) {
    return run_for_shapes(call, OffMeshArgument::kMeta);
  }
  call.finish(traits.meta_result(call));
  return {};
}

// Runs on the meta device; else on ones, which are weights and counts too; else
// on zeros, which are places: offsets, ids.
std::vector<at::Tensor> run_for_shapes_or_values(const OpCall& call) {
  auto& stack = *call.stack();
  const size_t below = stack.size() - call.size();
  const torch::jit::Stack saved(
      stack.begin() + static_cast<std::ptrdiff_t>(below), stack.end());
  for (const OffMeshArgument with :
       {OffMeshArgument::kMeta, OffMeshArgument::kOnes}) {
    try {
      return run_for_shapes(call, with);
    } catch (const std::exception&) {  // Python may have a meta kernel too
      stack.resize(below);
      stack.insert(stack.end(), saved.begin(), saved.end());
    }
  }
  return run_for_shapes(call, OffMeshArgument::kZeros);
}

}  // namespace

at::Tensor wrap_without_data(
    const SpecPtr& spec, c10::Device device, ViewOf shown) {
  at::Tensor t = wrap(no_data(*spec, device), spec, std::move(shown));
  if (spec->is_replicated() && spec->has_shard()) {
    t.unsafeGetTensorImpl()->set_sizes_and_strides(
        spec->shape(), spec->strides());
  }
  return t;
}

// Views are used as what they show, see Note [Styles without hooks]: C++ layers
// multiply with weight.t().
at::Tensor view_without_data(
    const SpecPtr& spec, c10::Device device, const at::Tensor& source) {
  at::Tensor view = wrap_without_data(spec, device, {nullptr, root_of(source)});
  if (InheritedState state = inherited_state(meta_nowait(source))) {
    take_state(view, std::move(state));
  }
  follow_source(view, source);
  return view;
}

namespace {

// The placements of results on ranks of the mesh.
class ResultPlacements {
 public:
  ResultPlacements(const OpCall& call, const OpTraits& traits)
      : mesh_(*call.mesh()) {
    if (!has_custom_kernel(call, traits)) {
      decision_ = decide(call, traits);
      return;
    }
    random_ = traits.random_placements != nullptr
                  ? traits.random_placements(call)
                  : std::nullopt;
    common_ = common_spec(call, traits);
  }

  Placements of(const at::Tensor& t, size_t result, size_t element) const {
    if (decision_) {
      Placements placements = decision_->output(result, element).placements;
      for (Placement& p : placements) {
        p = p.resolved(t.dim());
      }
      return placements;
    }
    if (random_) {
      return *random_;
    }
    const bool sharded =
        common_ && t.sizes() == at::IntArrayRef(common_->shape());
    return sharded ? common_->placements() : replicated(mesh_);
  }

  ViewStart start(const at::Tensor& t, size_t element) const {
    return decision_ && !decision_->views.empty()
               ? decision_->start_of_view(
                     element, static_cast<int64_t>(t.element_size()))
               : ViewStart();
  }

 private:
  const DeviceMesh mesh_;
  std::optional<Placements> random_;
  SpecPtr common_;
  DecisionPtr decision_;
};

// The tensor that the results are views of, if any.
at::Tensor source_of_views(const OpCall& call, const OpTraits& traits) {
  const bool shows = traits.is_view && call.size() > 0 &&
                     call.argument(0).isTensor() &&
                     is_sharded(call.argument(0).toTensor());
  return shows ? call.argument(0).toTensor() : at::Tensor();
}

void run(const OpCall& call, const OpTraits& traits, bool may_compute) {
  const DeviceMesh mesh = *call.mesh();
  const c10::Device device(mesh.device_type());
  const c10::impl::ExcludeDispatchKeyGuard no_draws(kUnshardedRandomKey);
  if (traits.skip_random != nullptr && may_compute) {  // else a dry run
    traits.skip_random(call);
  }
  check_returns_tensors(call);
  if (traits.custom_kernel_off_mesh != nullptr) {
    return traits.custom_kernel_off_mesh(call);
  }
  if (!has_custom_kernel(call, traits) &&
      decide(call, traits)->strategy == Strategy::kDecomposed) {
    return traits.decomposition->run(call);
  }
  const ResultPlacements placements(call, traits);
  const at::Tensor source = source_of_views(call, traits);
  const std::vector<at::Tensor> written = call.written();
  const std::vector<at::Tensor> values =
      may_compute ? run_for_shapes_or_values(call) : run_on_meta(call, traits);
  for (size_t i = 0; i < written.size(); ++i) {
    const at::Tensor& t = written[i];
    if (is_sharded(t) && t.sizes() != values[i].sizes()) {
      const Placements kept = fitting_placements(spec_of(t), values[i].dim());
      const SpecPtr spec = spec_off_mesh(values[i], mesh, kept);
      install(t, no_data(*spec, device), spec);
    }
  }
  size_t next = 0;
  call.map_results(
      [&](size_t result) {
        return call.returns_written(result) && next < written.size()
                   ? &written[next++]
                   : nullptr;
      },
      [&](const at::Tensor& t, size_t result, size_t element) {
        const SpecPtr spec =
            spec_off_mesh(t, mesh, placements.of(t, result, element));
        if (!source.defined()) {
          return wrap_without_data(spec, device);
        }
        const at::Tensor view = view_without_data(spec, device, source);
        take_offset(view, placements.start(t, element), source);
        return view;
      });
}

}  // namespace

void run_off_mesh(const OpCall& call, const OpTraits& traits) {
  run(call, traits, /*may_compute=*/true);
}

void run_for_specs(const OpCall& call, const OpTraits& traits) {
  run(call, traits, /*may_compute=*/false);
}

void add_meta_results(OpRegistry& ops) {
  ops.at("aten::_safe_softmax").meta_result = safe_softmax_result;
  ops.at("aten::logical_not").meta_result = logical_not_result;
  ops.at("aten::where.self").meta_result = where_result;
}

}  // namespace tessera::detail::inline tensor_layer
