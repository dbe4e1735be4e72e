// What is kept about calls never answers for another call, and stays bounded.
#include <harness/sharded_test.h>

#include <fstream>
#include <functional>

namespace tessera {
namespace {

using testing::close;
using testing::distinct;
using testing::f64;
using testing::i64;
using testing::mesh_of;
using testing::same;

using Tensors = std::vector<at::Tensor>;
using Scalars = std::vector<at::Scalar>;
using Ints = std::vector<int64_t>;

// The operands of every variant; all of them cut alike, as far as dims go.
struct Data {
  at::Tensor x;       // [4, 6]
  at::Tensor y;       // [4, 6]
  at::Tensor row;     // [6]
  at::Tensor row2;    // [6]
  at::Tensor n;       // i64[4, 6]
  at::Tensor index;   // i64[4, 6], below 4
  at::Tensor rows;    // i64[3], below 4
  at::Tensor image;   // [2, 4, 6, 6]
  at::Tensor kernel;  // [4, 4, 3, 3]
  at::Tensor cube;    // [2, 4, 6]
  at::Tensor square;  // [6, 6]
};

Data plain_data() {
  return {
      distinct({4, 6}),
      distinct({4, 6}).add(0.5),
      distinct({6}).add(1),
      distinct({6}).sub(1),
      at::arange(24, i64()).reshape({4, 6}).sub(7),
      at::arange(24, i64()).reshape({4, 6}).mul(7).remainder(4),
      at::tensor({3, 0, 2}, i64()),
      distinct({2, 4, 6, 6}),
      distinct({4, 4, 3, 3}),
      distinct({2, 4, 6}),
      distinct({6, 6}),
  };
}

at::Tensor cut_as(
    const at::Tensor& t, const DeviceMesh& mesh, const Placement& placement) {
  const bool fits = !(placement.is_shard() && placement.dim() >= t.dim()) &&
                    !(placement.is_partial() && !t.is_floating_point());
  return distribute_tensor(t, mesh, {fits ? placement : Replicate()});
}

Data cut_data(const DeviceMesh& mesh, const Placement& placement) {
  const Data p = plain_data();
  const auto cut = [&](const at::Tensor& t) {
    return cut_as(t, mesh, placement);
  };
  return {
      cut(p.x),
      cut(p.y),
      cut(p.row),
      cut(p.row2),
      cut(p.n),
      cut(p.index),
      cut_as(p.rows, mesh, Replicate()),
      cut(p.image),
      cut(p.kernel),
      cut(p.cube),
      cut(p.square)};
}

using Variant = std::function<Tensors(const Data&)>;
struct Group {
  const char* name;
  std::vector<Variant> variants;
};

#define ONE(...) [](const Data& d) -> Tensors { return {__VA_ARGS__}; }
#define TWO(...)                                   \
  [](const Data& d) -> Tensors {                   \
    const auto both = __VA_ARGS__;                 \
    return {std::get<0>(both), std::get<1>(both)}; \
  }
#define MANY(...) [](const Data& d) -> Tensors { return __VA_ARGS__; }

// Numbers, dtypes of numbers.
std::vector<Group> number_groups() {
  return {
      {"add, alpha",
       {ONE(d.x.add(d.y)), ONE(d.x.add(d.y, 2)), ONE(d.x.add(d.y, -1.5)),
        ONE(d.y.add(d.x, 2)), ONE(d.x.add(d.row, 2)), ONE(d.x.add(3)),
        ONE(d.x.add(4.5)), ONE(d.x.add(3, 2))}},
      {"mul of integers",
       {ONE(d.n.mul(2)), ONE(d.n.mul(3)), ONE(d.n.mul(2.5)), ONE(d.n.mul(true)),
        ONE(d.n.mul(d.n)), ONE(d.n.mul(d.x)),
        ONE(at::real(d.n.mul(c10::complex<double>(1, 2)))),
        ONE(at::imag(d.n.mul(c10::complex<double>(1, 2)))),
        ONE(at::imag(d.n.mul(c10::complex<double>(1, 3))))}},
      {"mul.Scalar of integers",
       {ONE(at::mul(d.n, 2)), ONE(at::mul(d.n, 2.5)), ONE(at::mul(d.n, 7))}},
      {"pow",
       {ONE(d.n.pow(2)), ONE(d.n.pow(3)), ONE(d.n.pow(2.0)), ONE(d.n.pow(0)),
        ONE(at::pow(2, d.n.abs())), ONE(at::pow(2.5, d.n))}},
      {"div",
       {ONE(d.x.div(d.y)), ONE(d.x.div(d.y, "floor")),
        ONE(d.x.div(d.y, "trunc")), ONE(d.x.div(0.3)),
        ONE(d.x.div(0.3, "floor")), ONE(d.n.div(2)), ONE(d.n.div(2, "floor")),
        ONE(d.n.div(2, "trunc"))}},
      {"remainder",
       {ONE(d.n.remainder(3)), ONE(d.n.remainder(4)), ONE(d.n.remainder(2.5)),
        ONE(d.n.fmod(3))}},
      {"clamp",
       {ONE(d.x.clamp(-0.5, std::nullopt)), ONE(d.x.clamp(std::nullopt, 0.5)),
        ONE(d.x.clamp(-0.5, 0.5)), ONE(d.x.clamp(0.5, std::nullopt)),
        ONE(d.n.clamp(-1, 2)), ONE(d.n.clamp(-1, 2.5))}},
      {"clamp.Tensor",
       {ONE(at::clamp(d.x, d.y, {})), ONE(at::clamp(d.x, {}, d.y)),
        ONE(at::clamp(d.x, d.y, d.row)), ONE(at::clamp(d.x, d.row, d.y)),
        ONE(at::clamp(d.x, d.row, {})), ONE(at::clamp(d.x, {}, d.row))}},
      {"activations",
       {ONE(at::gelu(d.x)), ONE(at::gelu(d.x, "tanh")),
        ONE(at::leaky_relu(d.x, 0.1)), ONE(at::leaky_relu(d.x, 0.2)),
        ONE(at::elu(d.x, 1.0)), ONE(at::elu(d.x, 2.0, 1.5)),
        ONE(at::hardtanh(d.x, -0.5, 0.5)), ONE(at::hardtanh(d.x, -0.1, 0.2)),
        ONE(at::softplus(d.x, 1, 20)), ONE(at::softplus(d.x, 2, 0.5)),
        ONE(at::threshold(d.x, 0, 5)), ONE(at::threshold(d.x, 0, -5)),
        ONE(at::threshold(d.x, 0.5, 0))}},
      {"lerp, addcmul",
       {ONE(at::lerp(d.x, d.y, 0.25)), ONE(at::lerp(d.x, d.y, 0.75)),
        ONE(at::addcmul(d.x, d.y, d.row)), ONE(at::addcmul(d.x, d.y, d.row, 3)),
        ONE(at::addcmul(d.x, d.row, d.y, 2)),
        ONE(at::addcdiv(d.x, d.y, d.row, 2))}},
      {"nan_to_num",
       {ONE(d.x.sub(1).log().nan_to_num()),
        ONE(d.x.sub(1).log().nan_to_num(2.0)),
        ONE(d.x.sub(1).log().nan_to_num({}, 2.0)),
        ONE(d.x.sub(1).log().nan_to_num({}, {}, 2.0))}},
      {"masked_fill, where",
       {ONE(d.x.masked_fill(d.y > 0.6, 0)), ONE(d.x.masked_fill(d.y > 0.6, 2)),
        ONE(at::where(d.y > 0.6, d.x, 3)), ONE(at::where(d.y > 0.6, d.x, 4)),
        ONE(at::where(d.y > 0.6, 3, d.x))}},
      {"rsub",
       {ONE(at::rsub(d.x, 1)), ONE(at::rsub(d.x, 1, 2)),
        ONE(at::rsub(d.x, d.y, 2)), ONE(at::rsub(d.n, 1.5))}},
      {"comparison",
       {ONE(d.x.gt(0)), ONE(d.x.gt(0.5)), ONE(d.n.eq(0)), ONE(d.n.eq(1))}},
      {"foreach",
       {MANY(at::_foreach_add({d.x, d.row}, 2)),
        MANY(at::_foreach_add({d.x, d.row}, 3)),
        MANY(at::_foreach_add({d.row, d.x}, 3)),
        MANY(at::_foreach_add({d.x}, 3)),
        MANY(at::_foreach_add({d.x, d.y}, {d.y, d.x}, 3)),
        MANY(at::_foreach_add({d.x, d.y}, {d.y, d.x}, 4)),
        MANY(at::_foreach_mul({d.x, d.row}, Scalars{2.0, 3.0})),
        MANY(at::_foreach_mul({d.x, d.row}, Scalars{3.0, 2.0})),
        MANY(at::_foreach_norm({d.x, d.row}, 1)),
        MANY(at::_foreach_norm({d.x, d.row}, 2))}},
  };
}

// Dims, lists of dims, flags, dtypes of results.
std::vector<Group> dim_groups() {
  return {
      {"sum",
       {ONE(d.x.sum()), ONE(d.x.sum(0)), ONE(d.x.sum(1)), ONE(d.x.sum(-1)),
        ONE(d.x.sum(at::IntArrayRef{0, 1})), ONE(d.x.sum(0, true)),
        ONE(d.x.sum(at::IntArrayRef{}, true)),
        ONE(d.x.sum(0, false, at::kFloat)), ONE(d.n.sum(0)),
        ONE(d.n.sum(0, false, at::kDouble))}},
      {"mean, var",
       {ONE(d.x.mean(0)), ONE(d.x.mean(1)), ONE(d.x.mean(1, true)),
        ONE(d.x.mean(0, false, at::kFloat)), ONE(d.x.var(0)),
        ONE(d.x.var(0, false)), ONE(d.x.var(at::IntArrayRef{0}, 0)),
        ONE(d.x.var(at::IntArrayRef{0}, 2)), ONE(d.x.std(1)),
        ONE(d.x.var(at::IntArrayRef{0}, 0, true))}},
      {"prod, amax, any",
       {ONE(d.x.prod(0)), ONE(d.x.prod(1)), ONE(d.x.prod(1, true)),
        ONE(d.x.prod()), ONE(d.x.amax(0)), ONE(d.x.amax(1)), ONE(d.x.amin(0)),
        ONE(d.n.any(0)), ONE(d.n.any(1)), ONE(d.n.all(0)), ONE(d.n.all())}},
      {"norm",
       {ONE(at::linalg_vector_norm(d.x, 2, 0)),
        ONE(at::linalg_vector_norm(d.x, 1, 0)),
        ONE(at::linalg_vector_norm(d.x, 0, 0)),
        ONE(at::linalg_vector_norm(d.x, INFINITY, 0)),
        ONE(at::linalg_vector_norm(d.x, -INFINITY, 0)),
        ONE(at::linalg_vector_norm(d.x, 3, 1)),
        ONE(at::linalg_vector_norm(d.x, 3, 1, true)),
        ONE(at::linalg_vector_norm(
            d.x.to(at::kFloat), 2, 0, false, at::kDouble)),
        ONE(d.x.norm(1)), ONE(d.x.norm(2))}},
      {"max with indices",
       {TWO(d.x.max(0)), TWO(d.x.max(1)), TWO(d.x.max(1, true)),
        TWO(d.x.min(0)), ONE(d.x.argmax()), ONE(d.x.argmax(0)),
        ONE(d.x.argmax(1, true)), ONE(d.x.argmin(1))}},
      {"softmax",
       {ONE(d.x.softmax(0)), ONE(d.x.softmax(1)), ONE(d.x.softmax(-2)),
        ONE(d.x.log_softmax(0)), ONE(d.x.log_softmax(1)), ONE(d.x.logsumexp(0)),
        ONE(d.x.logsumexp(1, true))}},
      {"scans",
       {ONE(d.x.cumsum(0)), ONE(d.x.cumsum(1)), ONE(d.n.cumsum(0)),
        ONE(d.n.cumsum(0, at::kDouble)), ONE(d.x.cumprod(0)),
        ONE(d.x.cumprod(1)), TWO(d.x.cummax(0)), TWO(d.x.cummax(1))}},
      {"sort, topk",
       {TWO(d.x.sort(0)), TWO(d.x.sort(1)), TWO(d.x.sort(0, true)),
        TWO(at::sort(d.x, true, 1, true)), TWO(d.x.topk(2, 0)),
        TWO(d.x.topk(3, 0)), TWO(d.x.topk(2, 1)), TWO(d.x.topk(2, 1, false)),
        TWO(d.x.kthvalue(2, 0)), TWO(d.x.kthvalue(3, 0))}},
      {"quantile",
       {ONE(at::quantile(d.x, 0.3, 0)), ONE(at::quantile(d.x, 0.6, 0)),
        ONE(at::quantile(d.x, 0.3, 0, false, "lower")),
        ONE(at::quantile(d.x, 0.3, 0, false, "higher")),
        ONE(at::quantile(d.x, 0.3, 1, true))}},
      {"views",
       {ONE(d.x.view({24})), ONE(d.x.view({2, 12})), ONE(d.x.view({6, 4})),
        ONE(d.x.view({4, 2, 3})), ONE(d.x.reshape({4, 3, 2})),
        ONE(d.x.transpose(0, 1)), ONE(d.cube.permute({2, 0, 1})),
        ONE(d.cube.permute({1, 2, 0})), ONE(d.x.unsqueeze(0)),
        ONE(d.x.unsqueeze(1)), ONE(d.x.unsqueeze(-1)),
        ONE(d.x.expand({3, 4, 6})), ONE(d.x.expand({2, 4, 6})),
        ONE(d.cube.flatten(0, 1)), ONE(d.cube.flatten(1, 2))}},
      {"parts",
       {ONE(d.x.slice(0, 0, 2)),
        ONE(d.x.slice(0, 1, 3)),
        ONE(d.x.slice(1, 1, 3)),
        ONE(d.x.slice(1, 0, 6, 2)),
        ONE(d.x.slice(0, 1)),
        ONE(d.x.select(0, 1)),
        ONE(d.x.select(0, 2)),
        ONE(d.x.select(1, 2)),
        MANY(d.x.split(2, 0)),
        MANY(d.x.split(3, 0)),
        MANY(d.x.split(2, 1)),
        MANY(d.x.chunk(2, 1)),
        MANY(d.x.chunk(3, 1)),
        MANY(d.x.split_with_sizes({1, 3}, 0)),
        MANY(d.x.split_with_sizes({3, 1}, 0)),
        MANY(d.x.unbind(0)),
        MANY(d.x.unbind(1)),
        ONE(d.x.unfold(0, 2, 1)),
        ONE(d.x.unfold(0, 2, 2)),
        ONE(d.x.unfold(1, 2, 1))}},
      {"flip, roll, repeat",
       {ONE(d.x.flip(0)), ONE(d.x.flip(1)), ONE(d.x.flip({0, 1})),
        ONE(d.x.roll(1, 0)), ONE(d.x.roll(2, 0)), ONE(d.x.roll(1, 1)),
        ONE(d.x.roll(1)), ONE(d.x.repeat({1, 2})), ONE(d.x.repeat({2, 1})),
        ONE(d.x.repeat_interleave(2, 0)), ONE(d.x.repeat_interleave(2, 1))}},
      {"cat, stack",
       {ONE(at::cat({d.x, d.y}, 0)), ONE(at::cat({d.y, d.x}, 0)),
        ONE(at::cat({d.x, d.y}, 1)), ONE(at::cat({d.x, d.y, d.x}, 1)),
        ONE(at::cat({d.x}, 1)), ONE(at::stack({d.x, d.y}, 0)),
        ONE(at::stack({d.x, d.y}, 1)), ONE(at::stack({d.x, d.y}, 2))}},
      {"tril, diagonal",
       {ONE(d.x.tril()), ONE(d.x.tril(1)), ONE(d.x.tril(-1)), ONE(d.x.triu()),
        ONE(d.x.diagonal()), ONE(d.x.diagonal(1)),
        ONE(d.cube.diagonal(0, 0, 1)), ONE(d.cube.diagonal(0, 1, 2)),
        ONE(at::diag_embed(d.row)), ONE(at::diag_embed(d.row, 1))}},
      {"pad",
       {ONE(at::constant_pad_nd(d.x, {1, 2}, 0)),
        ONE(at::constant_pad_nd(d.x, {1, 2}, 3)),
        ONE(at::constant_pad_nd(d.x, {2, 1}, 0)),
        ONE(at::constant_pad_nd(d.x, {0, 0, 1, 2}, 0)),
        ONE(at::pad(d.cube, {1, 2}, "reflect")),
        ONE(at::pad(d.cube, {1, 2}, "replicate")),
        ONE(at::pad(d.cube, {1, 2}, "circular"))}},
      {"matrices",
       {ONE(at::addmm(d.row, d.x, d.square)),
        ONE(at::addmm(d.row, d.x, d.square, 2)),
        ONE(at::addmm(d.row, d.x, d.square, 1, 3)),
        ONE(at::addmm(d.x, d.x, d.square)), ONE(at::mm(d.x, d.square)),
        ONE(at::einsum("ij,kj->ik", {d.x, d.y})),
        ONE(at::einsum("ij,kj->ki", {d.x, d.y})),
        ONE(at::einsum("ij,ij->j", {d.x, d.y})),
        ONE(at::tensordot(d.x, d.y, {0}, {0})),
        ONE(at::tensordot(d.x, d.y, {1}, {1})),
        ONE(at::tensordot(d.x, d.y, {0, 1}, {0, 1}))}},
  };
}

// Indices, None between tensors, strings, memory formats, dtypes.
std::vector<Group> other_groups() {
  return {
      {"index",
       {ONE(d.x.index({d.rows})), ONE(d.x.index({{}, d.rows})),
        ONE(d.x.index({d.rows, d.rows})), ONE(d.cube.index({{}, d.rows})),
        ONE(d.cube.index({{}, {}, d.rows})),
        ONE(d.cube.index({{}, d.rows, d.rows})),
        ONE(d.cube.transpose(0, 1).index({d.rows, {}, d.rows})),
        ONE(d.x.index_select(0, d.rows)), ONE(d.x.index_select(1, d.rows))}},
      {"index_put, index_add",
       {ONE(d.x.index_put({d.rows}, d.row)),
        ONE(d.x.index_put({d.rows}, d.row, true)),
        ONE(d.x.index_put({{}, d.rows}, d.x.slice(1, 0, 3))),
        ONE(d.x.index_add(0, d.rows, d.y.slice(0, 0, 3))),
        ONE(d.x.index_add(0, d.rows, d.y.slice(0, 0, 3), 2)),
        ONE(d.x.index_add(1, d.rows, d.y.slice(1, 0, 3))),
        ONE(d.x.index_fill(0, d.rows, 2)), ONE(d.x.index_fill(0, d.rows, 0)),
        ONE(d.x.index_fill(1, d.rows, 2))}},
      {"gather, scatter",
       {ONE(d.x.gather(0, d.index)), ONE(d.x.gather(1, d.index)),
        ONE(d.x.scatter(0, d.index.slice(0, 0, 1), 2)),
        ONE(d.x.scatter(0, d.index.slice(0, 0, 1), 3)),
        ONE(d.x.scatter(0, d.index, 2, "add")),
        ONE(d.x.scatter(0, d.index, 2, "multiply")),
        ONE(d.x.scatter_add(0, d.index, d.y)),
        ONE(d.x.scatter_add(1, d.index, d.y)),
        ONE(d.x.scatter_reduce(0, d.index, d.y, "sum")),
        ONE(d.x.scatter_reduce(0, d.index, d.y, "amax")),
        ONE(d.x.scatter_reduce(0, d.index, d.y, "amax", false)),
        ONE(d.x.scatter_reduce(0, d.index, d.y, "mean"))}},
      {"bucketize",
       {ONE(at::bucketize(d.x, std::get<0>(d.row.sort()))),
        ONE(at::bucketize(d.x, std::get<0>(d.row.sort()), true)),
        ONE(at::bucketize(d.x, std::get<0>(d.row.sort()), false, true)),
        ONE(at::searchsorted(
            std::get<0>(d.row.sort()), d.x, false, false, "right"))}},
      {"casts",
       {ONE(d.x.to(at::kFloat)), ONE(d.x.to(at::kLong)), ONE(d.x.to(at::kBool)),
        ONE(d.x.to(at::kBFloat16)), ONE(d.n.to(at::kDouble)),
        ONE(d.n.to(at::kInt))}},
      {"likes",
       {ONE(at::zeros_like(d.x)), ONE(at::zeros_like(d.x, at::kFloat)),
        ONE(at::full_like(d.x, 2)), ONE(at::full_like(d.x, 3)),
        ONE(at::ones_like(d.n)), ONE(at::ones_like(d.n, at::kDouble)),
        ONE(d.x.new_zeros({4, 6})), ONE(d.x.new_zeros({6, 4})),
        ONE(d.x.new_full({4, 6}, 2)), ONE(d.x.new_full({4, 6}, 3)),
        ONE(d.x.new_ones({3}, at::TensorOptions(at::kFloat)))}},
      {"memory formats",
       {ONE(d.image.clone()),
        ONE(d.image.clone(at::MemoryFormat::ChannelsLast)),
        ONE(d.image.clone(at::MemoryFormat::Contiguous)),
        ONE(d.image.contiguous(at::MemoryFormat::ChannelsLast)),
        ONE(d.image.contiguous()),
        ONE(d.image.to(
            at::kFloat, false, false, at::MemoryFormat::ChannelsLast)),
        ONE(d.image.to(at::kFloat)),
        ONE(at::zeros_like(d.image, {}, at::MemoryFormat::ChannelsLast)),
        ONE(at::zeros_like(d.image)),
        ONE(d.image.contiguous(at::MemoryFormat::ChannelsLast).relu()),
        ONE(d.image.relu()),
        ONE(d.image.contiguous(at::MemoryFormat::ChannelsLast).clone())}},
      {"layer_norm",
       {ONE(at::layer_norm(d.x, {6}, d.row, {})),
        ONE(at::layer_norm(d.x, {6}, {}, d.row)),
        ONE(at::layer_norm(d.x, {6}, d.row, d.row2)),
        ONE(at::layer_norm(d.x, {6}, d.row2, d.row)),
        ONE(at::layer_norm(d.x, {6}, {}, {}, 0.1)),
        ONE(at::layer_norm(d.x, {6})), ONE(at::layer_norm(d.x, {4, 6})),
        ONE(at::layer_norm(d.cube, {4, 6})), ONE(at::layer_norm(d.cube, {6}))}},
      {"group_norm",
       {ONE(at::group_norm(d.image, 2)), ONE(at::group_norm(d.image, 4)),
        ONE(at::group_norm(d.image, 1)),
        ONE(at::group_norm(d.image, 2, {}, {}, 0.1))}},
      {"conv2d",
       {ONE(at::conv2d(d.image, d.kernel)),
        ONE(at::conv2d(d.image, d.kernel, {}, 2)),
        ONE(at::conv2d(d.image, d.kernel, {}, 1, 1)),
        ONE(at::conv2d(d.image, d.kernel, {}, 1, 1, 2)),
        ONE(at::conv2d(d.image, d.kernel.slice(1, 0, 2), {}, 1, 1, 1, 2)),
        ONE(at::conv2d(d.image, d.kernel.slice(1, 0, 1), {}, 1, 1, 1, 4)),
        ONE(at::conv2d(d.image, d.kernel, {}, Ints{1, 2}, Ints{0, 1})),
        ONE(at::conv2d(d.image, d.kernel, {}, Ints{2, 1}, Ints{1, 0})),
        ONE(at::conv_transpose2d(d.image, d.kernel)),
        ONE(at::conv_transpose2d(d.image, d.kernel, {}, 2)),
        ONE(at::conv_transpose2d(d.image, d.kernel, {}, 2, 1, 1))}},
      {"pools",
       {ONE(at::max_pool2d(d.image, 2)), ONE(at::max_pool2d(d.image, 3)),
        ONE(at::max_pool2d(d.image, 3, 1)),
        ONE(at::max_pool2d(d.image, 3, 1, 1)), ONE(at::avg_pool2d(d.image, 4)),
        ONE(at::avg_pool2d(d.image, 4, {}, 1)),
        ONE(at::avg_pool2d(d.image, 4, {}, 1, true)),
        ONE(at::avg_pool2d(d.image, 4, {}, 1, false, false)),
        ONE(at::avg_pool2d(d.image, 4, {}, 1, false, true, 3)),
        ONE(at::adaptive_avg_pool2d(d.image, {1, 1})),
        ONE(at::adaptive_avg_pool2d(d.image, {2, 3})),
        ONE(at::upsample_nearest2d(d.image, {12, 12})),
        ONE(at::upsample_bilinear2d(d.image, {12, 12}, true)),
        ONE(at::upsample_bilinear2d(d.image, {12, 12}, false))}},
      {"embedding",
       {ONE(at::embedding(d.x, d.index)), ONE(at::embedding(d.x, d.rows)),
        ONE(at::embedding(d.y, d.rows)),
        ONE(at::embedding_dense_backward(
            d.x.slice(0, 0, 3), d.rows, 4, -1, false)),
        ONE(at::embedding_dense_backward(
            d.x.slice(0, 0, 3), d.rows, 5, -1, false)),
        ONE(at::embedding_dense_backward(
            d.x.slice(0, 0, 3), d.rows, 4, 2, false)),
        ONE(at::embedding_dense_backward(
            d.x.slice(0, 0, 3), d.rows, 4, -1, true))}},
      {"losses",
       {ONE(at::cross_entropy_loss(d.x, d.index.select(1, 1))),
        ONE(at::cross_entropy_loss(d.x, d.index.select(1, 1), d.row.abs())),
        ONE(at::cross_entropy_loss(d.x, d.index.select(1, 1), {}, 0)),
        ONE(at::cross_entropy_loss(d.x, d.index.select(1, 1), {}, 2)),
        ONE(at::cross_entropy_loss(d.x, d.index.select(1, 1), {}, 2, 3)),
        ONE(at::cross_entropy_loss(
            d.x, d.index.select(1, 1), {}, 1, -100, 0.2)),
        ONE(at::mse_loss(d.x, d.y)), ONE(at::mse_loss(d.x, d.y, 2)),
        ONE(at::mse_loss(d.x, d.y, 0)), ONE(at::huber_loss(d.x, d.y, 1, 0.1)),
        ONE(at::huber_loss(d.x, d.y, 1, 0.5)),
        ONE(at::smooth_l1_loss(d.x, d.y, 2, 0.1)),
        ONE(at::smooth_l1_loss(d.x, d.y, 2, 0.7))}},
      {"fft",
       {ONE(at::fft_fft(d.x).abs()),
        ONE(at::fft_fft(d.x, {}, 0).abs().contiguous()),
        ONE(at::fft_fft(d.x, 4).abs()),
        ONE(at::fft_fft(d.x, {}, -1, "ortho").abs()),
        ONE(at::fft_fft(d.x, {}, -1, "forward").abs()),
        ONE(at::fft_ifft(d.x).abs())}},
      {"attention",
       {ONE(at::scaled_dot_product_attention(d.image, d.image, d.image)),
        ONE(at::scaled_dot_product_attention(
            d.image, d.image, d.image, {}, 0, true)),
        ONE(at::scaled_dot_product_attention(
            d.image, d.image, d.image, {}, 0, false, 0.1)),
        ONE(at::scaled_dot_product_attention(
            d.image, d.image, d.image, d.square)),
        ONE(at::scaled_dot_product_attention(
            d.image, d.image, d.image, d.square.mul(2)))}},
  };
}

void expect_variant(
    const Group& group, size_t i, const Data& cut, const Data& plain) {
  const Tensors got = group.variants[i](cut);
  const Tensors want = group.variants[i](plain);
  ASSERT_EQ(got.size(), want.size());
  for (size_t k = 0; k < got.size(); ++k) {
    const double tolerance = want[k].scalar_type() == at::kFloat ? 1e-5 : 1e-9;
    ASSERT_TRUE(close(got[k], want[k], tolerance))
        << group.name << ", variant " << i;
    ASSERT_EQ(got[k].strides(), want[k].strides())
        << group.name << ", variant " << i << ", " << to_string(spec(got[k]));
  }
}

// Every variant after every other one, and after itself.
void expect_no_wrong_answer(const std::vector<Group>& groups) {
  run_ranks(2, [&] {
    const auto mesh = mesh_of({2});
    const Data plain = plain_data();
    for (const Placement& placement :
         {Shard(0), Shard(1), Partial(), Replicate()}) {
      const Data cut = cut_data(mesh, placement);
      for (const Group& group : groups) {
        SCOPED_TRACE(std::string(group.name) + " " + to_string(placement));
        for (size_t i = 0; i < group.variants.size(); ++i) {
          for (size_t j = 0; j <= i; ++j) {
            expect_variant(group, i, cut, plain);
            expect_variant(group, j, cut, plain);
          }
        }
      }
    }
  });
}

TEST(DecisionCache, KnowsNumbersApart) {
  expect_no_wrong_answer(number_groups());
}
TEST(DecisionCache, KnowsDimsAndFlagsApart) {
  expect_no_wrong_answer(dim_groups());
}
TEST(DecisionCache, KnowsNoneStringsFormatsAndDtypesApart) {
  expect_no_wrong_answer(other_groups());
}

TEST(DecisionCache, KnowsLayoutsApart) {
  run_ranks(4, [&] {
    const auto mesh = mesh_of({2, 2});
    const auto value = distinct({4, 6});
    const auto want = value.mm(distinct({6, 4})).softmax(1);
    std::vector<at::Tensor> all;
    for (const char* text :
         {"S(0) R", "R S(0)", "S(0) S(0)", "S(0)[1] S(0)[0]", "S(0) S(1)",
          "S(1) S(0)", "SS(0,2) R", "P(sum) R", "R P(sum)", "P(max) S(0)",
          "P(avg) S(0)", "R R"}) {
      all.push_back(distribute_tensor(value, mesh, parse_placements(text)));
    }
    // The same layout with other strides.
    all.push_back(distribute_tensor(
        value.t().contiguous().t(), mesh, parse_placements("S(0) R")));
    const auto w =
        distribute_tensor(distinct({6, 4}), mesh, {Replicate(), Replicate()});
    for (int round = 0; round < 3; ++round) {
      for (const at::Tensor& t : all) {
        EXPECT_TRUE(close(t.mm(w).softmax(1), want));
        EXPECT_TRUE(close(t.exp(), value.exp()));
        EXPECT_EQ(t.exp().strides(), t.strides()) << to_string(spec(t));
      }
    }
  });
}

// --- growth

int64_t resident_kilobytes() {
  std::ifstream file("/proc/self/status");
  std::string word;
  int64_t value = 0;
  while (file >> word) {
    if (word == "VmRSS:" && file >> value) {
      return value;
    }
  }
  return 0;
}

struct Figures {
  size_t decisions = 0;
  size_t plans = 0;
  size_t specs = 0;
  int64_t kilobytes = 0;
};

// Of rank 0, while nothing moves anywhere.
Figures figures() {
  init().communicator().barrier();
  const Figures now{
      cached_decision_count(), cached_plan_count(), DTensorSpec::live_count(),
      resident_kilobytes()};
  init().communicator().barrier();
  return now;
}

// A step of a decoder whose sequence is `length` long: forward and backward.
at::Tensor decode(
    int64_t length, const DeviceMesh& mesh, const at::Tensor& weight) {
  auto x = testing::distinct({length, 4});
  auto cut =
      distribute_tensor(x, mesh, {Shard(0)}, {.src_data_rank = std::nullopt});
  cut.set_requires_grad(true);
  const auto scores = cut.mm(weight).softmax(1).mul(cut);
  scores.sum().backward();
  return cut.grad();
}

at::Tensor decode_plain(int64_t length) {
  auto x = testing::distinct({length, 4}).requires_grad_();
  x.mm(distinct({4, 4})).softmax(1).mul(x).sum().backward();
  return x.grad();
}

// Plans are dropped together when there are 1024, so that specs rise and fall;
// what counts is how high. Each of these lengths has a plan of its own.
constexpr int64_t kLengths = 1'200;

// The most of each in a run over lengths after `from`.
Figures most_over(
    int64_t from, const DeviceMesh& mesh, const at::Tensor& weight) {
  Figures most;
  for (int64_t length = from + 1; length <= from + kLengths; ++length) {
    const at::Tensor got = decode(length, mesh, weight);
    if (length % 50 == 1) {
      EXPECT_TRUE(close(got, decode_plain(length))) << length;
    }
    if (length % 10 == 0) {
      const Figures now = figures();
      most.decisions = std::max(most.decisions, now.decisions);
      most.plans = std::max(most.plans, now.plans);
      most.specs = std::max(most.specs, now.specs);
    }
  }
  return most;
}

TEST(DecisionCache, StaysBoundedOverThousandsOfLengths) {
  const size_t before = DTensorSpec::live_count();
  run_ranks(2, [&] {
    const auto mesh = mesh_of({2});
    const auto weight =
        distribute_tensor(distinct({4, 4}), mesh, {Replicate()});
    const Figures first = most_over(0, mesh, weight);
    const Figures second = most_over(kLengths, mesh, weight);
    EXPECT_LE(second.decisions, 2048U);
    EXPECT_LE(second.plans, 1024U);
    EXPECT_LE(second.specs, first.specs + first.specs / 10);
    if (rank() == 0) {
      std::cout << "at most: decisions " << first.decisions << ", then "
                << second.decisions << "; plans " << first.plans << ", then "
                << second.plans << "; specs " << first.specs << ", then "
                << second.specs << '\n';
    }
    // Old and new lengths, met again, are right.
    for (const int64_t length : {7, 2400, 1200, 7}) {
      ASSERT_TRUE(close(decode(length, mesh, weight), decode_plain(length)));
    }
  });
  EXPECT_LE(DTensorSpec::live_count(), before) << "threads take theirs along";
}

#if defined(__SANITIZE_ADDRESS__) || defined(__SANITIZE_THREAD__)
constexpr int64_t kRepeats = 5'000;
#else
constexpr int64_t kRepeats = 100'000;
#endif

TEST(DecisionCache, GrowsNothingOverManyRepeatsOfAStep) {
  run_ranks(2, [&] {
    const auto mesh = mesh_of({2});
    const auto x = distribute_tensor(distinct({4, 4}), mesh, {Shard(0)});
    auto w = distribute_tensor(distinct({4, 4}), mesh, {Replicate()});
    auto state = zeros({4, 4}, mesh, {Shard(0)}, f64());
    // Scalars that differ at every step, as rates and corrections do.
    const auto step = [&](int64_t i) {
      const at::Tensor y = x.mm(w).relu();
      state.mul_(0.5).add_(y, 1.0 / static_cast<double>(i + 1));
      state.addcdiv_(y, y.abs().add(1.0 + 1e-6 * static_cast<double>(i)), 1e-3);
    };
    for (int64_t i = 0; i < kRepeats / 10; ++i) {
      step(i);
    }
    const Figures early = figures();
    for (int64_t i = kRepeats / 10; i < kRepeats; ++i) {
      step(i);
    }
    const Figures late = figures();
    EXPECT_EQ(late.decisions, early.decisions);
    EXPECT_EQ(late.plans, early.plans);
    EXPECT_EQ(late.specs, early.specs);
    EXPECT_LE(late.kilobytes, early.kilobytes + 2048);
  });
}

}  // namespace
}  // namespace tessera
