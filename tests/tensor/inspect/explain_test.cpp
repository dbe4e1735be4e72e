// explain(): what it says before a call is what a log has seen after it.
#include <harness/sharded_test.h>
#include <layout/random_case.h>
#include <tensor/inspect/comm_lines.h>

namespace tessera {
namespace {

using testing::counting;
using testing::distinct;
using testing::error_of;
using testing::f32;
using testing::f64;
using testing::i64;
using testing::lines_of;
using testing::mesh_of;
using testing::step_lines;

Placement random_placement(
    Random& random, const std::vector<int64_t>& shape, int64_t parts) {
  const int64_t dim = random.between(0, static_cast<int64_t>(shape.size()) - 1);
  switch (random.between(0, 6)) {
    case 0:
      return Replicate();
    case 1:
      return Partial();
    case 2:
      return random.flip() ? Partial(ReduceOp::kAvg) : Partial(ReduceOp::kMax);
    case 3:
      return StridedShard(dim, random.between(2, 3));
    case 4: {
      std::vector<int64_t> sizes(static_cast<size_t>(parts), 0);
      for (int64_t i = 0; i < shape[static_cast<size_t>(dim)]; ++i) {
        ++sizes[static_cast<size_t>(random.between(0, parts - 1))];
      }
      return RaggedShard(dim, sizes);
    }
    default:
      return Shard(dim);
  }
}

// Lets the mesh dims that cut one tensor dim take their turns in another order.
void reverse_turns(Placements& placements, size_t ndim) {
  for (size_t d = 0; d < ndim; ++d) {
    int64_t turn = 0;
    for (size_t m = placements.size(); m-- > 0;) {
      if (placements[m].is_shard(static_cast<int64_t>(d))) {
        placements[m] = placements[m].with_order(turn++);
      }
    }
  }
}

Placements random_placements(
    Random& random, const std::vector<int64_t>& shape, const MeshShape& mesh) {
  while (true) {
    Placements placements;
    for (int64_t m = 0; m < mesh.ndim(); ++m) {
      placements.push_back(random_placement(random, shape, mesh.size(m)));
    }
    if (random.flip()) {
      reverse_turns(placements, shape.size());
    }
    try {
      return Layout(shape, mesh, placements).placements();
    } catch (const c10::Error&) {
      continue;  // no such layout
    }
  }
}

std::vector<int64_t> random_shape(Random& random) {
  std::vector<int64_t> shape;
  for (int64_t d = random.between(1, 3); d > 0; --d) {
    shape.push_back(random.between(1, 9));
  }
  return shape;
}

at::Tensor tensor_of(
    const std::vector<int64_t>& shape, const DeviceMesh& mesh,
    const Placements& placements, at::TensorOptions options) {
  const Layout layout(shape, mesh.mesh_shape(), placements);
  const at::Tensor local =
      distinct(layout.local_shape(*mesh.coordinate()), options);
  return from_local(local, mesh, placements, {.shape = shape});
}

// Says what is wrong with a random redistribution, or "".
std::string check_redistribution(
    Random& random, const DeviceMesh& mesh, int64_t& communicating) {
  const auto shape = random_shape(random);
  const Placements from = random_placements(random, shape, mesh.mesh_shape());
  const Placements to = random_placements(random, shape, mesh.mesh_shape());
  const at::Tensor t =
      tensor_of(shape, mesh, from, random.flip() ? f32() : f64());
  const std::string name = to_string(spec(t)) + " to " + to_string(to);
  CommLog log;
  const std::string told = explain("redistribute", t, to);
  if (log.count() != 0) {
    return name + ": explain() communicated";
  }
  static_cast<void>(redistribute(t, to));
  if (lines_of(log.entries()) != step_lines(told)) {
    return name + ": told\n" + told + "recorded\n" + to_string(log);
  }
  for (const CommLogEntry& entry : log.entries()) {
    if (entry.cause != "redistribute" || !entry.asked ||
        entry.dtype != t.scalar_type()) {
      return name + ": recorded\n" + to_string(log);
    }
  }
  const RedistributePlan plan = plan_redistribution(
      spec(t).layout(), Layout(shape, mesh.mesh_shape(), to),
      static_cast<int64_t>(t.element_size()));
  const auto largest = log.largest_over(mesh.whole());
  if (lines_of(largest) != step_lines(to_string(plan))) {
    return name + ": planned\n" + to_string(plan) + "recorded\n" +
           to_string(log);
  }
  communicating += log.count() > 0 ? 1 : 0;
  return "";
}

TEST(Explain, EqualsTheLogAndThePlanOfTwoHundredRandomRedistributions) {
  const std::vector<std::vector<int64_t>> meshes{
      {3}, {4}, {2, 3}, {3, 2}, {2, 2, 2}};
  const char* chosen = std::getenv("TESSERA_SEED");
  const uint64_t seed =
      chosen != nullptr ? std::strtoull(chosen, nullptr, 10) : 0;
  for (const auto& sizes : meshes) {
    const auto names = sizes.size() == 2 ? std::vector<std::string>{"dp", "tp"}
                                         : std::vector<std::string>();
    run_ranks(static_cast<int>(c10::multiply_integers(sizes)), [&] {
      const DeviceMesh mesh = mesh_of(sizes, names);
      int64_t communicating = 0;
      for (uint64_t i = 0; i < 40; ++i) {
        Random random(seed + 1000 * sizes.size() + i);
        const std::string wrong =
            check_redistribution(random, mesh, communicating);
        ASSERT_EQ(wrong, "") << "rank " << rank() << ", TESSERA_SEED=" << seed
                             << ", mesh " << mesh << ", case " << i;
      }
      EXPECT_GT(communicating, 20) << "cases that show something";
    });
  }
}

// Tells a call by explain(), makes it, and compares.
template <class F, class... Arguments>
void expect_told(F make, const std::string& name, Arguments... arguments) {
  CommLog log;
  const std::string told = explain(name, arguments...);
  EXPECT_EQ(log.count(), 0) << "explain() communicated";
  static_cast<void>(make());
  EXPECT_EQ(step_lines(told), lines_of(log.entries()))
      << "rank " << rank() << ", told\n"
      << told << "recorded\n"
      << to_string(log);
  for (const CommLogEntry& entry : log.entries()) {
    EXPECT_FALSE(entry.asked) << to_string(entry);
  }
}

TEST(Explain, EqualsTheLogOfOperators) {
  const std::vector<std::pair<const char*, const char*>> layouts{
      {"S(0) R", "S(0) R"},
      {"S(0) S(1)", "R S(0)"},
      {"P(sum) R", "P(sum) R"},
      {"R R", "S(1) S(0)"},
      {"S(1)[1] S(1)[0]", "R R"}};
  run_ranks(4, [&] {
    const auto mesh = mesh_of({2, 2}, {"dp", "tp"});
    for (const auto& [left, right] : layouts) {
      SCOPED_TRACE(std::string(left) + " and " + right);
      auto a = tensor_of({5, 5}, mesh, parse_placements(left), f64());
      auto b = tensor_of({5, 5}, mesh, parse_placements(right), f64());
      expect_told([&] { return a + b; }, "aten::add.Tensor", a, b);
      expect_told([&] { return a.mul(2.5); }, "aten::mul", a, 2.5);
      expect_told([&] { return at::mm(a, b); }, "aten::mm", a, b);
      expect_told([&] { return a.relu(); }, "relu", a);
      expect_told([&] { return a.sum(); }, "aten::sum", a);
      expect_told(
          [&] {
            return at::cat({a, b});
          },
          "aten::cat", std::vector<at::Tensor>{a, b});
      expect_told([&] { return a.t(); }, "aten::t", a);
      expect_told([&] { return a.clone(); }, "aten::clone", a);
      expect_told([&] { return at::linear(a, b); }, "aten::linear", a, b);
      expect_told([&] { return at::softmax(a, 1); }, "aten::softmax", a, 1);
      expect_told(
          [&] {
            return a.new_zeros({5, 5});
          },
          "aten::new_zeros", a, std::vector<int64_t>{5, 5});
      expect_told([&] { return a.copy_(b); }, "aten::copy_", a, b);
      expect_told([&] { return a.detach(); }, "aten::detach", a);
    }
  });
}

TEST(Explain, ForetellsThatAStaleViewIsGatheredAgain) {
  run_ranks(2, [&] {
    auto a = distribute_tensor(counting({4, 3}), mesh_of({2}), {Shard(0)});
    // Dim 0 is cut, so both are views of one copy.
    const auto view = a.unfold(0, 3, 1);
    const auto row = a.select(0, 1);
    expect_told([&] { return view + 1; }, "aten::add", view, 1);
    a.add_(1);
    const std::string told = explain("aten::mul", view, 2);
    EXPECT_NE(
        told.find("self: S(0) -> R of the tensor that it is a"), told.npos)
        << told;
    EXPECT_EQ(step_lines(told).size(), 1U) << told;
    expect_told([&] { return at::dot(row, row); }, "aten::dot", row, row);
    expect_told([&] { return view * 2; }, "aten::mul", view, 2);
    a.add_(1);
    expect_told([&] { return row.copy_(row); }, "aten::copy_", row, row);
  });
}

// Prices are the machine model's business.
std::string without_times(const std::string& text) {
  const std::lock_guard<std::mutex> lock(testing::regex_mutex());
  return testing::as_on_cpu(
      std::regex_replace(text, std::regex("[-+.e0-9]+ s\\b"), "T s"));
}

TEST(Explain, PrintsARedistribution) {
  run_ranks(2, [&] {
    auto t = distribute_tensor(
        counting({5, 4}, f32()), mesh_of({2}, {"tp"}), {Shard(0)});
    EXPECT_EQ(
        without_times(explain("redistribute", t, {Replicate()})),
        c10::str(
            "redistribute(f32[5, 4] S(0) @ mesh(tp=2)) to R, rank ", rank(),
            "\n1. all_gather tp: S(0) -> R, 40 bytes, T s\n"
            "total: 40 bytes on this rank, T s, peak memory 128 "
            "bytes\n"));
    EXPECT_EQ(
        explain("full_tensor", t), explain("redistribute", t, {Replicate()}));
    EXPECT_NE(
        explain("redistribute", t, {Shard(0)}).find("nothing to do: 0 bytes"),
        std::string::npos);
  });
}

TEST(Explain, PrintsARedistributionToAnotherMesh) {
  run_ranks(4, [&] {
    auto t = distribute_tensor(
        counting({4, 4}, f32()), mesh_of({4}, {"all"}), {Shard(0)});
    const auto grid = mesh_of({2, 2}, {"dp", "tp"});
    const Placements target{Shard(0), Shard(1)};
    CommLog log;
    const std::string told = explain("redistribute", t, grid, target);
    EXPECT_EQ(log.count(), 0);
    EXPECT_NE(told.find("to S(0) S(1) @ mesh(dp=2, tp=2), rank"), told.npos)
        << told;
    EXPECT_EQ(step_lines(told).size(), 1U) << told;
    static_cast<void>(redistribute(t, grid, target));
    EXPECT_EQ(lines_of(log.entries()), step_lines(told));
    EXPECT_EQ(
        lines_of(log.largest_over(init().communicator())),
        step_lines(to_string(plan_redistribution(
            spec(t).layout(), Layout({4, 4}, grid.mesh_shape(), target), 4))));
  });
}

TEST(Explain, EqualsTheLogOfAsynchronousMovesAndOtherDtypes) {
  run_ranks(2, [&] {
    auto t = distribute_tensor(counting({5, 4}), mesh_of({2}), {Shard(0)});
    const RedistributeOptions options{
        .async = true, .forward_dtype = at::kFloat};
    CommLog log;
    const std::string told = explain("redistribute", t, {Shard(1)}, options);
    auto moved = redistribute(t, {Shard(1)}, options);
    EXPECT_EQ(
        step_lines(explain("redistribute", moved, {Replicate()})).size(), 1U);
    EXPECT_EQ(lines_of(log.entries()), step_lines(told));
    EXPECT_EQ(log.entries().at(0).dtype, at::kFloat);
    EXPECT_TRUE(testing::same(moved, counting({5, 4}, f32())));
  });
}

TEST(Explain, PrintsTheWayOfAnOperator) {
  run_ranks(2, [&] {
    const auto mesh = mesh_of({2}, {"tp"});
    auto a = distribute_tensor(counting({4, 3}, f32()), mesh, {Shard(0)});
    auto b = distribute_tensor(counting({3, 2}, f32()), mesh, {Replicate()});
    EXPECT_EQ(
        without_times(explain("mm", a, b)),
        c10::str(
            "aten::mm(f32[4, 3] S(0), f32[3, 2] R) on mesh(tp=2), rank ",
            rank(),
            "\nruns on the shards: rule aten::mm.*: S(0), R -> S(0)\n"
            "result: f32[4, 2] S(0)\n"
            "total: 0 bytes on this rank, T s\n"));
    const std::string whole = without_times(explain("nonzero", a));
    EXPECT_EQ(
        whole.substr(0, whole.find("the result is known when it runs")),
        c10::str(
            "aten::nonzero(f32[4, 3] S(0)) on mesh(tp=2), rank ", rank(),
            "\nruns on whole values: no sharding rule\n"
            "self: S(0) -> R, a gather\n"
            "  1. all_gather tp: S(0) -> R, 24 bytes, T s\n"));
    EXPECT_EQ(
        without_times(explain("aten::add", a, a)),
        c10::str(
            "aten::add.Tensor(f32[4, 3] S(0), f32[4, 3] S(0), 1) on "
            "mesh(tp=2), rank ",
            rank(),
            "\nruns on the shards: rule aten::add.*: S(0), S(0) -> S(0)\n"
            "result: f32[4, 3] S(0)\n"
            "total: 0 bytes on this rank, T s\n"));
  });
}

TEST(Explain, GoesThroughDecompositionsAsFarAsNoValueDecides) {
  run_ranks(2, [&] {
    const auto mesh = mesh_of({2});
    auto a = distribute_tensor(counting({4, 4}), mesh, {Shard(0)});
    auto at_rows =
        distribute_tensor(at::tensor({1, 3}, i64()), mesh, {Shard(0)});
    auto one = distribute_tensor(counting({}), mesh, {Replicate()});
    const std::string told = explain("aten::linear", a, a);
    EXPECT_NE(told.find("decomposes into calls of other"), told.npos) << told;
    EXPECT_NE(told.find("\naten::t(f64[4, 4] S(0))"), told.npos) << told;
    EXPECT_NE(explain("aten::item", one).find("result: a value"), told.npos);
    EXPECT_NE(explain("aten::equal", a, a).find("result: a value"), told.npos);
    const std::string split = explain("aten::tensor_split", a, at_rows);
    EXPECT_NE(split.find("ATen reads the values of an argument"), told.npos)
        << split;
    EXPECT_NE(split.find("what follows depends on those"), told.npos);
    EXPECT_EQ(step_lines(split).size(), 1U);
    // No meta kernel tells how many elements there are.
    EXPECT_NE(
        explain("aten::nonzero", a).find("the result is known when it runs"),
        told.npos);
  });
}

TEST(Explain, ChangesNothing) {
  run_ranks(2, [&] {
    const auto mesh = mesh_of({2});
    auto a = distribute_tensor(
        counting({4, 4}).requires_grad_(true), mesh, {Shard(0)});
    auto b = distribute_tensor(counting({4, 4}), mesh, {Replicate()});
    auto c = a * 2;
    const auto version = c._version();
    static_cast<void>(explain("aten::add_", b, b));
    static_cast<void>(explain("aten::t_", b));
    static_cast<void>(explain("aten::zero_", c));
    static_cast<void>(explain("aten::resize_", b, std::vector<int64_t>{2}));
    EXPECT_TRUE(testing::same(b, counting({4, 4})));
    EXPECT_TRUE(testing::same(c, counting({4, 4}) * 2));
    EXPECT_EQ(c._version(), version);
    c.sum().backward();
    EXPECT_TRUE(testing::same(a.grad(), at::full({4, 4}, 2, f64())));
  });
}

TEST(Explain, WorksOnARankOutsideTheMesh) {
  run_ranks(3, [&] {
    const auto mesh = mesh_of({2});
    auto a = distribute_tensor(counting({4, 4}), mesh, {Shard(0)});
    const auto bytes = rank() < 2 ? 64 : 0;
    for (const std::string& told :
         {explain("redistribute", a, {Replicate()}),
          explain("aten::mm", a, a)}) {
      EXPECT_EQ(
          step_lines(told).front(),
          c10::str("all_gather 0: S(0) -> R, ", bytes, " bytes"));
    }
  });
}

TEST(Explain, RefusesWhatIsNoCall) {
  run_ranks(1, [&] {
    const auto a = distribute_tensor(counting({4}), mesh_of({1}), {Shard(0)});
    EXPECT_ERROR("no operator or function is named 'mmm'", explain("mmm", a));
    EXPECT_ERROR(
        "'aten::mm' does not take (Tensor, int); there are:\n  aten::mm",
        explain("aten::mm", a, 3));
    EXPECT_ERROR(
        "several overloads of 'aten::std' take",
        explain("aten::std", a, std::nullopt));
    EXPECT_ERROR(
        "no argument is sharded", explain("aten::relu", counting({4})));
    EXPECT_ERROR(
        "only redistribute takes a tensor and placements; got 'cut'",
        explain("cut", a, {Replicate()}));
    EXPECT_ERROR(
        "the tensor is not sharded",
        explain("redistribute", counting({4}), {Replicate()}));
  });
}

}  // namespace
}  // namespace tessera
