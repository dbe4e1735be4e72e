// DeferredInit: the values are those of a ReplicatedRandom, bit for bit, and
// nothing is communicated.
#include "modules.h"

namespace tessera {
namespace {

using testing::error_of;
using testing::mesh_of;
using testing::Module;
using testing::ModuleCase;
using testing::same;

struct Run {
  int ranks;
  std::vector<int64_t> mesh;  // its shape, or the ranks of one
  const char* placements;
  bool is_list = false;
};

const std::vector<Run> kRuns = {
    {1, {1}, "R"},
    {2, {2}, "S(0)"},
    {2, {2}, "R"},
    {3, {3}, "S(1)"},
    {4, {4}, "S(0)"},
    {3, {0, 2}, "S(0)", true},
    {4, {2, 2}, "S(0) S(1)"},
    {4, {2, 2}, "S(0)[1] S(0)[0]"},
    {4, {2, 2}, "R SS(0,2)"},
};

DeviceMesh mesh_for(const Run& run) {
  return run.is_list
             ? DeviceMesh(testing::device(), at::tensor(run.mesh, at::kLong))
             : mesh_of(run.mesh);
}

// As many of the placements as the tensor has dims for.
Placements placements_for(const Run& run, const at::Tensor& t) {
  Placements placements = parse_placements(run.placements);
  for (Placement& p : placements) {
    p = p.is_shard() && p.dim() >= t.dim() ? Replicate() : p;
  }
  return placements;
}

std::vector<std::pair<std::string, at::Tensor>> tensors_of(const Module& m) {
  std::vector<std::pair<std::string, at::Tensor>> all;
  for (const auto& item : m.named_parameters()) {
    all.emplace_back(item.key(), item.value());
  }
  for (const auto& item : m.named_buffers()) {
    all.emplace_back(item.key(), item.value());
  }
  return all;
}

std::shared_ptr<Module> make_deferred(const ModuleCase& c) {
  manual_seed(5);
  const DeferredInit later;
  return c.make();
}

std::shared_ptr<Module> make_plain(const ModuleCase& c) {
  manual_seed(5);
  const ReplicatedRandom equal;
  return c.make();
}

void place(
    const std::shared_ptr<Module>& module, const Run& run,
    const DeviceMesh& mesh) {
  for (const auto& [name, t] : tensors_of(*module)) {
    if (t.defined()) {
      make_dtensor_(
          t, mesh, placements_for(run, t), {.src_data_rank = std::nullopt});
    }
  }
}

void expect_equal(
    const std::shared_ptr<Module>& got, const std::shared_ptr<Module>& want) {
  const auto a = tensors_of(*got);
  const auto b = tensors_of(*want);
  ASSERT_EQ(a.size(), b.size());
  for (size_t i = 0; i < a.size(); ++i) {
    SCOPED_TRACE(a[i].first);
    if (!b[i].second.defined()) {
      continue;
    }
    EXPECT_EQ(a[i].second.requires_grad(), b[i].second.requires_grad());
    EXPECT_EQ(a[i].second.strides(), b[i].second.strides());
    EXPECT_EQ(a[i].second.device(), b[i].second.device());
    const at::Tensor x = to_local(a[i].second.detach());
    const at::Tensor y = to_local(b[i].second.detach());
    EXPECT_TRUE(same(x, y));
    EXPECT_EQ(x.strides(), y.strides());
  }
}

// The values that one rank makes, of which each rank holds its part.
void expect_values(
    const std::shared_ptr<Module>& got, const std::shared_ptr<Module>& one) {
  const auto a = tensors_of(*got);
  const auto b = tensors_of(*one);
  for (size_t i = 0; i < a.size(); ++i) {
    if (b[i].second.defined() && spec(a[i].second).has_shard()) {
      EXPECT_TRUE(same(a[i].second.detach(), b[i].second)) << a[i].first;
    }
  }
}

void compare(const ModuleCase& c) {
  SCOPED_TRACE(c.name);
  const auto one = make_plain(c);
  for (const Run& run : kRuns) {
    SCOPED_TRACE(std::to_string(run.ranks) + " ranks, " + run.placements);
    run_ranks(run.ranks, [&] {
      const DeviceMesh mesh = mesh_for(run);
      const auto want = make_plain(c);
      const RandomState after = random_state();
      const auto got = make_deferred(c);
      EXPECT_EQ(random_state(), after);
      for (const auto& [name, t] : tensors_of(*got)) {
        EXPECT_TRUE(!t.defined() || is_deferred(t)) << name;
      }
      const CommLog log;
      place(got, run, mesh);
      EXPECT_EQ(log.count(), 0) << log;
      place(want, run, mesh);
      expect_equal(got, want);
      EXPECT_EQ(random_state(), after);
      expect_values(got, one);
    });
  }
}

TEST(DeferredValues, OfEveryLayer) {
  for (const ModuleCase& c : testing::layers()) {
    compare(c);
  }
}

TEST(DeferredValues, OfInitialisersByElement) {
  for (const ModuleCase& c : testing::initialisers_by_element()) {
    compare(c);
  }
}

TEST(DeferredValues, OfInitialisersThatNeedATensorWhole) {
  for (const ModuleCase& c : testing::initialisers_of_whole()) {
    compare(c);
  }
}

TEST(DeferredValues, OfOneRankArePlainAfterMaterialize) {
  for (const auto& cases :
       {testing::layers(), testing::initialisers_by_element(),
        testing::initialisers_of_whole()}) {
    for (const ModuleCase& c : cases) {
      SCOPED_TRACE(c.name);
      const auto want = make_plain(c);
      const auto got = make_deferred(c);
      materialize(*got);
      const auto a = tensors_of(*got);
      const auto b = tensors_of(*want);
      for (size_t i = 0; i < a.size(); ++i) {
        if (b[i].second.defined()) {
          EXPECT_TRUE(same(a[i].second, b[i].second)) << a[i].first;
          EXPECT_EQ(a[i].second.strides(), b[i].second.strides());
          EXPECT_EQ(a[i].second.requires_grad(), b[i].second.requires_grad());
          EXPECT_FALSE(is_deferred(a[i].second));
        }
      }
    }
  }
}

}  // namespace
}  // namespace tessera
