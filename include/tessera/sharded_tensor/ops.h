// Operators on sharded tensors.
//
// A call looks for its implementation in this order: the user's for the
// operator, the user's for the operator and the first sharded tensor's spec,
// the library's. The library's runs any ATen operator on LibTorch's own
// dispatcher by way of to_dtensor() where the shards form a mesh; on other
// tilings it runs elementwise operators shard by shard; anything else is an
// error that says so. Plain tensors among the arguments must be equal on all
// ranks.
#pragma once

#include <cstdint>
#include <functional>
#include <memory>
#include <optional>
#include <string>
#include <typeindex>
#include <variant>
#include <vector>

#include <ATen/core/Generator.h>
#include <ATen/core/Tensor.h>
#include <ATen/core/ivalue.h>
#include <c10/core/Scalar.h>
#include <tessera/export.h>
#include <tessera/sharded_tensor/sharded_tensor.h>

namespace tessera::sharded_tensor {

/// An argument or a result: any value of LibTorch, or a sharded tensor.
using Value = std::variant<c10::IValue, ShardedTensor>;

/// An implementation of an operator.
using Handler = std::function<std::vector<Value>(
    const std::vector<Value>& arguments, const ProcessGroup& group)>;

}  // namespace tessera::sharded_tensor

namespace tessera::detail::inline sharded_tensor_layer {
TESSERA_API void add_spec_op(
    std::type_index type,
    std::function<bool(const sharded_tensor::ShardingSpec&)> matches,
    const std::string& op, sharded_tensor::Handler handler);
}  // namespace tessera::detail::inline sharded_tensor_layer

