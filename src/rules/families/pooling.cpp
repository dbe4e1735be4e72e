// Pooling, interpolation, padding by neighbours and their backward forms. All
// work on the last dims of each image, so batch and channels can be cut.
#include <rules/all_rules.h>
#include <rules/families/rows_of_dims.h>

namespace tessera::detail::inline rules_layer {

namespace {

std::string numbered(std::string_view name, int64_t spatial_dims) {
  std::string text = "aten::" + std::string(name);
  const size_t at = text.find('#');
  return text.replace(at, 1, std::to_string(spatial_dims));
}

RuleGroup add_pools(RuleTable& t, const char* name, int64_t spatial_dims) {
  return t.leading({numbered(name, spatial_dims)}, spatial_dims)
      .not_empty()
      .channels_last();
}

// Averages of integers are rounded, so that those of partial values do not add
// up.
void add_linear_if_floating(const RuleCall& call, Rows& rows) {
  if (!c10::isFloatingType(call.self().dtype)) {
    return;
  }
  for (const ReduceOp op : {ReduceOp::kSum, ReduceOp::kAvg}) {
    // A second operand lends its shape alone.
    Cells operands(call.operands().size(), Cell());
    operands[0] = Cell::partial(op);
    rows.add(Cells{Cell::partial(op)}, std::move(operands));
  }
}

void add_average_pools(RuleTable& t) {
  for (const int64_t k : {2, 3}) {
    for (const char* name :
         {"avg_pool#d", "_adaptive_avg_pool#d", "avg_pool#d_backward",
          "_adaptive_avg_pool#d_backward"}) {
      add_pools(t, name, k).also(add_linear_if_floating);
    }
  }
}

void add_max_pools(RuleTable& t) {
  for (const int64_t k : {2, 3}) {
    add_pools(t, "max_pool#d_with_indices", k);
    add_pools(t, "max_pool#d_with_indices_backward", k).also("sum,avg: PRR->P");
    add_pools(t, "adaptive_max_pool#d", k);
    add_pools(t, "adaptive_max_pool#d_backward", k).also("sum,avg: PRR->P");
    add_pools(t, "fractional_max_pool#d_backward", k).also("sum,avg: PRR->P");
    add_pools(t, "max_unpool#d", k).also(std::string(kEveryReduceOp) + "PR->P");
  }
  add_pools(t, "max_pool#d_backward", 2).also("sum,avg: PR->P");
}

// Random samples are [batch, channels, spatial dims].
void fractional_rows(const RuleCall& call, Rows& rows) {
  const int64_t spatial_dims = call.operand(1).shape.back();
  if (call.self().ndim() == spatial_dims + 2) {
    for (const int64_t d : {0, 1}) {
      rows.add(Cells(2, Cell::shard(d)), Cells(2, Cell::shard(d)));
    }
  }
}

void add_upsampling(RuleTable& t, const char* name, int64_t spatial_dims) {
  add_pools(t, name, spatial_dims).also("sum,avg: P->P");
  add_pools(t, (std::string(name) + "_backward").c_str(), spatial_dims)
      .shape_argument("input_size")
      .also("sum,avg: P->P");
}

void add_interpolation(RuleTable& t) {
  for (const int64_t k : {1, 2, 3}) {
    add_upsampling(t, "upsample_nearest#d", k);
    add_upsampling(t, "_upsample_nearest_exact#d", k);
  }
  add_upsampling(t, "upsample_linear#d", 1);
  add_upsampling(t, "upsample_trilinear#d", 3);
  for (const char* name :
       {"upsample_bilinear#d", "upsample_bicubic#d", "_upsample_bilinear#d_aa",
        "_upsample_bicubic#d_aa", "_upsample_lanczos#d_aa"}) {
    add_upsampling(t, name, 2);
  }
}

void add_padding(RuleTable& t) {
  for (const int64_t k : {1, 2, 3}) {
    for (const char* name : {"reflection_pad#d", "replication_pad#d"}) {
      add_pools(t, name, k).also(std::string(kEveryReduceOp) + "P->P");
      add_pools(t, (std::string(name) + "_backward").c_str(), k)
          .also("sum,avg: PR->P");
    }
  }
}

// All channels of an image are sampled at the same places, so the gradient of
// the places is a sum over channels.
void sampler_rows(const RuleCall&, Rows& rows) {
  rows.add({Cell::shard(0)}, {Cell::shard(0), Cell::shard(0)});
  rows.add({Cell::shard(1)}, {Cell::shard(1), kR});
}

void sampler_backward_rows(const RuleCall& call, Rows& rows) {
  // cudnn passes (input, grid, gradient), others (gradient, input, grid).
  const bool grid_last = call.schema().arguments()[0].name() == "grad_output";
  const auto row = [&](Cells outputs, Cell gradient, Cell input, Cell grid) {
    rows.add(
        std::move(outputs), grid_last ? Cells{gradient, input, grid}
                                      : Cells{input, grid, gradient});
  };
  const Cell batch = Cell::shard(0), channels = Cell::shard(1);
  row({batch, batch}, batch, batch, batch);
  row({channels, Cell::partial(ReduceOp::kSum)}, channels, channels, kR);
  for (const ReduceOp op : {ReduceOp::kSum, ReduceOp::kAvg}) {
    row(Cells(2, Cell::partial(op)), Cell::partial(op), kR, kR);
  }
}

void add_samplers(RuleTable& t) {
  t.rows(
       Names{
           "aten::grid_sampler_2d", "aten::grid_sampler_3d",
           "aten::_grid_sampler_2d_cpu_fallback", "aten::cudnn_grid_sampler"},
       sampler_rows)
      .not_empty()
      .also("sum,avg: PR->P");
  t.rows(
       Names{
           "aten::grid_sampler_2d_backward", "aten::grid_sampler_3d_backward",
           "aten::_grid_sampler_2d_cpu_fallback_backward",
           "aten::cudnn_grid_sampler_backward"},
       sampler_backward_rows)
      .not_empty();
}

// Channels change places.
void channel_shuffle_rows(const RuleCall& call, Rows& rows) {
  for (int64_t d = 0; d < call.self().ndim(); ++d) {
    if (d != 1) {
      rows.add({Cell::shard(d)}, {Cell::shard(d)});
    }
  }
}

void add_shuffles(RuleTable& t) {
  const std::string all = kEveryReduceOp;
  t.leading({"aten::pixel_shuffle", "aten::pixel_unshuffle"}, 3)
      .not_empty()
      .also(all + "P->P");
  t.rows("aten::channel_shuffle", channel_shuffle_rows)
      .not_empty()
      .also(all + "P->P");
  // Windows as columns; padding gives zeros.
  t.leading({"aten::im2col"}, 3).not_empty().also(all + "P->P");
  t.leading({"aten::col2im"}, 2).not_empty().also("sum,avg: P->P");
}

}  // namespace

void add_pooling_rules(RuleTable& t) {
  add_average_pools(t);
  add_max_pools(t);
  t.rows(
       Names{"aten::fractional_max_pool2d", "aten::fractional_max_pool3d"},
       fractional_rows)
      .not_empty();
  add_interpolation(t);
  add_padding(t);
  add_samplers(t);
  add_shuffles(t);
}

}  // namespace tessera::detail::inline rules_layer
