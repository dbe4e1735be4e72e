// Every pair of placements on small meshes and sizes 0 to 7, bit by bit against
// the definition. TESSERA_LONG=1 runs all pairs, else every pair on 1-D meshes
// and an even choice of the rest.
#include <atomic>
#include <cstdlib>

#include "plan/cases.h"
#include "tensor/move/by_definition.h"

namespace tessera {
namespace {

using by_definition::List;

bool is_long() {
  return std::getenv("TESSERA_LONG") != nullptr;
}

struct Count {
  int64_t cases = 0;
  int64_t skipped = 0;
  std::string wrong;  // the first
};

// Runs the pairs of one shape; ranks are threads, each has its own Count.
class Pairs {
 public:
  Pairs(
      const DeviceMesh& mesh, by_definition::Exhibition& exhibition,
      Count& count)
      : mesh_(mesh), exhibition_(exhibition), count_(count) {}

  void run(
      const List& shape, const std::vector<Placements>& choices,
      int64_t every) {
    const auto all = cases::layouts(shape, mesh_.mesh_shape(), choices);
    for (const Layout& from : all) {
      at::Tensor source;
      for (const Layout& to : all) {
        if (++number_ % (every * by_definition::kSlow) != 0) {
          ++count_.skipped;
          continue;
        }
        if (!source.defined()) {
          source = by_definition::make(shape, mesh_, from.placements());
        }
        one(source, to);
      }
    }
  }

 private:
  void one(const at::Tensor& source, const Layout& to) {
    ++count_.cases;
    const at::Tensor moved = redistribute(source, to.placements());
    auto wrong = to.has_partial() ? exhibition_.difference(moved)
                                  : by_definition::difference(moved);
    if (!wrong && placements(moved) != to.placements()) {
      wrong = "other placements";
    }
    if (wrong && count_.wrong.empty()) {
      count_.wrong = to_string(spec(source)) + " -> " +
                     to_string(to.placements()) + ": " + *wrong;
    }
  }

  const DeviceMesh& mesh_;
  by_definition::Exhibition& exhibition_;
  Count& count_;
  int64_t number_ = 0;
};

using Body = std::function<void(Pairs&)>;

// Returns the number of cases.
int64_t on_mesh(const List& sizes, const Body& body) {
  const int64_t ranks = MeshShape(sizes).size();
  std::vector<Count> counts(static_cast<size_t>(ranks));
  by_definition::Exhibition exhibition(ranks);
  run_ranks(static_cast<int>(ranks), [&] {
    const DeviceMesh mesh = testing::mesh_of(sizes);
    Count& mine = counts[static_cast<size_t>(rank())];
    Pairs pairs(mesh, exhibition, mine);
    body(pairs);
  });
  for (const Count& count : counts) {
    EXPECT_EQ(count.wrong, "");
  }
  return counts[0].cases;
}

Placements every_kind(const List& shape, int64_t parts) {
  Placements each{
      Replicate(),
      Partial(),
      Partial(ReduceOp::kAvg),
      Partial(ReduceOp::kMax),
      Partial(ReduceOp::kMin),
      Partial(ReduceOp::kProduct)};
  for (size_t d = 0; d < shape.size(); ++d) {
    const auto dim = static_cast<int64_t>(d);
    each.push_back(Shard(dim));
    each.push_back(StridedShard(dim, 2));
    if (d == 0) {
      each.push_back(StridedShard(dim, 3));
      each.push_back(cases::ragged(dim, shape[d], parts));
    }
  }
  return each;
}

TEST(ExhaustiveRedistribution, OnOneDimensionalMeshes) {
  int64_t cases = 0;
  for (int64_t n = 2; n <= 8; ++n) {
    cases += on_mesh({n}, [n](Pairs& pairs) {
      for (int64_t size = 0; size <= 7; ++size) {
        pairs.run({size}, {every_kind({size}, n)}, 1);
      }
      for (int64_t rows = 0; rows <= 7; ++rows) {
        for (int64_t columns = 0; columns <= 7; ++columns) {
          const List shape{rows, columns};
          pairs.run(shape, {every_kind(shape, n)}, is_long() ? 1 : 3);
        }
      }
    });
  }
  std::cout << cases << " redistributions\n";
  EXPECT_GE(cases * by_definition::kSlow, is_long() ? 60'000 : 27'000);
}

int64_t on_several_dims(
    const List& mesh_sizes, int64_t every_vector, int64_t every_matrix) {
  return on_mesh(mesh_sizes, [&](Pairs& pairs) {
    const MeshShape mesh(mesh_sizes);
    for (int64_t size = 0; size <= 7; ++size) {
      pairs.run(
          {size}, cases::rich_choices({size}, mesh),
          is_long() ? 1 : every_vector);
    }
    for (int64_t rows = 0; rows <= 7; ++rows) {
      for (int64_t columns = 0; columns <= 7; ++columns) {
        const List shape{rows, columns};
        pairs.run(
            shape,
            is_long() && mesh.ndim() == 2 ? cases::rich_choices(shape, mesh)
                                          : cases::plain_choices(shape, mesh),
            is_long() ? 1 : every_matrix);
      }
    }
  });
}

TEST(ExhaustiveRedistribution, OnTwoDimensionalMeshes) {
  const int64_t cases =
      on_several_dims({2, 2}, 1, 5) + on_several_dims({2, 3}, 1, 5);
  std::cout << cases << " redistributions\n";
  EXPECT_GE(cases * by_definition::kSlow, is_long() ? 90'000 : 21'500);
}

TEST(ExhaustiveRedistribution, OnThreeDimensionalMeshes) {
  const int64_t cases = on_several_dims({2, 2, 2}, 53, 53);
  std::cout << cases << " redistributions\n";
  EXPECT_GE(cases * by_definition::kSlow, is_long() ? 450'000 : 11'000);
}

}  // namespace
}  // namespace tessera
