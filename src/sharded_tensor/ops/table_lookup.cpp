#include <base/copy_bytes.h>
#include <sharded_tensor/ops/table_lookup.h>

#include <cstring>
#include <sstream>

#include <ATen/core/grad_mode.h>
#include <ATen/ops/embedding_renorm.h>
#include <c10/util/Exception.h>
#include <c10/util/accumulate.h>
#include <sharded_tensor/ops/builtin_ops.h>
#include <tessera/comm/world.h>
#include <tessera/sharded_tensor/conversion.h>

namespace tessera::detail::inline sharded_tensor_layer {

using sharded_tensor::ProcessGroup;
using sharded_tensor::ShardedTensor;
using sharded_tensor::Value;

RankRows::RankRows(
    c10::DeviceType device_type, const ProcessGroup& group,
    std::vector<int64_t> counts)
    : mesh_(group_mesh(device_type, group)),
      counts_(std::move(counts)),
      group_rank_(group.rank()) {}

int64_t RankRows::total() const {
  return c10::sum_integers(counts_);
}

int64_t RankRows::before() const {
  return c10::sum_integers(
      counts_.begin(),
      counts_.begin() + static_cast<std::ptrdiff_t>(group_rank_));
}

at::Tensor RankRows::gathered(
    const at::Tensor& mine, const DeviceMesh& mesh) const {
  std::vector<int64_t> sizes = mine.sizes().vec();
  sizes[0] = total();
  return redistribute(
      from_local(mine, mesh_, {RaggedShard(0, counts_)}, {.shape = sizes}),
      mesh, Placements(static_cast<size_t>(mesh.ndim())));
}

at::Tensor RankRows::mine_of(const at::Tensor& all) const {
  return to_local(redistribute(all, mesh_, {RaggedShard(0, counts_)}));
}

void check_table(
    const char* call, const at::Tensor& ids, const ShardedTensor& weight,
    const TableOptions& options) {
  const int64_t me = rank();
  TORCH_CHECK_TYPE(
      ids.defined() && c10::isIntegralType(ids.scalar_type(), false), call,
      ", rank ", me, ": the ids must be a tensor of integers; got ",
      ids.defined() ? c10::toString(ids.scalar_type()) : "undefined");
  TORCH_CHECK_VALUE(
      weight.dim() == 2, call, ", rank ", me,
      ": the weight must have 2 dims; got ", weight.dim());
  TORCH_CHECK_NOT_IMPLEMENTED(
      has_mesh(weight), call, ", rank ", me,
      ": no mesh has the shards of the weight, ",
      to_string(weight.sharding_spec()),
      "; reshard() it to one box per rank on a grid first");
  const int64_t rows = weight.size(0);
  TORCH_CHECK_VALUE(
      !options.padding_idx ||
          (*options.padding_idx >= -rows && *options.padding_idx < rows),
      call, ", rank ", me, ": padding_idx must be a row of ", rows, "; got ",
      options.padding_idx.value_or(0));
  TORCH_CHECK_VALUE(
      !options.max_norm || *options.max_norm > 0, call, ", rank ", me,
      ": max_norm must be positive; got ", options.max_norm.value_or(0));
  if (ids.numel() > 0) {
    const auto lowest = ids.min().item<int64_t>();
    const auto highest = ids.max().item<int64_t>();
    TORCH_CHECK_VALUE(
        lowest >= 0 && highest < rows, call, ", rank ", me,
        ": ids must be rows of the weight; got id ",
        lowest < 0 ? lowest : highest, " for ", rows, " rows");
  }
}

void agree_on_table(
    Agreement& agreement, const ShardedTensor& weight,
    const TableOptions& options) {
  std::ostringstream text;
  text.precision(17);
  text << "padding_idx "
       << (options.padding_idx ? std::to_string(padding_row(weight, options))
                               : "none")
       << ", max_norm " << options.max_norm.value_or(0) << ", norm_type "
       << options.norm_type;
  agreement.equal("weight", to_string(weight.metadata()));
  agreement.equal("options", text.str());
}

at::Tensor flat_ids(const at::Tensor& ids) {
  return ids.detach().reshape(-1).to(at::kLong);
}

int64_t padding_row(const ShardedTensor& weight, const TableOptions& options) {
  const int64_t row = options.padding_idx.value_or(-1);
  return options.padding_idx && row < 0 ? row + weight.size(0) : row;
}

std::string packed(const std::vector<int64_t>& numbers) {
  return {
      reinterpret_cast<const char*>(numbers.data()),
      numbers.size() * sizeof(int64_t)};
}

std::vector<std::vector<int64_t>> unpacked(
    const std::vector<std::string>& texts) {
  std::vector<std::vector<int64_t>> columns;
  for (const std::string& text : texts) {
    std::vector<int64_t> numbers(text.size() / sizeof(int64_t));
    base::copy_bytes(numbers.data(), text.data(), text.size());
    columns.resize(numbers.size());
    for (size_t i = 0; i < numbers.size(); ++i) {
      columns[i].push_back(numbers[i]);
    }
  }
  return columns;
}

void renormalise(
    const ShardedTensor& weight, const at::Tensor& all_ids,
    const TableOptions& options) {
  if (!options.max_norm || all_ids.numel() == 0) {
    return;
  }
  const at::NoGradGuard no_grad;
  at::Tensor table = to_dtensor(weight);
  at::embedding_renorm_(table, all_ids, *options.max_norm, options.norm_type);
}

at::Tensor only_tensor(const char* op, const std::vector<Value>& results) {
  const auto* value =
      results.size() == 1 ? std::get_if<c10::IValue>(&results[0]) : nullptr;
  TORCH_CHECK_TYPE(
      value != nullptr && value->isTensor(), op, ", rank ", rank(),
      ": the implementation must return one plain tensor");
  return value->toTensor();
}

}  // namespace tessera::detail::inline sharded_tensor_layer
