#include <tessera/plan/cost.h>

#include <algorithm>

namespace tessera {

Link MachineModel::over(const std::vector<int64_t>& mesh_dims) const {
  const auto link_of = [this](int64_t m) -> const Link& {
    const auto at = static_cast<size_t>(m);
    return at < links.size() ? links[at] : link;
  };
  Link worst = mesh_dims.empty() ? link : link_of(mesh_dims.front());
  for (const int64_t m : mesh_dims) {
    worst.latency = std::max(worst.latency, link_of(m).latency);
    worst.bandwidth = std::min(worst.bandwidth, link_of(m).bandwidth);
  }
  return worst;
}

int64_t message_count(StepKind kind, int64_t ranks) {
  switch (kind) {
    case StepKind::kCut:
    case StepKind::kToPartial:
      return 0;
    case StepKind::kAllReduce:
      return 2 * (ranks - 1);
    case StepKind::kAllGather:
    case StepKind::kReduceScatter:
    case StepKind::kAllToAll:
    case StepKind::kExchange:
      return ranks - 1;
  }
  return 0;
}

int64_t elements_sent(
    StepKind kind, int64_t ranks, int64_t before, int64_t after) {
  const int64_t larger = std::max(before, after);
  const int64_t once = larger - larger / ranks;
  switch (kind) {
    case StepKind::kCut:
    case StepKind::kToPartial:
      return 0;
    case StepKind::kAllReduce:
      return 2 * once;
    case StepKind::kAllGather:
    case StepKind::kReduceScatter:
    case StepKind::kAllToAll:
    case StepKind::kExchange:
      return once;
  }
  return 0;
}

double step_cost(
    const MachineModel& model, const Link& link, int64_t messages,
    int64_t bytes, int64_t written) {
  return static_cast<double>(messages) * link.latency +
         static_cast<double>(bytes) / link.bandwidth +
         static_cast<double>(written) / model.copy_bandwidth;
}

}  // namespace tessera
