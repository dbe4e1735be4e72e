// Rows of a sharded table.
#include <ATen/ops/embedding.h>
#include <comm/log/call_cause.h>
#include <sharded_tensor/ops/builtin_ops.h>
#include <sharded_tensor/ops/table_lookup.h>
#include <tessera/sharded_tensor/conversion.h>

namespace tessera::sharded_tensor {

at::Tensor embedding(
    const at::Tensor& ids, const ShardedTensor& weight,
    const EmbeddingOptions& options) {
  constexpr const char* kCall = "embedding";
  const detail::CallCause cause(kCall);
  if (auto results = detail::run_user_op(
          "aten::embedding",
          {ids, weight, detail::argument_of(options.padding_idx),
           detail::argument_of(options.max_norm), options.norm_type})) {
    return detail::only_tensor(kCall, *results);
  }
  const detail::TableOptions table{
      options.padding_idx, options.max_norm, options.norm_type};
  auto agreement = detail::begin_agreement(kCall, weight.process_group());
  agreement.check([&] { detail::check_table(kCall, ids, weight, table); });
  detail::agree_on_table(agreement, weight, table);
  const auto counts = detail::unpacked(
      agreement.collect(detail::packed({ids.defined() ? ids.numel() : 0})));

  const DeviceMesh mesh = device_mesh(to_dtensor(weight));
  const detail::RankRows rows(
      mesh.device_type(), weight.process_group(), counts[0]);
  const at::Tensor all = rows.gathered(detail::flat_ids(ids), mesh);
  detail::renormalise(weight, all, table);
  const at::Tensor found = at::embedding(
      to_dtensor(weight), all, detail::padding_row(weight, table));
  std::vector<int64_t> sizes = ids.sizes().vec();
  sizes.push_back(weight.size(1));
  return rows.mine_of(found).reshape(sizes);
}

}  // namespace tessera::sharded_tensor
