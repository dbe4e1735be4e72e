#include <tensor/state/describe_call.h>
#include <tessera/tensor/factories.h>

#include <ATen/ops/arange.h>
#include <ATen/ops/empty.h>
#include <ATen/ops/empty_strided.h>
#include <ATen/ops/full.h>
#include <ATen/ops/linspace.h>
#include <ATen/ops/logspace.h>
#include <c10/util/Exception.h>
#include <comm/mesh_device.h>
#include <tensor/deferred/memory_now.h>
#include <tensor/impl/sharded_impl.h>
#include <tensor/impl/wrap.h>
#include <tensor/move/redistribute_shard.h>
#include <tensor/random/fill/fill.h>
#include <tensor/random/ops/table.h>
#include <tensor/random/philox/philox_blocks.h>
#include <tensor/state/strides.h>
#include <tessera/tensor/dtensor.h>

namespace tessera {

namespace {

at::TensorOptions local_options(
    const DeviceMesh& mesh, const at::TensorOptions& options) {
  TORCH_CHECK_VALUE(
      options.layout() == at::kStrided, "factory on ", to_string(mesh),
      ": only strided tensors can be sharded; got layout ", options.layout());
  TORCH_CHECK_VALUE(
      !options.has_device() || options.device().is_meta() ||
          options.device().type() == mesh.device_type(),
      "factory on ", to_string(mesh),
      ": the device must be of the mesh's type; got ", options.device(),
      " and ", mesh.device_type());
  if (!options.has_device() || !options.device().is_meta()) {
    detail::check_mesh_device("factory", mesh);
  }
  // empty() alone has memory formats, as in LibTorch.
  at::TensorOptions local =
      options.requires_grad(false).memory_format(std::nullopt);
  return options.has_device() ? local
                              : local.device(c10::Device(mesh.device_type()));
}

at::MemoryFormat format_of(
    at::IntArrayRef sizes, const DeviceMesh& mesh,
    const at::TensorOptions& options) {
  const auto format =
      options.memory_format_opt().value_or(at::MemoryFormat::Contiguous);
  const size_t wanted = format == at::MemoryFormat::ChannelsLast     ? 4
                        : format == at::MemoryFormat::ChannelsLast3d ? 5
                                                                     : 0;
  TORCH_CHECK_VALUE(
      wanted == 0 || sizes.size() == wanted,
      detail::describe_call("empty", mesh), ": a tensor in format ", format,
      " must have ", wanted, " dims; got shape ", sizes);
  return format;
}

SpecPtr factory_spec(
    at::IntArrayRef sizes, const DeviceMesh& mesh, const Placements& placements,
    const at::TensorOptions& options) {
  return DTensorSpec::make(
      mesh, placements, sizes.vec(),
      c10::typeMetaToScalarType(options.dtype()));
}

at::Tensor finish(
    const at::Tensor& shard, const SpecPtr& spec,
    const at::TensorOptions& options) {
  at::Tensor result = detail::wrap(shard, spec);
  result.set_requires_grad(options.requires_grad());
  return result;
}

// Cuts a whole value that every rank computes alike.
at::Tensor sliced(
    const at::Tensor& unsharded, const DeviceMesh& mesh,
    const Placements& placements, const at::TensorOptions& options) {
  const SpecPtr spec = DTensorSpec::make(
      mesh, placements, unsharded.sizes().vec(), unsharded.scalar_type());
  return finish(detail::slice_shard(unsharded, *spec), spec, options);
}

// Each rank draws its own elements.
at::Tensor draw(
    at::IntArrayRef sizes, const DeviceMesh& mesh, const Placements& placements,
    const at::TensorOptions& options,
    const detail::Distribution& distribution) {
  const detail::MemoryNow memory;
  const at::TensorOptions local = local_options(mesh, options);
  const SpecPtr spec = factory_spec(sizes, mesh, placements, local);
  const at::Tensor result =
      detail::wrap(at::empty(spec->local_shape(), local), spec);
  detail::fill_tensor(
      result, distribution,
      detail::key_of(mesh.world().random_counters()->next()));
  result.set_requires_grad(options.requires_grad());
  return result;
}

void check_floating(
    const char* call, const DeviceMesh& mesh,
    const at::TensorOptions& options) {
  const c10::ScalarType dtype = c10::typeMetaToScalarType(options.dtype());
  TORCH_CHECK_VALUE(
      c10::isFloatingType(dtype) || c10::isComplexType(dtype),
      detail::describe_call(call, mesh),
      ": the dtype must be floating point or complex; got ", dtype_name(dtype),
      "; use randint() for integers");
}

}  // namespace

at::Tensor empty(
    at::IntArrayRef sizes, const DeviceMesh& mesh, const Placements& placements,
    at::TensorOptions options) {
  const detail::MemoryNow memory;
  const at::TensorOptions local = local_options(mesh, options);
  const SpecPtr spec = DTensorSpec::make(
      mesh, placements, sizes.vec(),
      detail::strides_in_format(
          sizes, detail::contiguous_strides(sizes),
          format_of(sizes, mesh, options)),
      c10::typeMetaToScalarType(local.dtype()));
  return finish(
      spec->has_shard()
          ? at::empty_strided(
                spec->local_shape(), detail::strides_of_shard(*spec), local)
          : at::empty(spec->local_shape(), local),
      spec, options);
}

at::Tensor full(
    at::IntArrayRef sizes, const at::Scalar& value, const DeviceMesh& mesh,
    const Placements& placements, at::TensorOptions options) {
  const detail::MemoryNow memory;
  at::TensorOptions local = local_options(mesh, options);
  const SpecPtr spec = factory_spec(sizes, mesh, placements, local);
  at::Tensor shard = at::full(spec->local_shape(), value, local);
  if (spec->has_shard()) {
    shard = detail::to_partial(shard, *spec);
  }
  return finish(shard, spec, options);
}

at::Tensor zeros(
    at::IntArrayRef sizes, const DeviceMesh& mesh, const Placements& placements,
    at::TensorOptions options) {
  return full(sizes, 0, mesh, placements, options.dtype(options.dtype()));
}

at::Tensor ones(
    at::IntArrayRef sizes, const DeviceMesh& mesh, const Placements& placements,
    at::TensorOptions options) {
  return full(sizes, 1, mesh, placements, options.dtype(options.dtype()));
}

at::Tensor arange(
    const at::Scalar& start, const at::Scalar& end, const at::Scalar& step,
    const DeviceMesh& mesh, const Placements& placements,
    at::TensorOptions options) {
  const detail::MemoryNow memory;
  return sliced(
      at::arange(start, end, step, local_options(mesh, options)), mesh,
      placements, options);
}

at::Tensor linspace(
    const at::Scalar& start, const at::Scalar& end, int64_t steps,
    const DeviceMesh& mesh, const Placements& placements,
    at::TensorOptions options) {
  const detail::MemoryNow memory;
  return sliced(
      at::linspace(start, end, steps, local_options(mesh, options)), mesh,
      placements, options);
}

at::Tensor logspace(
    const at::Scalar& start, const at::Scalar& end, int64_t steps, double base,
    const DeviceMesh& mesh, const Placements& placements,
    at::TensorOptions options) {
  const detail::MemoryNow memory;
  return sliced(
      at::logspace(start, end, steps, base, local_options(mesh, options)), mesh,
      placements, options);
}

at::Tensor rand(
    at::IntArrayRef sizes, const DeviceMesh& mesh, const Placements& placements,
    at::TensorOptions options) {
  check_floating("rand", mesh, options);
  return draw(
      sizes, mesh, placements, options,
      {.kind = detail::Distribution::Kind::kUniform});
}

at::Tensor randn(
    at::IntArrayRef sizes, const DeviceMesh& mesh, const Placements& placements,
    at::TensorOptions options) {
  check_floating("randn", mesh, options);
  return draw(
      sizes, mesh, placements, options,
      {.kind = detail::Distribution::Kind::kNormal});
}

at::Tensor randint(
    int64_t low, int64_t high, at::IntArrayRef sizes, const DeviceMesh& mesh,
    const Placements& placements, at::TensorOptions options) {
  TORCH_CHECK_VALUE(
      low < high, detail::describe_call("randint", mesh),
      ": the range must not be empty; got [", low, ", ", high, ")");
  if (!options.has_dtype()) {
    options = options.dtype(at::kLong);
  }
  return draw(
      sizes, mesh, placements, options,
      {.kind = detail::Distribution::Kind::kInteger,
       .low = low,
       .range = static_cast<uint64_t>(high) - static_cast<uint64_t>(low)});
}

at::Tensor randperm(
    int64_t n, const DeviceMesh& mesh, const Placements& placements,
    at::TensorOptions options) {
  const detail::MemoryNow memory;
  TORCH_CHECK_VALUE(
      n >= 0, detail::describe_call("randperm", mesh),
      ": n must not be negative; got ", n);
  if (!options.has_dtype()) {
    options = options.dtype(at::kLong);
  }
  const at::TensorOptions local = local_options(mesh, options);
  const detail::PhiloxKey key =
      detail::key_of(mesh.world().random_counters()->next());
  return sliced(
      detail::draw_permutation(n, key).to(local), mesh, placements, options);
}

}  // namespace tessera
