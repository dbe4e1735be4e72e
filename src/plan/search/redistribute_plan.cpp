#include <tessera/plan/redistribute_plan.h>

#include <algorithm>
#include <ostream>
#include <utility>

#include <c10/util/Exception.h>
#include <c10/util/StringUtil.h>

#include "plan/search/search.h"
#include "plan/search/states.h"
#include "plan/text.h"

namespace tessera {
namespace {

using detail::Pricing;

std::string call_text(const Layout& source, const Layout& target) {
  return c10::str("plan_redistribution(", source, " to ", target, ")");
}

void check_link(const std::string& call, const Link& link) {
  TORCH_CHECK_VALUE(
      link.latency >= 0 && link.bandwidth > 0, call,
      ": a link wants a latency that is not negative and a bandwidth above 0; "
      "got ",
      link.latency, " s and ", link.bandwidth, " bytes/s");
}

void check_arguments(
    const Layout& source, const Layout& target, int64_t element_size,
    const MachineModel& model) {
  TORCH_CHECK_VALUE(
      source.shape() == target.shape(), call_text(source, target),
      ": both layouts must have one shape; a redistribution moves elements and "
      "does not reshape");
  TORCH_CHECK_VALUE(
      element_size >= 1, call_text(source, target),
      ": an element has at least 1 byte; got element_size ", element_size);
  const std::string call = "plan_redistribution";
  check_link(call, model.link);
  for (const Link& link : model.links) {
    check_link(call, link);
  }
  TORCH_CHECK_VALUE(
      model.copy_bandwidth > 0, call,
      ": the copy bandwidth must be above 0; got ", model.copy_bandwidth,
      " bytes/s");
  TORCH_CHECK_VALUE(
      model.memory_limit > 0, call, ": the memory limit must be above 0; got ",
      model.memory_limit, " bytes");
}

// Tells whether every coordinate has the same rank; names may differ.
bool same_ranks(const MeshShape& a, const MeshShape& b) {
  return a.sizes() == b.sizes() && a.ranks() == b.ranks();
}

Layout with_partials_as(const Layout& layout, const Placement& placement) {
  Placements placements = layout.placements();
  // A temporary cut is the last of its tensor dim, so orders are spelled out.
  int64_t order = 0;
  if (placement.is_shard()) {
    const auto& cuts = layout.cuts(placement.dim());
    for (const int64_t m : cuts) {
      auto& p = placements[static_cast<size_t>(m)];
      p = p.with_order(order++);
    }
  }
  for (Placement& p : placements) {
    if (p.is_partial()) {
      p = placement.is_shard() ? placement.with_order(order++) : placement;
    }
  }
  return Layout(layout.shape(), layout.mesh(), std::move(placements));
}

std::vector<Step> steps_on_mesh(
    const Layout& source, const Layout& target, const Pricing& pricing);

// Adds the step that makes the partials of the target, if it has any.
void append_partials(
    std::vector<Step>& steps, const Layout& start, const Layout& target,
    const Pricing& pricing) {
  std::vector<int64_t> dims;
  for (size_t m = 0; m < target.placements().size(); ++m) {
    if (start.placements()[m] != target.placements()[m]) {
      dims.push_back(static_cast<int64_t>(m));
    }
  }
  if (!dims.empty()) {
    steps.push_back(detail::collective_step(
        StepKind::kToPartial, std::move(dims), start, target, pricing));
  }
}

double total_cost(const std::vector<Step>& steps) {
  double cost = 0;
  for (const Step& step : steps) {
    cost += step.cost;
  }
  return cost;
}

// Reduces every partial by all_reduce, one per run of equal neighbours.
std::vector<Step> all_reduces(const Layout& source, const Pricing& pricing) {
  std::vector<Step> steps;
  Layout current = source;
  const auto count = source.placements().size();
  for (size_t first = 0, last = 0; first < count; first = last) {
    const Placement p = source.placements()[first];
    last = first + 1;
    if (!p.is_partial()) {
      continue;
    }
    Placements placements = current.placements();
    std::vector<int64_t> dims{static_cast<int64_t>(first)};
    placements[first] = Replicate();
    for (; last < count && source.placements()[last] == p; ++last) {
      dims.push_back(static_cast<int64_t>(last));
      placements[last] = Replicate();
    }
    const Layout next(source.shape(), source.mesh(), std::move(placements));
    steps.push_back(detail::collective_step(
        StepKind::kAllReduce, std::move(dims), current, next, pricing));
    current = next;
  }
  return steps;
}

// Elements that a rank holds at most, and the limit of that.
struct Memory {
  Memory(
      const Layout& source, const Layout& target,
      const std::vector<Step>& steps) {
    const int64_t kept = detail::largest_shard(source);
    int64_t message = 0;
    int64_t before = 0;  // the first step reads the source itself
    peak = kept;
    for (const Step& step : steps) {
      const int64_t after = detail::largest_shard(step.after);
      peak = std::max(peak, kept + (step.is_in_place() ? 0 : before) + after);
      message = std::max({message, kept, after});
      before = after;
    }
    limit = kept + detail::largest_shard(target) + message;
  }
  int64_t peak = 0;
  int64_t limit = 0;
};

// Exchanges after `steps`, which leave no partial, then makes the partials of
// the target on its mesh.
std::vector<Step> exchanged_after(
    std::vector<Step> steps, const Layout& source, const Layout& target,
    const Pricing& pricing) {
  const Layout reduced = steps.empty() ? source : steps.back().after;
  const Layout arrived = with_partials_as(target, Replicate());
  if (!(reduced == arrived)) {
    steps.push_back(detail::exchange_step(reduced, arrived, pricing));
  }
  append_partials(steps, arrived, target, pricing);
  return steps;
}

// Partials are reduced on the source mesh: by all_reduce, which always fits
// into memory, or by what a search finds, to R or to a cut.
std::vector<Step> steps_between_meshes(
    const Layout& source, const Layout& target, const Pricing& pricing) {
  auto best =
      exchanged_after(all_reduces(source, pricing), source, target, pricing);
  if (!source.has_partial()) {
    return best;
  }
  const auto exceeds = [&](const Memory& memory) {
    return memory.peak > pricing.model.memory_limit / pricing.element_size;
  };
  bool best_exceeds = exceeds(Memory(source, target, best));
  Placements choices{Replicate()};
  for (size_t d = 0; d < source.shape().size(); ++d) {
    choices.push_back(Shard(static_cast<int64_t>(d)));
  }
  for (const Placement& choice : choices) {
    const Layout reduced = with_partials_as(source, choice);
    auto steps = exchanged_after(
        steps_on_mesh(source, reduced, pricing), source, target, pricing);
    const Memory memory(source, target, steps);
    if (memory.peak <= memory.limit &&
        std::pair(exceeds(memory), total_cost(steps)) <
            std::pair(best_exceeds, total_cost(best))) {
      best = std::move(steps);
      best_exceeds = exceeds(memory);
    }
  }
  return best;
}

std::vector<Step> steps_on_mesh(
    const Layout& source, const Layout& target, const Pricing& pricing) {
  if (target.mesh().ndim() > detail::kMaxMeshDims) {
    return exchanged_after(
        all_reduces(source, pricing), source, target, pricing);
  }
  return detail::search_steps(source, target, pricing);
}

}  // namespace

RedistributePlan plan_redistribution(
    const Layout& source, const Layout& target, int64_t element_size,
    const MachineModel& model) {
  check_arguments(source, target, element_size, model);
  RedistributePlan plan{.source = source, .target = target};
  plan.element_size = element_size;
  const Pricing pricing{model, element_size};
  if (source.mesh() == target.mesh()) {
    if (!(source == target)) {
      plan.steps = steps_on_mesh(source, target, pricing);
    }
  } else if (same_ranks(source.mesh(), target.mesh())) {
    const Layout renamed(source.shape(), target.mesh(), source.placements());
    plan.steps = renamed == target ? std::vector<Step>()
                                   : steps_on_mesh(renamed, target, pricing);
  } else {
    plan.steps = steps_between_meshes(source, target, pricing);
  }
  for (const Step& step : plan.steps) {
    plan.bytes += step.bytes;
  }
  plan.cost = total_cost(plan.steps);
  plan.peak_memory =
      element_size * Memory(plan.source, plan.target, plan.steps).peak;
  return plan;
}

std::string to_string(const RedistributePlan& plan) {
  std::string text;
  for (size_t i = 0; i < plan.steps.size(); ++i) {
    text += c10::str(i + 1, ". ", plan.steps[i], "\n");
  }
  return text +
         c10::str(
             plan.steps.empty() ? "nothing to do: " : "total: ", plan.bytes,
             " bytes per rank, ", detail::seconds(plan.cost), ", peak memory ",
             plan.peak_memory, " bytes\n");
}

std::string to_json(const RedistributePlan& plan) {
  std::string steps;
  for (const Step& step : plan.steps) {
    steps += (steps.empty() ? "" : ", ") + to_json(step);
  }
  return c10::str(
      "{\"source\": \"", plan.source, "\", \"target\": \"", plan.target,
      "\", \"element_size\": ", plan.element_size, ", \"steps\": [", steps,
      "], \"bytes\": ", plan.bytes, ", \"cost\": ", detail::number(plan.cost),
      ", \"peak_memory\": ", plan.peak_memory, "}");
}

std::ostream& operator<<(std::ostream& out, const RedistributePlan& plan) {
  return out << to_string(plan);
}

}  // namespace tessera
