// explain(): what it says before a call is what a log has seen after it.
#include <harness/sharded_test.h>
#include <layout/random_case.h>
#include <tensor/comm_lines.h>

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
    const auto view = a.t();
    const auto row = a.select(0, 1);
    expect_told([&] { return view + 1; }, "aten::add", view, 1);
    a.add_(1);
    const std::string told = explain("aten::mm", row.unsqueeze(0), view);
    EXPECT_NE(told.find("of the tensor that it is a view of"), told.npos);
    expect_told([&] { return at::mv(view.t(), row); }, "aten::mv", a, row);
  });
}

}  // namespace
}  // namespace tessera
