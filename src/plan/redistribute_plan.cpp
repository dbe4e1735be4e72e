#include <tessera/plan/redistribute_plan.h>

#include <algorithm>
#include <ostream>

#include <c10/util/Exception.h>
#include <c10/util/StringUtil.h>

#include "plan/search.h"
#include "plan/states.h"
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
}

// Tells whether every coordinate has the same rank; names may differ.
bool same_ranks(const MeshShape& a, const MeshShape& b) {
  return a.sizes() == b.sizes() && a.ranks() == b.ranks();
}

Layout with_partials_as(const Layout& layout, const Placement& placement) {
  Placements placements = layout.placements();
  // A temporary cut is the last of its tensor dim, so turns are spelled out.
  int64_t turn = 0;
  if (placement.is_shard()) {
    const auto& cuts = layout.cuts(placement.dim());
    for (const int64_t m : cuts) {
      auto& p = placements[static_cast<size_t>(m)];
      p = p.with_order(turn++);
    }
  }
  for (Placement& p : placements) {
    if (p.is_partial()) {
      p = placement.is_shard() ? placement.with_order(turn++) : placement;
    }
  }
  return Layout(layout.shape(), layout.mesh(), std::move(placements));
}

std::vector<Step> steps_on_mesh(
    const Layout& source, const Layout& target, const Pricing& pricing);

// Adds the partials of the target, mesh dim by mesh dim.
void append_partials(
    std::vector<Step>& steps, const Layout& start, const Layout& target,
    const Pricing& pricing) {
  Layout current = start;
  for (size_t m = 0; m < target.placements().size(); ++m) {
    if (current.placements()[m] == target.placements()[m]) {
      continue;
    }
    Placements placements = current.placements();
    placements[m] = target.placements()[m];
    const Layout next(target.shape(), target.mesh(), std::move(placements));
    steps.push_back(detail::collective_step(
        StepKind::kToPartial, {static_cast<int64_t>(m)}, current, next,
        pricing));
    current = next;
  }
}

double total_cost(const std::vector<Step>& steps) {
  double cost = 0;
  for (const Step& step : steps) {
    cost += step.cost;
  }
  return cost;
}

// Reduces the partials on the source mesh, exchanges, then makes partials on
// the target mesh. `reduced` says what the partials become.
std::vector<Step> steps_through(
    const Layout& source, const Layout& reduced, const Layout& target,
    const Pricing& pricing) {
  std::vector<Step> steps;
  if (source.has_partial()) {
    steps = steps_on_mesh(source, reduced, pricing);
  }
  const Layout arrived = with_partials_as(target, Replicate());
  steps.push_back(detail::exchange_step(reduced, arrived, pricing));
  append_partials(steps, arrived, target, pricing);
  return steps;
}

std::vector<Step> steps_between_meshes(
    const Layout& source, const Layout& target, const Pricing& pricing) {
  auto best = steps_through(
      source, with_partials_as(source, Replicate()), target, pricing);
  for (size_t d = 0; source.has_partial() && d < source.shape().size(); ++d) {
    auto steps = steps_through(
        source, with_partials_as(source, Shard(static_cast<int64_t>(d))),
        target, pricing);
    if (total_cost(steps) < total_cost(best)) {
      best = std::move(steps);
    }
  }
  return best;
}

// For meshes with too many dims to search: all_reduce per run of equal
// partials, exchange, to_partial.
std::vector<Step> steps_without_search(
    const Layout& source, const Layout& target, const Pricing& pricing) {
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
  const Layout arrived = with_partials_as(target, Replicate());
  if (!(current == arrived)) {
    steps.push_back(detail::exchange_step(current, arrived, pricing));
  }
  append_partials(steps, arrived, target, pricing);
  return steps;
}

std::vector<Step> steps_on_mesh(
    const Layout& source, const Layout& target, const Pricing& pricing) {
  if (target.mesh().ndim() > detail::kMaxMeshDims) {
    return steps_without_search(source, target, pricing);
  }
  return detail::search_steps(source, target, pricing);
}

int64_t peak_memory(const RedistributePlan& plan) {
  const int64_t source = detail::largest_shard(plan.source);
  int64_t most = source;
  int64_t before = 0;  // the first step reads the source itself
  for (const Step& step : plan.steps) {
    const int64_t after = detail::largest_shard(step.after);
    most = std::max(most, source + before + after);
    before = after;
  }
  return most * plan.element_size;
}

}  // namespace

RedistributePlan plan_redistribution(
    const Layout& source, const Layout& target, int64_t element_size,
    const MachineModel& model) {
  check_arguments(source, target, element_size, model);
  RedistributePlan plan{.source = source, .target = target};
  plan.element_size = element_size;
  const Pricing pricing{model, element_size};
  if (source == target) {
    plan.peak_memory = peak_memory(plan);
    return plan;
  }
  if (source.mesh() == target.mesh()) {
    plan.steps = steps_on_mesh(source, target, pricing);
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
  plan.peak_memory = peak_memory(plan);
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
