// Operators that need a mesh and say how their results are cut.
#include <ATen/InferSize.h>
#include <ATen/WrapDimUtils.h>
#include <ATen/ops/bmm.h>
#include <ATen/ops/chunk.h>
#include <ATen/ops/linear.h>
#include <base/text.h>
#include <c10/util/Exception.h>
#include <sharded_tensor/ops/builtin_ops.h>
#include <tessera/comm/world.h>
#include <tessera/sharded_tensor/conversion.h>

namespace tessera::detail::inline sharded_tensor_layer {

using sharded_tensor::ShardedTensor;
using sharded_tensor::Value;

namespace {

// The same placement for a dim of another size.
Placement sharded_again(const Placement& p, int64_t dim) {
  return p.fits_any_size() ? p.with_dim(dim) : tessera::Shard(dim);
}

std::optional<at::Tensor> optional_tensor(const c10::IValue& value) {
  return value.isNone() ? std::nullopt
                        : std::optional<at::Tensor>(value.toTensor());
}

// The tensor of which a value is, sharded or not.
int64_t dims_of(const Value& value) {
  const ShardedTensor* sharded = sharded_in(value);
  return sharded != nullptr ? sharded->dim()
                            : std::get<c10::IValue>(value).toTensor().dim();
}

// The dim of the new sizes that has the elements of dim `d` of the old ones:
// as many, with as many before it. [4, 6], d 1, to [2, 2, 6] -> 2.
std::optional<int64_t> dim_in_view(
    at::IntArrayRef from, int64_t d, at::IntArrayRef to) {
  const auto place = static_cast<size_t>(d);
  const int64_t before = c10::multiply_integers(from.slice(0, place));
  int64_t product = 1;
  for (size_t j = 0; j < to.size(); ++j) {
    if (product == before && to[j] == from[place]) {
      return static_cast<int64_t>(j);
    }
    product *= to[j];
  }
  return std::nullopt;
}

}  // namespace

ShardedTensor linear_on_mesh(
    const Value& x, const ShardedTensor& weight, const Value& bias) {
  TORCH_CHECK_VALUE(
      weight.dim() == 2, "linear, rank ", rank(),
      ": the weight must have 2 dims; got ", weight.dim());
  const bool is_tensor =
      sharded_in(x) != nullptr || std::get<c10::IValue>(x).isTensor();
  TORCH_CHECK_TYPE(
      is_tensor, "linear, rank ", rank(), ": the input must be a tensor");
  const auto& group = weight.process_group();
  const at::Tensor w = to_dtensor(weight);
  const DeviceMesh& mesh = device_mesh(w);
  const at::Tensor input = on_mesh("linear", x, mesh, group).toTensor();
  TORCH_CHECK_VALUE(
      input.dim() >= 1 && input.size(-1) == weight.size(1), "linear, rank ",
      rank(), ": the input's last dim must have the weight's columns; got ",
      input.sizes(), " and ", weight.size(1));
  const auto b = optional_tensor(on_mesh("linear", bias, mesh, group));
  const ImplicitReplication plain_is_replicated;
  const at::Tensor result = at::linear(input, w, b);
  Placements target = placements(w);
  for (Placement& p : target) {
    if (p.is_shard()) {
      p = p.dim() == 0 ? p.with_dim(dims_of(x) - 1) : sharded_again(p, 0);
    }
  }
  return resharded_like(result, target, weight);
}

ShardedTensor bmm_on_mesh(const ShardedTensor& a, const ShardedTensor& b) {
  TORCH_CHECK_VALUE(
      a.dim() == 3 && b.dim() == 3, "bmm, rank ", rank(),
      ": both tensors must have 3 dims; got ", a.dim(), " and ", b.dim());
  const at::Tensor x = to_dtensor(a);
  const at::Tensor y =
      on_mesh("bmm", b, device_mesh(x), a.process_group()).toTensor();
  for (const Placement& p : placements(x)) {
    TORCH_CHECK_VALUE(
        !p.is_shard() || p.dim() == 0, "bmm, rank ", rank(),
        ": the batches must be cut, dim 0; got ", to_string(a.sharding_spec()),
        "; reshard() it first");
  }
  TORCH_CHECK_VALUE(
      placements(x) == placements(y), "bmm, rank ", rank(),
      ": the batches must be cut alike; got ", to_string(a.sharding_spec()),
      " and ", to_string(b.sharding_spec()), "; reshard() one of them first");
  return resharded_like(at::bmm(x, y), placements(x), a);
}

ShardedTensor transpose_on_mesh(
    const ShardedTensor& t, int64_t dim0, int64_t dim1) {
  const int64_t a = c10::maybe_wrap_dim(dim0, t.dim());
  const int64_t b = c10::maybe_wrap_dim(dim1, t.dim());
  const at::Tensor tensor = to_dtensor(t);
  Placements target = placements(tensor);
  for (Placement& p : target) {
    if (p.is_shard() && (p.dim() == a || p.dim() == b)) {
      p = p.with_dim(p.dim() == a ? b : a);
    }
  }
  return resharded_like(tensor.transpose(a, b), target, t);
}

ShardedTensor view_on_mesh(
    const ShardedTensor& t, const std::vector<int64_t>& sizes) {
  const auto to = at::infer_size_dv(sizes, t.numel());
  const at::Tensor tensor = to_dtensor(t);
  Placements target = placements(tensor);
  for (Placement& p : target) {
    if (!p.is_shard()) {
      continue;
    }
    const auto dim = dim_in_view(t.sizes(), p.dim(), to);
    TORCH_CHECK_VALUE(
        dim, "view, rank ", rank(), ": the cut dim ", p.dim(), " of sizes [",
        base::join(t.sizes(), ", "), "] is no dim of [",
        base::join(sizes, ", "), "]; reshard() along another dim first");
    p = p.with_dim(*dim);
  }
  return resharded_like(tensor.reshape(to), target, t);
}

Values chunk_on_mesh(const ShardedTensor& t, int64_t chunks, int64_t dim) {
  TORCH_CHECK_VALUE(
      chunks > 0, "chunk, rank ", rank(), ": chunks must be positive; got ",
      chunks);
  const int64_t along = c10::maybe_wrap_dim(dim, t.dim());
  const at::Tensor tensor = to_dtensor(t);
  Placements target = placements(tensor);
  for (Placement& p : target) {
    if (p.is_shard(along)) {
      p = sharded_again(p, along);
    }
  }
  Values parts;
  for (const at::Tensor& part : at::chunk(tensor, chunks, along)) {
    parts.emplace_back(resharded_like(part, target, t));
  }
  return parts;
}

}  // namespace tessera::detail::inline sharded_tensor_layer

