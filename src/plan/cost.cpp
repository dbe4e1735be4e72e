#include <tessera/plan/cost.h>

#include <algorithm>
#include <bit>
#include <limits>
#include <optional>

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

// What a rank sends in a step among `ranks` ranks, of which `larger` is the
// larger of the shards before and after it.
template <class Number>
Number sent_of(StepKind kind, Number ranks, Number larger) {
  const Number once = larger - larger / ranks;
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

double seconds_of(
    const MachineModel& model, const Link& link, int64_t messages, double bytes,
    double written) {
  return static_cast<double>(messages) * link.latency + bytes / link.bandwidth +
         written / model.copy_bandwidth;
}

// The step from one placement of a mesh dim to another; none makes partial
// values of what is cut, or of others.
std::optional<StepKind> step_between(
    const Placement& from, const Placement& to) {
  if (from.is_replicate()) {
    return to.is_shard() ? StepKind::kSlice : StepKind::kToPartial;
  }
  if (to.is_partial()) {
    return std::nullopt;
  }
  if (from.is_partial()) {
    return to.is_shard() ? StepKind::kReduceScatter : StepKind::kAllReduce;
  }
  return to.is_shard() ? StepKind::kAllToAll : StepKind::kAllGather;
}

// What is local but not free, so that a call keeps what it has.
constexpr double kLocalStep = 1e-9;

// How often 1 must be doubled to reach `ranks`: 5 -> 3.
int64_t doublings(int64_t ranks) {
  return std::bit_width(static_cast<uint64_t>(ranks - 1));
}

}  // namespace

const Link& MachineModel::of(int64_t mesh_dim) const {
  const auto at = static_cast<size_t>(mesh_dim);
  return at < links.size() ? links[at] : link;
}

Link MachineModel::over(const std::vector<int64_t>& mesh_dims) const {
  Link worst = mesh_dims.empty() ? link : of(mesh_dims.front());
  for (const int64_t m : mesh_dims) {
    worst.latency = std::max(worst.latency, of(m).latency);
    worst.bandwidth = std::min(worst.bandwidth, of(m).bandwidth);
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

int64_t message_count(std::string_view call, int64_t ranks) {
  if (call == "send" || call == "recv") {
    return 1;
  }
  return message_count(
      call == to_string(StepKind::kAllReduce) ? StepKind::kAllReduce
                                              : StepKind::kExchange,
      ranks);
}

int64_t elements_sent(
    StepKind kind, int64_t ranks, int64_t before, int64_t after) {
  return sent_of(kind, ranks, std::max(before, after));
}

double step_cost(
    const MachineModel& model, const Link& link, int64_t messages,
    int64_t bytes, int64_t written) {
  return seconds_of(
      model, link, messages, static_cast<double>(bytes),
      static_cast<double>(written));
}

double transition_cost(
    const MachineModel& model, int64_t mesh_dim, int64_t ranks,
    const Placement& from, const Placement& to, double bytes) {
  if (from == to) {
    return 0;
  }
  if (ranks == 1) {
    return kLocalStep;
  }
  const auto kind = step_between(from, to);
  if (!kind) {
    return std::numeric_limits<double>::infinity();
  }
  const auto n = static_cast<double>(ranks);
  const auto held = [&](const Placement& p) {
    return p.is_shard() ? bytes / n : bytes;
  };
  const int64_t messages = message_count(*kind, ranks);
  return (messages == 0 ? kLocalStep : 0) +
         seconds_of(
             model, model.of(mesh_dim), messages,
             sent_of(*kind, n, std::max(held(from), held(to))), held(to));
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
