// What is kept about a call never answers for one with other indices, strings,
// formats or dtypes, or with None in another place.
#include <tensor/fast/decision_cache/call_variants.h>

namespace tessera {
namespace {

using testing::expect_no_wrong_answer;
using testing::Group;
using testing::Ints;

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

TEST(DecisionCache, KnowsNoneStringsFormatsAndDtypesApart) {
  expect_no_wrong_answer(other_groups());
}

}  // namespace
}  // namespace tessera
