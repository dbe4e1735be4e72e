#include <ATen/ops/empty.h>
#include <ATen/ops/empty_strided.h>
#include <ATen/ops/zeros.h>
#include <c10/util/Exception.h>
#include <tensor/movement.h>
#include <tensor/ways.h>

namespace tessera::detail {

namespace {

// Runs the call on tensors of the global shapes without the data of this mesh:
// on the meta device, or on zeros where an operator has no meta kernel.
void run_for_shapes(const OpCall& call, bool on_meta) {
  call.map_argument_tensors([&](const at::Tensor& t) {
    if (!t.defined()) {
      return t;
    }
    const auto options = at::TensorOptions(t.scalar_type())
                             .device(on_meta ? at::kMeta : at::kCPU);
    at::Tensor made = at::empty_strided(t.sizes(), t.strides(), options);
    return on_meta ? made : made.zero_();
  });
  for (size_t i = 0; on_meta && i < call.size(); ++i) {
    if (call.argument(i).isDevice()) {
      call.argument(i) = c10::Device(at::kMeta);
    }
  }
  call.op().callBoxed(call.stack());
}

at::Tensor wrap_outside(
    const at::Tensor& t, const DeviceMesh& mesh, const Placements& placements) {
  if (!t.defined()) {
    return t;
  }
  const SpecPtr spec = DTensorSpec::make(
      mesh, placements, t.sizes().vec(), t.strides().vec(), t.scalar_type());
  const c10::Device device(mesh.device_type());
  return wrap(
      at::empty({0}, at::TensorOptions(t.scalar_type()).device(device)), spec);
}

// The placements that run_on_shards() would have given the results.
Placements result_placements(
    const OpCall& call, const OpTraits& traits, const DeviceMesh& mesh) {
  const Placements* common = nullptr;
  const std::vector<int64_t>* shape = nullptr;
  bool equal = traits.is_elementwise || traits.special != nullptr;
  call.for_each_argument_tensor([&](const at::Tensor& t) {
    if (!is_sharded(t) || t.dim() == 0) {
      return;
    }
    const DTensorSpec& spec = spec_of(t);
    if (common == nullptr) {
      common = &spec.placements();
      shape = &spec.shape();
    }
    equal = equal && spec.placements() == *common && spec.shape() == *shape &&
            (traits.passes_partial || !spec.layout().has_partial());
  });
  return equal && common != nullptr ? *common : replicated(mesh);
}

}  // namespace

void run_outside(const OpCall& call, const OpTraits& traits) {
  const DeviceMesh mesh = *call.mesh();
  const std::string text = call.describe();
  for (const auto& result : call.schema().returns()) {
    const bool tensors =
        result.type()->isSubtypeOf(*c10::TensorType::get()) ||
        result.type()->isSubtypeOf(*c10::ListType::ofTensors());
    TORCH_CHECK_VALUE(
        tensors, text, ": the result is a value, and this rank is outside the ",
        "mesh and holds no part of the tensor; ask on a rank of the mesh");
  }
  const Placements placements = result_placements(call, traits, mesh);
  std::vector<at::Tensor> written;
  for (size_t i = 0; i < call.size(); ++i) {
    if (call.writes(i)) {
      for_each_tensor(
          call.argument(i), [&](const at::Tensor& t) { written.push_back(t); });
    }
  }
  const torch::jit::Stack saved(
      call.stack()->end() - static_cast<std::ptrdiff_t>(call.size()),
      call.stack()->end());
  auto& stack = *call.stack();
  const size_t below = stack.size() - call.size();
  try {
    run_for_shapes(call, /*on_meta=*/true);
  } catch (const c10::Error&) {
    stack.resize(below);
    stack.insert(stack.end(), saved.begin(), saved.end());
    run_for_shapes(call, /*on_meta=*/false);
  }
  const size_t results = stack.size() - call.schema().returns().size();
  size_t next_written = 0;
  for (size_t i = results; i < stack.size(); ++i) {
    const auto* alias = call.schema().returns()[i - results].alias_info();
    if (alias != nullptr && alias->isWrite() && next_written < written.size()) {
      stack[i] = written[next_written++];
      continue;
    }
    map_tensors(stack[i], [&](const at::Tensor& t) {
      return wrap_outside(t, mesh, placements);
    });
  }
}

}  // namespace tessera::detail
