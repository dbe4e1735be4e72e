#include <tessera/plan/cost.h>

#include <algorithm>
#include <bit>

#include <tessera/plan/exchange.h>

namespace tessera {
namespace {

int64_t shard_elements(
    const Layout& layout, const std::vector<int64_t>& coordinate) {
  int64_t product = 1;
  for (const int64_t size : layout.local_shape(coordinate)) {
    product *= size;
  }
  return product;
}

// How often 1 must be doubled to reach `ranks`: 5 -> 3.
int64_t doublings(int64_t ranks) {
  return std::bit_width(static_cast<uint64_t>(ranks - 1));
}

}  // namespace

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
    case StepKind::kSlice:
    case StepKind::kToPartial:
      return 0;
    case StepKind::kAllReduce:
      return 2 * doublings(ranks);
    case StepKind::kAllGather:
    case StepKind::kReduceScatter:
    case StepKind::kAllToAll:
    case StepKind::kExchange:
      return doublings(ranks);
  }
  return 0;
}

int64_t elements_sent(
    StepKind kind, int64_t ranks, int64_t before, int64_t after) {
  const int64_t larger = std::max(before, after);
  const int64_t once = larger - larger / ranks;
  switch (kind) {
    case StepKind::kSlice:
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

int64_t bytes_on(
    const Step& step, int64_t element_size,
    const std::vector<int64_t>& coordinate) {
  if (step.kind == StepKind::kExchange) {
    const int64_t rank = step.before.mesh().rank_at(coordinate);
    return element_size * exchange_elements_on(step.before, step.after, rank);
  }
  int64_t ranks = 1;
  for (const int64_t m : step.mesh_dims) {
    ranks *= step.before.mesh().size(m);
  }
  return element_size * elements_sent(
                            step.kind, ranks,
                            shard_elements(step.before, coordinate),
                            shard_elements(step.after, coordinate));
}

int64_t bytes_on_rank(const Step& step, int64_t element_size, int64_t rank) {
  if (step.kind == StepKind::kExchange) {
    return element_size * exchange_elements_on(step.before, step.after, rank);
  }
  const auto coordinate = step.before.mesh().coordinate_of(rank);
  return coordinate ? bytes_on(step, element_size, *coordinate) : 0;
}

}  // namespace tessera