namespace tessera::sharded_tensor {

/// Returns the first sharded tensor among the arguments; an error where there
/// is none.
TESSERA_API const ShardedTensor& find_sharded_tensor(
    const std::vector<Value>& arguments);

/// Calls an operator by name: "aten::mul", or what a handler was registered
/// for. Collective where it communicates. Results of the first sharded tensor's
/// shape are cut like it; results of another shape, and those in lists, are
/// plain tensors, equal on all ranks of the group; an in-place form returns the
/// tensor itself. Gradients of plain arguments sum over all ranks, so that
/// every rank must run backward.
/// Example: dispatch("aten::clamp_min", {t, 0.0}).
TESSERA_API std::vector<Value> dispatch(
    const std::string& op, const std::vector<Value>& arguments);
/// The same for an operator with one result, a sharded tensor.
TESSERA_API ShardedTensor
dispatch_one(const std::string& op, const std::vector<Value>& arguments);

/// Registers an implementation for all sharded tensors, before the library's.
/// A name without an overload serves all that have no implementation of their
/// own. The functions below look here too: linear() for "aten::linear",
/// uniform_() for "aten::uniform_"; they pass their arguments and options in
/// the order of their declaration. An empty function is a TypeError; a second
/// registration replaces the first.
TESSERA_API void custom_sharded_op(const std::string& op, Handler handler);
/// Registers an implementation for tensors whose spec is a `spec`, or derived
/// from it where the derived type has none of its own.
template <class Spec>
void custom_sharding_spec_op(const std::string& op, Handler handler);
/// Tells whether a call with this spec finds one of those.
TESSERA_API bool has_custom_op(const ShardingSpec& spec, const std::string& op);

template <class Spec>
void custom_sharding_spec_op(const std::string& op, Handler handler) {
  detail::add_spec_op(
      typeid(Spec),
      [](const ShardingSpec& spec) {
        return dynamic_cast<const Spec*>(&spec) != nullptr;
      },
      op, std::move(handler));
}

// Copies.

/// Returns a copy cut alike; differentiable.
TESSERA_API ShardedTensor clone(const ShardedTensor& tensor);
/// Returns a leaf that shares the shards' memory.
TESSERA_API ShardedTensor detach(const ShardedTensor& tensor);
/// Copies the values of a tensor of the same size; where it is cut differently
/// its shards move. Differentiable. Returns `to`.
TESSERA_API ShardedTensor
copy_(const ShardedTensor& to, const ShardedTensor& from);
/// Sets requires_grad of all shards, in place; returns the tensor.
TESSERA_API ShardedTensor
requires_grad_(const ShardedTensor& tensor, bool value = true);
/// Returns the tensor in the dtype of another, itself where it has that.
TESSERA_API ShardedTensor
type_as(const ShardedTensor& tensor, const at::Tensor& other);
TESSERA_API ShardedTensor
type_as(const ShardedTensor& tensor, const ShardedTensor& other);

// Comparison: collective, the same answer on all ranks of the group. Tensors
// that are cut differently are compared by moving the second one's shards.

/// Tells whether sizes, dtypes and all values are equal.
TESSERA_API bool equal(const ShardedTensor& a, const ShardedTensor& b);
TESSERA_API bool allclose(
    const ShardedTensor& a, const ShardedTensor& b, double rtol = 1e-5,
    double atol = 1e-8, bool equal_nan = false);

// Initialisation, in place; returns the tensor. With kGlobal the values are
// those of one rank that has the whole tensor; with kLocal each shard is filled
// as a tensor of its own, from LibTorch's generator of this process.

enum class InitMode : uint8_t { kGlobal, kLocal };
struct FillOptions {
  InitMode mode = InitMode::kGlobal;
  std::optional<at::Generator> generator = std::nullopt;
};

TESSERA_API ShardedTensor uniform_(
    const ShardedTensor& tensor, double a = 0, double b = 1,
    const FillOptions& options = {});
TESSERA_API ShardedTensor normal_(
    const ShardedTensor& tensor, double mean = 0, double std = 1,
    const FillOptions& options = {});
TESSERA_API ShardedTensor
constant_(const ShardedTensor& tensor, const c10::Scalar& value);
/// As torch::nn::init::kaiming_uniform_ with slope `a` and fan in; kGlobal
/// takes the fan of the whole tensor, kLocal that of each shard.
TESSERA_API ShardedTensor kaiming_uniform_(
    const ShardedTensor& tensor, double a = 0, const FillOptions& options = {});

// Like: same spec, size, dtype, requires_grad and group, unless said otherwise.

struct LikeOptions {
  std::optional<c10::ScalarType> dtype = std::nullopt;
  std::optional<bool> requires_grad = std::nullopt;
  std::optional<ProcessGroup> process_group = std::nullopt;
};
TESSERA_API ShardedTensor
empty_like(const ShardedTensor& t, const LikeOptions& = {});
TESSERA_API ShardedTensor
zeros_like(const ShardedTensor& t, const LikeOptions& = {});
TESSERA_API ShardedTensor
ones_like(const ShardedTensor& t, const LikeOptions& = {});
TESSERA_API ShardedTensor full_like(
    const ShardedTensor& t, const c10::Scalar& value, const LikeOptions& = {});
TESSERA_API ShardedTensor
rand_like(const ShardedTensor& t, const LikeOptions& = {});
TESSERA_API ShardedTensor
randn_like(const ShardedTensor& t, const LikeOptions& = {});

// Arithmetic: with numbers, plain tensors and sharded ones, broadcast as in
// LibTorch; the result is cut like the first sharded one. Any tiling.

TESSERA_API ShardedTensor add(const Value& a, const Value& b);
TESSERA_API ShardedTensor sub(const Value& a, const Value& b);
TESSERA_API ShardedTensor mul(const Value& a, const Value& b);
TESSERA_API ShardedTensor div(const Value& a, const Value& b);
TESSERA_API ShardedTensor add_(const ShardedTensor& a, const Value& b);
TESSERA_API ShardedTensor sub_(const ShardedTensor& a, const Value& b);
TESSERA_API ShardedTensor mul_(const ShardedTensor& a, const Value& b);
TESSERA_API ShardedTensor div_(const ShardedTensor& a, const Value& b);
TESSERA_API ShardedTensor operator+(const ShardedTensor& a, const Value& b);
TESSERA_API ShardedTensor operator-(const ShardedTensor& a, const Value& b);
TESSERA_API ShardedTensor operator*(const ShardedTensor& a, const Value& b);
TESSERA_API ShardedTensor operator/(const ShardedTensor& a, const Value& b);
TESSERA_API ShardedTensor gelu(const ShardedTensor& t);
TESSERA_API ShardedTensor relu(const ShardedTensor& t);
TESSERA_API ShardedTensor tanh(const ShardedTensor& t);
TESSERA_API ShardedTensor nan_to_num(const ShardedTensor& t);
/// Sets elements to 0 with probability p and scales the others by 1 / (1 - p);
/// which ones does not depend on the cut.
TESSERA_API ShardedTensor
dropout(const ShardedTensor& t, double p = 0.5, bool training = true);
TESSERA_API ShardedTensor masked_fill(
    const ShardedTensor& t, const Value& mask, const c10::Scalar& value);

// Operators that need a mesh; each says how its result is cut.

/// x w^T + b. The weight's spec decides: rows cut (dim 0) -> the result is cut
/// along its last dim; columns cut (dim 1) -> along dim 0; over the weight's
/// ranks. `x` is sharded, or plain and equal on all ranks.
TESSERA_API ShardedTensor
linear(const Value& x, const ShardedTensor& weight, const Value& bias = {});
/// Cut like the tensor.
TESSERA_API ShardedTensor softmax(const ShardedTensor& t, int64_t dim);
TESSERA_API ShardedTensor layer_norm(
    const ShardedTensor& t, const std::vector<int64_t>& normalized_shape,
    const Value& weight = {}, const Value& bias = {}, double eps = 1e-5);
/// Batches cut alike; the result too.
TESSERA_API ShardedTensor bmm(const ShardedTensor& a, const ShardedTensor& b);
/// The cut follows its dim.
TESSERA_API ShardedTensor
transpose(const ShardedTensor& t, int64_t dim0, int64_t dim1);
/// The cut stays with the dim that has as many elements and as many before it;
/// an error where the sizes leave none. [4, 6] cut along dim 1, as [2, 2, 6]:
/// along dim 2.
TESSERA_API ShardedTensor
view(const ShardedTensor& t, const std::vector<int64_t>& sizes);
/// Parts along a dim, each cut along the tensor's dim over its ranks.
TESSERA_API std::vector<ShardedTensor> chunk(
    const ShardedTensor& t, int64_t chunks, int64_t dim = 0);

// Tables. Each rank looks up ids of its own, of any number; gradients of the
// weight sum over all ranks. Collective; differentiable.

struct EmbeddingOptions {
  std::optional<int64_t> padding_idx = std::nullopt;
  /// Renormalises the rows that any rank looks up, in place.
  std::optional<double> max_norm = std::nullopt;
  double norm_type = 2;
};
/// Returns the rows of this rank's ids, as a plain tensor.
TESSERA_API at::Tensor embedding(
    const at::Tensor& ids, const ShardedTensor& weight,
    const EmbeddingOptions& options = {});

enum class BagMode : uint8_t { kSum, kMean, kMax };
struct EmbeddingBagOptions {
  BagMode mode = BagMode::kMean;
  /// Where each bag of 1-d ids starts.
  at::Tensor offsets = {};
  at::Tensor per_sample_weights = {};
  bool include_last_offset = false;
  std::optional<int64_t> padding_idx = std::nullopt;
  std::optional<double> max_norm = std::nullopt;
  double norm_type = 2;
};
/// Returns one row per bag of this rank's ids: bags are the rows of 2-d ids, or
/// what the offsets say of 1-d ones.
TESSERA_API at::Tensor embedding_bag(
    const at::Tensor& ids, const ShardedTensor& weight,
    const EmbeddingBagOptions& options = {});

}  // namespace tessera::sharded_tensor
