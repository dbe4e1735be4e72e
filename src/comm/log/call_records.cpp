#include "comm/log/call_records.h"

#include <algorithm>

#include <c10/util/StringUtil.h>
#include <c10/util/accumulate.h>
#include <torch/csrc/autograd/graph_task.h>

#include "base/text.h"
#include "comm/log/call_cause.h"

namespace tessera::detail::inline comm_layer {

namespace {

// What counts send to other ranks than this one.
int64_t elsewhere(const std::vector<int64_t>& counts, int64_t group_rank) {
  return c10::sum_integers(counts) - counts[static_cast<size_t>(group_rank)];
}

// The mesh dims along which the ranks of a group differ; none where a rank is
// outside.
std::vector<int64_t> dims_of_group(
    const MeshShape& mesh, const std::vector<int64_t>& ranks) {
  const auto first = mesh.coordinate_of(ranks.front());
  std::vector<int64_t> dims;
  for (int64_t m = 0; m < mesh.ndim(); ++m) {
    const auto at = static_cast<size_t>(m);
    for (const int64_t rank : ranks) {
      const auto other = mesh.coordinate_of(rank);
      if (!first || !other) {
        return {};
      }
      if ((*other)[at] != (*first)[at]) {
        dims.push_back(m);
        break;
      }
    }
  }
  return dims;
}

std::string names_of(const MeshShape& mesh, const std::vector<int64_t>& dims) {
  std::vector<std::string> names;
  for (const int64_t m : dims) {
    names.push_back(
        mesh.names().empty() ? std::to_string(m)
                             : mesh.names()[static_cast<size_t>(m)]);
  }
  return base::join(names, ", ");
}

}  // namespace

void CallRecords::add(const CommLogEntry& entry) {
  const std::lock_guard<std::mutex> lock(mutex_);
  entries_.push_back(entry);
}

std::vector<CommLogEntry> CallRecords::entries() const {
  const std::lock_guard<std::mutex> lock(mutex_);
  return entries_;
}

void CallRecords::clear() {
  const std::lock_guard<std::mutex> lock(mutex_);
  entries_.clear();
}

void CallLogs::add(std::shared_ptr<CallRecords> log) {
  const std::lock_guard<std::mutex> lock(mutex_);
  logs_.push_back(std::move(log));
  count_.fetch_add(1, std::memory_order_release);
}

void CallLogs::remove(const std::shared_ptr<CallRecords>& log) {
  const std::lock_guard<std::mutex> lock(mutex_);
  logs_.erase(std::find(logs_.begin(), logs_.end(), log));
  count_.fetch_sub(1, std::memory_order_release);
}

void CallLogs::record(const CommLogEntry& entry) const {
  const std::lock_guard<std::mutex> lock(mutex_);
  for (const auto& log : logs_) {
    log->add(entry);
  }
}

int64_t elements_moved(
    const CollectiveCall& call, const CallSite& site,
    std::optional<int64_t> larger_shard) {
  const int64_t larger =
      larger_shard.value_or(std::max(call.input_numel(), call.output_numel()));
  const int64_t once = larger - larger / site.size();
  switch (call.kind) {
    case CallKind::kAllGather:
    case CallKind::kReduceScatter:
    case CallKind::kSplit:
      return once;
    case CallKind::kAllReduce:
      return 2 * once;
    case CallKind::kAllToAll:
      return larger_shard ? once
                          : std::max(
                                elsewhere(call.input_counts, site.group_rank),
                                elsewhere(call.output_counts, site.group_rank));
    case CallKind::kScatter:
      return site.group_rank == call.peer
                 ? elsewhere(call.input_counts, site.group_rank)
                 : call.output_numel();
    case CallKind::kGather:
      return site.group_rank == call.peer
                 ? elsewhere(call.output_counts, site.group_rank)
                 : call.input_numel();
    case CallKind::kBroadcast:
    case CallKind::kSend:
    case CallKind::kRecv:
      return larger;
    case CallKind::kBarrier:
      return 0;
  }
  return 0;
}

CommLogEntry entry_of(const CollectiveCall& call, const CallSite& site) {
  CommLogEntry entry;
  const CallCause* cause = CallCause::current();
  entry.cause = cause != nullptr ? cause->name() : "user";
  entry.asked = cause == nullptr || cause->asked();
  entry.in_backward = torch::autograd::get_current_graph_task_id() != -1;
  entry.kind = name_of(call.kind);
  entry.ranks = site.group;
  std::optional<int64_t> larger_shard;
  int64_t written = call.output_numel();
  if (const CallLabel* label = CallLabel::current()) {
    label->describe(entry);
    if (label->shards() && entry.kind == "all_to_all") {
      larger_shard = label->shards()->larger;
    }
    written = label->shards() ? label->shards()->after : written;
  } else {
    if (cause != nullptr && cause->mesh() != nullptr) {
      const MeshShape& mesh = cause->mesh()->mesh_shape();
      entry.dims = dims_of_group(mesh, entry.ranks);
      entry.mesh_dims = names_of(mesh, entry.dims);
    }
    entry.text = entry.kind + " " +
                 (entry.mesh_dims.empty() ? describe_group(entry.ranks)
                                          : entry.mesh_dims);
  }
  if (call.sample().defined()) {
    entry.dtype = call.sample().scalar_type();
    const auto width = static_cast<int64_t>(call.sample().element_size());
    entry.bytes = elements_moved(call, site, larger_shard) * width;
    entry.written = written * width;
  }
  return entry;
}

}  // namespace tessera::detail::inline comm_layer
