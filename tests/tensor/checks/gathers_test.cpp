// Gathers: what counts as one, and that explain(), the counts and StrictMode
// agree about it.
#include <c10/util/Exception.h>
#include <harness/sharded_test.h>

namespace tessera {
namespace {

using testing::counting;
using testing::f32;
using testing::mesh_of;
using testing::same;

GatherCount counted(const std::string& op) {
  for (const GatherCount& entry : gather_counts()) {
    if (entry.op == op) {
      return entry;
    }
  }
  return {op};
}

void barrier() {
  init().communicator().barrier();
}

// Runs `call` on all ranks; returns what the process counted for `op`.
template <class Call>
GatherCount gathers_of(const std::string& op, Call call) {
  barrier();
  const GatherCount before = counted(op);
  barrier();
  call();
  barrier();
  const GatherCount after = counted(op);
  barrier();
  return {op, after.count - before.count, after.bytes - before.bytes};
}

template <class Call>
void expect_gathers(
    const std::string& op, int64_t count, int64_t bytes, Call call) {
  const GatherCount found = gathers_of(op, call);
  EXPECT_EQ(found.count, count) << op;
  EXPECT_EQ(found.bytes, bytes) << op;
}

at::Tensor cut(
    const std::vector<int64_t>& shape, const DeviceMesh& mesh,
    const char* placements) {
  return distribute_tensor(
      counting(shape, f32()), mesh, parse_placements(placements),
      {.src_data_rank = std::nullopt});
}

// What happens to an operand of one call that is decided by a rule, by
// placements: unfold along dim 0 needs all of it.
struct Case {
  std::vector<int64_t> mesh;
  std::vector<int64_t> shape;
  const char* placements;
  int64_t bytes;  // that all ranks hold more of; -1: no gather
};

TEST(Gathers, AreMovesToFewerParts) {
  const std::vector<Case> cases{
      {{2}, {4, 6}, "S(0)", 96},
      {{2}, {4, 6}, "S(1)", -1},
      {{2}, {4, 6}, "R", -1},
      {{2}, {4, 6}, "P(sum)", -1},
      {{3}, {4, 6}, "S(0)", 192},           // 2 2 0
      {{3}, {1, 6}, "S(0)", 48},            // 1 0 0
      {{3}, {4, 6}, "RS(0,[0,4,0])", 192},  // one rank has all
      {{2}, {1}, "S(0)", -1},               // one element
      {{2}, {4, 0}, "S(0)", -1},            // none
      {{2, 2}, {4, 6}, "S(0) S(1)", 96},    // 6 more on each of four
      {{2, 2}, {4, 6}, "S(1) S(0)", 96},
      {{2, 2}, {4, 6}, "S(0) S(0)", 4 * 72},
      {{2, 2}, {4, 6}, "S(0) P(sum)", 4 * 48},
      {{2, 2}, {4, 6}, "P(sum) R", -1},
      {{1, 2}, {4, 6}, "S(0) R", -1},  // a mesh dim of one rank
  };
  for (const Case& c : cases) {
    const int ranks = static_cast<int>(c10::multiply_integers(c.mesh));
    run_ranks(ranks + 1, [&] {  // one rank is outside
      SCOPED_TRACE(c10::str(c.placements, " of ", c.shape));
      const auto mesh = mesh_of(c.mesh);
      const at::Tensor t = cut(c.shape, mesh, c.placements);
      const bool gathers = c.bytes >= 0;
      at::Tensor result;
      expect_gathers(
          "aten::unfold_copy", gathers ? ranks : 0,
          std::max<int64_t>(c.bytes, 0),
          [&] { result = at::unfold_copy(t, 0, 1, 1); });
      if (rank() < ranks) {
        EXPECT_TRUE(same(result, counting(c.shape, f32()).unfold(0, 1, 1)));
      }
      const std::string told = explain("unfold_copy", t, 0, 1, 1);
      EXPECT_EQ(told.find(", a gather") != told.npos, gathers) << told;
      const StrictMode strict({.communication = false, .gathers = true});
      if (gathers) {
        EXPECT_ERROR("StrictMode forbids gathers", at::unfold_copy(t, 0, 1, 1));
      } else {
        EXPECT_TRUE(at::unfold_copy(t, 0, 1, 1).defined());
      }
    });
  }
}

TEST(Gathers, AreNoOtherCutsAndNoSums) {
  run_ranks(4, [&] {
    const auto mesh = mesh_of({2, 2});
    const StrictMode strict({.communication = false, .gathers = true});
    const at::Tensor a = cut({4, 8}, mesh, "S(0) R");
    const at::Tensor b = cut({4, 8}, mesh, "S(1) R");
    const at::Tensor c = cut({4, 8}, mesh, "R S(0)");
    EXPECT_TRUE(same(a + b, counting({4, 8}, f32()) * 2));
    EXPECT_TRUE(same(a + c, counting({4, 8}, f32()) * 2));
    EXPECT_TRUE(same(a.sum().exp(), counting({4, 8}, f32()).sum().exp()));
    EXPECT_TRUE(same(full_tensor(a), counting({4, 8}, f32())))
        << "what is asked for is no gather";
  });
}

TEST(Gathers, NameTheOperandByWhateverRule) {
  run_ranks(2, [&] {
    const auto mesh = mesh_of({2}, {"tp"});
    const at::Tensor a = cut({64, 3}, mesh, "S(0)");
    const at::Tensor b = cut({3, 4}, mesh, "S(1)");
    const std::string told = explain("mm", a, b);
    EXPECT_NE(told.find("\nruns on the shards: rule aten::mm"), told.npos);
    EXPECT_NE(told.find("\nmat2: S(1) -> R, a gather\n"), told.npos) << told;
    EXPECT_NE(told.find(", peak memory "), told.npos) << told;
    EXPECT_NE(told.find("; gathers 24 bytes\n"), told.npos) << told;
    expect_gathers("aten::mm", 2, 48, [&] { at::mm(a, b); });
    const StrictMode strict({.communication = false, .gathers = true});
    CommLog log;
    EXPECT_ERROR(
        "aten::mm(f32[64, 3] S(0), f32[3, 4] S(1)) on mesh(tp=2), rank ",
        at::mm(a, b));
    EXPECT_ERROR(
        "StrictMode forbids gathers, and this call makes whole what was cut: "
        "mat2: S(1) -> R; it would cost 24 bytes per rank (mat2 all_gather tp: "
        "S(1) -> R, 24 bytes)",
        at::mm(a, b));
    EXPECT_EQ(log.count(), 0);
  });
}

TEST(Gathers, AreCountedInEveryWayACallRuns) {
  run_ranks(2, [&] {
    const auto mesh = mesh_of({2});
    const at::Tensor a = cut({4, 6}, mesh, "S(0)");
    const at::Tensor whole = cut({4, 6}, mesh, "R");
    expect_gathers("aten::nonzero", 2, 96, [&] { a.nonzero(); });
    expect_gathers("aten::copy_", 2, 96, [&] { whole.clone().copy_(a); });
    expect_gathers("aten::add_.Tensor", 2, 96, [&] { whole.add_(a); });
    const at::Tensor view = a.unfold(0, 3, 1);
    a.add_(1);
    expect_gathers("aten::mul.Scalar", 2, 96, [&] { view * 2; });
    expect_gathers("aten::mul.Scalar", 0, 0, [&] { view * 2; });
    // Slices and sums on the way are no argument.
    const at::Tensor s = cut({6, 4}, mesh, "S(0)");
    expect_gathers("aten::cumsum", 0, 0, [&] { s.cumsum(0); });
    expect_gathers("aten::_softmax", 0, 0, [&] { s.softmax(0); });
    // Rows of neighbours are not all rows.
    const at::Tensor image = cut({1, 1, 8, 4}, mesh, "S(2)");
    const at::Tensor weight = cut({1, 1, 3, 3}, mesh, "R");
    expect_gathers("aten::convolution", 0, 0, [&] {
      at::conv2d(image, weight, {}, 1, 1);
    });
    const std::string told = explain(
        "convolution", image, weight, std::nullopt, std::vector<int64_t>{1, 1},
        std::vector<int64_t>{1, 1}, std::vector<int64_t>{1, 1}, false,
        std::vector<int64_t>{0, 0}, 1);
    EXPECT_NE(
        told.find("all_to_all 0: rows of neighbours, 16 bytes\n"), told.npos)
        << told;
    EXPECT_EQ(told.find("gather"), told.npos) << told;
  });
}

TEST(Gathers, OfLeafGradientsMayBeForbiddenToo) {
  run_ranks(2, [&] {
    const auto mesh = mesh_of({2});
    at::Tensor w = cut({4, 6}, mesh, "R");
    w.set_requires_grad(true);
    const auto loss = [&] { return (w * cut({4, 6}, mesh, "S(0)")).sum(); };
    {
      const StrictMode strict({.communication = false, .gathers = true});
      EXPECT_ERROR(
          "StrictMode forbids gathers, and the gradient arrives cut where its "
          "leaf is whole; got S(0)",
          loss().backward());
    }
    w.mutable_grad().reset();
    const StrictMode strict(
        {.communication = false, .gathers = true, .leaf_gradients = false});
    loss().backward();
    EXPECT_TRUE(same(w.grad(), counting({4, 6}, f32())));
  });
}

// 4 KiB of each operand on a rank. The cheapest row gathers one, 8 + 16 KiB;
// where both change their cuts it is 8 + 8.
TEST(MemoryLimit, MakesRowsThatNeedAWholeOperandLose) {
  run_ranks(5, [&] {  // one is outside
    const auto mesh = mesh_of({4});
    const at::Tensor a = counting({32, 32}, f32()) / 100;
    const at::Tensor b = counting({32, 32}, f32()) / 70;
    const auto product = [&] {
      return at::mm(
          distribute_tensor(a, mesh, {Shard(0)}),
          distribute_tensor(b, mesh, {Shard(1)}));
    };
    const auto text = [&] {
      return explain(
          "aten::mm", distribute_tensor(a, mesh, {Shard(0)}),
          distribute_tensor(b, mesh, {Shard(1)}));
    };
    const auto limited_to = [&](int64_t bytes) {
      MachineModel model;
      model.memory_limit = bytes;
      set_machine_model(model);
    };
    expect_gathers("aten::mm", 4, 4 * 3072, product);
    EXPECT_EQ(placements(product()), Placements{Shard(0)});
    EXPECT_EQ(text().find("over the limit"), std::string::npos) << text();
    limited_to(5000);
    expect_gathers("aten::mm", 0, 0, product);
    EXPECT_EQ(placements(product()), Placements{Partial()});
    EXPECT_EQ(text().find("over the limit"), std::string::npos) << text();
    const at::Tensor limited = product();
    if (rank() < 4) {
      EXPECT_TRUE(testing::close(limited, at::mm(a, b), 1e-3));
    }
    // Nothing fits: what needs least is taken.
    limited_to(1);
    EXPECT_EQ(placements(product()), Placements{Partial()});
    EXPECT_NE(text().find("over the limit of 1"), std::string::npos) << text();
    set_machine_model({});
    EXPECT_EQ(placements(product()), Placements{Shard(0)});
  });
}

// Beside a mesh dim that keeps its cut; candidates of topk, of which it would
// send more than the tensor has.
TEST(MemoryLimit, HoldsOnTwoMeshDimsAndForDecompositions) {
  run_ranks(8, [&] {
    const auto mesh = mesh_of({2, 4});
    const at::Tensor a = counting({16, 16}, f32()) / 100;
    const at::Tensor x = distribute_tensor(a, mesh, {Shard(1), Shard(0)});
    const at::Tensor y = distribute_tensor(a, mesh, {Shard(0), Shard(1)});
    EXPECT_EQ(placements(at::mm(x, y)), (Placements{Partial(), Shard(0)}));
    MachineModel model;
    model.memory_limit = 600;  // 128 + 128 and a gathered 512; or twice 256
    set_machine_model(model);
    const at::Tensor z = at::mm(x, y);
    EXPECT_EQ(placements(z), (Placements{Partial(), Partial()}));
    EXPECT_TRUE(testing::close(z, at::mm(a, a), 1e-3));
    EXPECT_NE(
        explain("aten::topk", x, 15, 0).find("is decomposed"),
        std::string::npos);
    EXPECT_TRUE(testing::close(
        std::get<0>(at::topk(x, 15, 0)), std::get<0>(at::topk(a, 15, 0)),
        1e-6));
    set_machine_model({});
    EXPECT_EQ(
        explain("aten::topk", x, 15, 0).find("is decomposed"),
        std::string::npos);
  });
}

}  // namespace
}  // namespace tessera