namespace tessera::sharded_tensor {

ShardedTensor linear(
    const Value& x, const ShardedTensor& weight, const Value& bias) {
  return dispatch_one("aten::linear", {x, weight, bias});
}

ShardedTensor softmax(const ShardedTensor& t, int64_t dim) {
  return dispatch_one("aten::softmax.int", {t, dim});
}

ShardedTensor layer_norm(
    const ShardedTensor& t, const std::vector<int64_t>& normalized_shape,
    const Value& weight, const Value& bias, double eps) {
  return dispatch_one(
      "aten::layer_norm",
      {t, c10::IValue(normalized_shape), weight, bias, eps});
}

ShardedTensor bmm(const ShardedTensor& a, const ShardedTensor& b) {
  return dispatch_one("aten::bmm", {a, b});
}

ShardedTensor transpose(const ShardedTensor& t, int64_t dim0, int64_t dim1) {
  return dispatch_one("aten::transpose", {t, dim0, dim1});
}

ShardedTensor view(const ShardedTensor& t, const std::vector<int64_t>& sizes) {
  return dispatch_one("aten::view", {t, c10::IValue(sizes)});
}

std::vector<ShardedTensor> chunk(
    const ShardedTensor& t, int64_t chunks, int64_t dim) {
  std::vector<ShardedTensor> parts;
  for (const Value& part : dispatch("aten::chunk", {t, chunks, dim})) {
    parts.push_back(detail::only_result("aten::chunk", {part}));
  }
  return parts;
}

}  // namespace tessera::sharded_tensor
