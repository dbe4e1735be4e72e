#include <limits>
#include <random>

#include <c10/util/Exception.h>
#include <gtest/gtest.h>
#include <tessera/plan/redistribute_plan.h>

#include "plan/greedy.h"

namespace tessera {
namespace {

struct Transition {
  Layout source;
  Layout target;
};

Layout random_layout(
    std::mt19937& random, const std::vector<int64_t>& shape,
    const MeshShape& mesh) {
  Placements placements;
  for (int64_t m = 0; m < mesh.ndim(); ++m) {
    const auto kind = static_cast<int64_t>(random() % (shape.size() + 2)) - 2;
    placements.push_back(
        kind == -2   ? Replicate()
        : kind == -1 ? Partial()
                     : Shard(kind));
  }
  return Layout(shape, mesh, placements);
}

// The same 200 on every run: sizes that divide and sizes that do not. Greedy
// plans that need more memory than a plan may are no measure.
std::vector<Transition> transitions() {
  const std::vector<MeshShape> meshes{
      MeshShape({4}),         MeshShape({2, 4}),    MeshShape({4, 2}),
      MeshShape({3, 2}),      MeshShape({2, 2, 2}), MeshShape({2, 3, 2}),
      MeshShape({2, 2, 2, 2})};
  const std::vector<std::vector<int64_t>> shapes{
      {16}, {16, 8}, {13, 7}, {4, 4, 6}, {8, 5, 3}};
  std::mt19937 random(1);
  std::vector<Transition> result;
  while (result.size() < 200) {
    const MeshShape& mesh = meshes[random() % meshes.size()];
    const auto& shape = shapes[random() % shapes.size()];
    const Layout source = random_layout(random, shape, mesh);
    const Layout target = random_layout(random, shape, mesh);
    if (greedy::Planner(source, target, MachineModel{}).run().fits_memory) {
      result.push_back({source, target});
    }
  }
  return result;
}

TEST(GreedyTest, NoPlanCostsMoreThanAGreedyOne) {
  int64_t cheaper = 0;
  for (const auto& [source, target] : transitions()) {
    for (const double latency : {5e-6, 1e-9}) {
      MachineModel model;
      model.link.latency = latency;
      const auto plan = plan_redistribution(source, target, 4, model);
      const auto other = greedy::Planner(source, target, model).run();
      EXPECT_LE(plan.cost, other.cost * (1 + 1e-9)) << source << "\n"
                                                    << target << "\n"
                                                    << plan;
      cheaper += plan.cost < other.cost * (1 - 1e-9) ? 1 : 0;
    }
  }
  EXPECT_GT(cheaper, 50);
}

TEST(GreedyTest, NoPlanSendsMoreBytesThanAGreedyOneWhenOnlyBytesCount) {
  MachineModel model;
  model.link.latency = 0;
  model.copy_bandwidth = std::numeric_limits<double>::infinity();
  for (const auto& [source, target] : transitions()) {
    const auto plan = plan_redistribution(source, target, 4, model);
    const auto other = greedy::Planner(source, target, model).run();
    EXPECT_LE(plan.bytes, other.bytes) << source << "\n"
                                       << target << "\n"
                                       << plan;
  }
}

}  // namespace
}  // namespace tessera
