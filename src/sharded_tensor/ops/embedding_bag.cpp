// Sums, means and maxima of rows of a sharded table.
#include <ATen/ops/arange.h>
#include <ATen/ops/embedding_bag.h>
#include <c10/util/Exception.h>
#include <comm/log/call_cause.h>
#include <sharded_tensor/ops/builtin_ops.h>
#include <sharded_tensor/ops/table_lookup.h>
#include <tessera/comm/world.h>
#include <tessera/sharded_tensor/conversion.h>

namespace tessera::sharded_tensor {

namespace {

constexpr const char* kCall = "embedding_bag";

// This rank's bags: ids, where each bag starts among them, their weights.
struct Bags {
  at::Tensor ids;
  at::Tensor starts;
  at::Tensor weights;  // may be undefined
};

void check_offsets(const at::Tensor& ids, const EmbeddingBagOptions& options) {
  const at::Tensor& offsets = options.offsets;
  TORCH_CHECK_TYPE(
      c10::isIntegralType(offsets.scalar_type(), false), kCall, ", rank ",
      rank(), ": the offsets must be integers; got ", offsets.scalar_type());
  TORCH_CHECK_VALUE(
      offsets.dim() == 1, kCall, ", rank ", rank(),
      ": the offsets must have 1 dim; got ", offsets.dim());
  const at::Tensor starts = offsets.to(at::kCPU, at::kLong).contiguous();
  const int64_t* start = starts.const_data_ptr<int64_t>();
  const int64_t n = starts.numel();
  TORCH_CHECK_VALUE(
      !options.include_last_offset || (n > 0 && start[n - 1] == ids.numel()),
      kCall, ", rank ", rank(), ": the last offset must be the number of ids, ",
      ids.numel(), "; got ",
      n > 0 ? std::to_string(start[n - 1]) : std::string("none"));
  for (int64_t i = 0; i < n; ++i) {
    const int64_t least = i == 0 ? 0 : start[i - 1];
    const int64_t most = i == 0 ? 0 : ids.numel();
    TORCH_CHECK_VALUE(
        start[i] >= least && start[i] <= most, kCall, ", rank ", rank(),
        ": offsets must start at 0 and not decrease, up to the number of ids, ",
        ids.numel(), "; got ", start[i], " at ", i);
  }
}

void check_weights(
    const at::Tensor& ids, const ShardedTensor& weight,
    const EmbeddingBagOptions& options) {
  const at::Tensor& weights = options.per_sample_weights;
  TORCH_CHECK_VALUE(
      options.mode == BagMode::kSum, kCall, ", rank ", rank(),
      ": per_sample_weights go with mode kSum only");
  TORCH_CHECK_VALUE(
      weights.sizes() == ids.sizes(), kCall, ", rank ", rank(),
      ": there must be one weight per id; got sizes ", weights.sizes(), " for ",
      ids.sizes());
  TORCH_CHECK_TYPE(
      weights.scalar_type() == weight.dtype(), kCall, ", rank ", rank(),
      ": per_sample_weights must have the dtype of the table, ", weight.dtype(),
      "; got ", weights.scalar_type());
}

void check_bags(
    const at::Tensor& ids, const ShardedTensor& weight,
    const EmbeddingBagOptions& options) {
  TORCH_CHECK_VALUE(
      ids.dim() == 1 || ids.dim() == 2, kCall, ", rank ", rank(),
      ": ids must have 1 or 2 dims; got ", ids.dim());
  TORCH_CHECK_VALUE(
      options.offsets.defined() == (ids.dim() == 1), kCall, ", rank ", rank(),
      ids.dim() == 1 ? ": ids of 1 dim need offsets"
                     : ": ids of 2 dims have a bag per row and no offsets");
  TORCH_CHECK_VALUE(
      !options.include_last_offset || ids.dim() == 1, kCall, ", rank ", rank(),
      ": include_last_offset goes with offsets");
  if (options.offsets.defined()) {
    check_offsets(ids, options);
  }
  if (options.per_sample_weights.defined()) {
    check_weights(ids, weight, options);
  }
}

Bags bags_of(const at::Tensor& ids, const EmbeddingBagOptions& options) {
  Bags bags{detail::flat_ids(ids), options.offsets, {}};
  if (options.per_sample_weights.defined()) {
    bags.weights = options.per_sample_weights.reshape(-1);
  }
  if (ids.dim() == 2) {
    bags.starts = at::arange(ids.size(0), bags.ids.options()).mul(ids.size(1));
    return bags;
  }
  bags.starts = bags.starts.to(bags.ids.options());
  if (options.include_last_offset) {
    bags.starts = bags.starts.slice(0, 0, bags.starts.numel() - 1);
  }
  if (bags.starts.numel() == 0) {
    // Ids in no bag; they must not join another rank's last one.
    bags.ids = bags.ids.slice(0, 0, 0);
    bags.weights =
        bags.weights.defined() ? bags.weights.slice(0, 0, 0) : bags.weights;
  }
  return bags;
}

// Bags without ids at the end of one rank's come before the next rank's first
// id, as they should: starts count the ids of all ranks.
at::Tensor look_up(
    const Bags& bags, const ShardedTensor& weight,
    const detail::TableOptions& table, BagMode mode,
    const std::vector<std::vector<int64_t>>& counts) {
  const auto& group = weight.process_group();
  const DeviceMesh mesh = device_mesh(to_dtensor(weight));
  const detail::RankRows id_rows(mesh.device_type(), group, counts[0]);
  const detail::RankRows bag_rows(mesh.device_type(), group, counts[1]);
  const at::Tensor ids = id_rows.gathered(bags.ids, mesh);
  const at::Tensor starts =
      bag_rows.gathered(bags.starts.add(id_rows.before()), mesh);
  std::optional<at::Tensor> weights;
  if (bags.weights.defined()) {
    weights = id_rows.gathered(bags.weights, mesh);
  }
  detail::renormalise(weight, ids, table);
  const int64_t padding = detail::padding_row(weight, table);
  const auto found = at::embedding_bag(
      to_dtensor(weight), ids, starts, /*scale_grad_by_freq=*/false,
      static_cast<int64_t>(mode), /*sparse=*/false, weights,
      /*include_last_offset=*/false,
      padding < 0 ? std::nullopt : std::optional<int64_t>(padding));
  return bag_rows.mine_of(std::get<0>(found));
}

}  // namespace

at::Tensor embedding_bag(
    const at::Tensor& ids, const ShardedTensor& weight,
    const EmbeddingBagOptions& options) {
  const detail::CallCause cause(kCall);
  if (auto results = detail::run_user_op(
          "aten::embedding_bag",
          {ids, weight, static_cast<int64_t>(options.mode), options.offsets,
           options.per_sample_weights, options.include_last_offset,
           detail::argument_of(options.padding_idx),
           detail::argument_of(options.max_norm), options.norm_type})) {
    return detail::only_tensor(kCall, *results);
  }
  const detail::TableOptions table{
      options.padding_idx, options.max_norm, options.norm_type};
  const at::Tensor& weights = options.per_sample_weights;
  auto agreement = detail::begin_agreement(kCall, weight.process_group());
  Bags bags;
  agreement.check([&] {
    detail::check_table(kCall, ids, weight, table);
    check_bags(ids, weight, options);
    bags = bags_of(ids, options);
  });
  detail::agree_on_table(agreement, weight, table);
  agreement.equal("mode", std::to_string(static_cast<int>(options.mode)));
  agreement.equal(
      "per_sample_weights", !weights.defined() ? "none"
                            : weights.requires_grad()
                                ? "some that need a gradient"
                                : "some that need no gradient");
  const auto counts = detail::unpacked(agreement.collect(
      agreement.failed()
          ? ""
          : detail::packed({bags.ids.numel(), bags.starts.numel()})));
  return look_up(bags, weight, table, options.mode, counts);
}

}  // namespace tessera::sharded_tensor
