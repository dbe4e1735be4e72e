// All layouts of a shape on a mesh, from a list of placements per mesh dim; and
// machine models for which plans differ.
#pragma once

#include <vector>

#include <c10/util/Exception.h>
#include <tessera/layout/layout.h>
#include <tessera/plan/redistribute_plan.h>

namespace tessera::cases {

/// Returns the layouts that exist, each once; where a tensor dim is cut
/// several times, also with the turns reversed.
inline std::vector<Layout> layouts(
    const std::vector<int64_t>& shape, const MeshShape& mesh,
    const std::vector<Placements>& choices) {
  std::vector<Placements> all{{}};
  for (int64_t m = 0; m < mesh.ndim(); ++m) {
    std::vector<Placements> longer;
    for (const Placements& front : all) {
      for (const Placement& p : choices[static_cast<size_t>(m)]) {
        longer.push_back(front);
        longer.back().push_back(p);
      }
    }
    all = std::move(longer);
  }
  std::vector<Layout> result;
  const auto add = [&](Placements placements) {
    try {
      const Layout layout(shape, mesh, std::move(placements));
      for (const Layout& known : result) {
        if (known == layout) {
          return;
        }
      }
      result.push_back(layout);
    } catch (const c10::Error&) {
      // No such layout: partial kinds that do not mix, lengths that do not fit.
    }
  };
  for (const Placements& placements : all) {
    add(placements);
    Placements reversed = placements;
    for (size_t d = 0; d < shape.size(); ++d) {
      int64_t turn = 0;
      for (size_t m = reversed.size(); m-- > 0;) {
        if (reversed[m].is_shard(static_cast<int64_t>(d))) {
          reversed[m] = reversed[m].with_order(turn++);
        }
      }
    }
    add(reversed);
  }
  return result;
}

/// Returns a ragged cut of `length` over `parts`: all but one to the last part,
/// the first one to the first.
inline Placement ragged(int64_t dim, int64_t length, int64_t parts) {
  std::vector<int64_t> sizes(static_cast<size_t>(parts), 0);
  sizes.front() = length > 0 ? 1 : 0;
  sizes.back() += length > 0 ? length - 1 : 0;
  return RaggedShard(dim, sizes);
}

/// Returns R, S(d) of every tensor dim and P(sum) for each mesh dim.
inline std::vector<Placements> plain_choices(
    const std::vector<int64_t>& shape, const MeshShape& mesh) {
  Placements each{Replicate(), Partial()};
  for (size_t d = 0; d < shape.size(); ++d) {
    each.push_back(Shard(static_cast<int64_t>(d)));
  }
  return std::vector<Placements>(static_cast<size_t>(mesh.ndim()), each);
}

/// The same with SS and RS of the first tensor dim.
inline std::vector<Placements> rich_choices(
    const std::vector<int64_t>& shape, const MeshShape& mesh) {
  auto choices = plain_choices(shape, mesh);
  for (size_t m = 0; m < choices.size(); ++m) {
    choices[m].push_back(StridedShard(0, 2));
    choices[m].push_back(
        ragged(0, shape[0], mesh.size(static_cast<int64_t>(m))));
  }
  return choices;
}

struct NamedModel {
  const char* name;
  MachineModel model;
};

/// Returns models where latency counts, where bytes count, where mesh dim 0 is
/// slow and where all others are.
inline std::vector<NamedModel> models() {
  MachineModel bytes;
  bytes.link.latency = 0;
  MachineModel slow_first;
  slow_first.link = {1e-9, 100e9};
  slow_first.links = {{20e-9, 1e9}};
  MachineModel fast_first;
  fast_first.link = {20e-9, 1e9};
  fast_first.links = {{1e-9, 10e9}};
  return {
      {"latency", {}},
      {"bytes", bytes},
      {"slow first", slow_first},
      {"fast first", fast_first}};
}

/// Plans every `stride`-th pair, every other one without latency, since plans
/// have more steps then; returns after the first for which `f(plan)` is false.
template <class F>
void for_planned_pairs(
    const std::vector<Layout>& sources, const std::vector<Layout>& targets,
    size_t stride, F f) {
  size_t pair = 0;
  for (const Layout& source : sources) {
    for (const Layout& target : targets) {
      if (pair++ % stride != 0) {
        continue;
      }
      MachineModel model;
      model.link.latency = pair % 2 == 0 ? 0 : model.link.latency;
      if (!f(plan_redistribution(source, target, 4, model))) {
        return;
      }
    }
  }
}

}  // namespace tessera::cases
