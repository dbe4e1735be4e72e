// Every combination of placements on small meshes and sizes 0 to 9, in every
// order of the cuts, against the reference. Ranks descend along the mesh, so
// that a rank taken for a position shows.
#include <functional>

#include <gtest/gtest.h>

#include "layout/agreement.h"

namespace tessera {
namespace {

using reference::List;
using reference::OwnerMap;

MeshShape descending(const List& mesh_sizes) {
  List ranks;
  for (int64_t count = MeshShape(mesh_sizes).size(); count > 0; --count) {
    ranks.push_back(count + 10);
  }
  return MeshShape::from_ranks(ranks, mesh_sizes);
}

void check(const List& shape, const List& mesh_sizes, const Placements& given) {
  if (::testing::Test::HasFatalFailure()) {
    return;  // one report is enough
  }
  const Layout layout(shape, descending(mesh_sizes), given);
  const OwnerMap map(layout, given);
  reference::expect_shards_agree(layout, map);
  reference::expect_owners_agree(layout, given, map);
  reference::expect_exact_cover(layout, given);
  if (shape.size() == 1) {
    for (int64_t begin = 0; begin <= shape[0]; ++begin) {
      for (int64_t end = begin; end <= shape[0]; ++end) {
        reference::expect_holders_agree(layout, map, {{begin}, {end - begin}});
      }
    }
  } else {
    for (const List& at : reference::coordinates(shape)) {
      Box box{at, List(shape.size(), 2)};
      reference::expect_holders_agree(layout, map, box);
      box.sizes[0] = shape[0];
      reference::expect_holders_agree(layout, map, box);
    }
  }
}

// Calls `body` with every choice of one option per mesh dim.
void for_each_choice(
    const std::vector<Placements>& options,
    const std::function<void(const Placements&)>& body) {
  List counts;
  for (const Placements& of_dim : options) {
    counts.push_back(static_cast<int64_t>(of_dim.size()));
  }
  for (const List& choice : reference::coordinates(counts)) {
    Placements placements;
    for (size_t m = 0; m < options.size(); ++m) {
      placements.push_back(options[m][static_cast<size_t>(choice[m])]);
    }
    body(placements);
  }
}

// The same cuts, those of `tensor_dim` in every order, then those of the dims
// after it.
void for_each_order(
    const Placements& placements, int64_t tensor_dim, int64_t ndim,
    const std::function<void(const Placements&)>& body) {
  if (tensor_dim == ndim) {
    body(placements);
    return;
  }
  for_each_order(placements, tensor_dim + 1, ndim, body);
  std::vector<size_t> cuts;
  List turn;
  for (size_t m = 0; m < placements.size(); ++m) {
    if (placements[m].is_shard(tensor_dim)) {
      turn.push_back(static_cast<int64_t>(cuts.size()));
      cuts.push_back(m);
    }
  }
  // A single cut has one order, with and without a turn.
  while (cuts.size() > 1 && std::next_permutation(turn.begin(), turn.end())) {
    Placements ordered = placements;
    for (size_t i = 0; i < cuts.size(); ++i) {
      ordered[cuts[i]] = ordered[cuts[i]].with_order(turn[i]);
    }
    for_each_order(ordered, tensor_dim + 1, ndim, body);
  }
}

Placements options_1d() {
  return {
      Replicate(), Partial(), Shard(0), StridedShard(0, 2), StridedShard(0, 3)};
}

Placements options_2d() {
  Placements options = options_1d();
  options.insert(
      options.end(), {Shard(1), StridedShard(1, 2), StridedShard(1, 3)});
  return options;
}

class Exhaustive : public ::testing::TestWithParam<List> {};

TEST_P(Exhaustive, OneTensorDimAgreesWithTheReferenceForAllSizesAndOrders) {
  const List mesh = GetParam();
  const std::vector<Placements> options(mesh.size(), options_1d());
  for (int64_t size = 0; size <= 9; ++size) {
    for_each_choice(options, [&](const Placements& chosen) {
      for_each_order(chosen, 0, 1, [&](const Placements& ordered) {
        ASSERT_NO_FATAL_FAILURE(check({size}, mesh, ordered));
      });
    });
  }
}

TEST_P(Exhaustive, TwoTensorDimsAgreeWithTheReference) {
  const List mesh = GetParam();
  const std::vector<Placements> options(mesh.size(), options_2d());
  // Three mesh dims keep to mesh order here, for time; one tensor dim has every
  // order above, and the cuts of two tensor dims do not touch each other.
  const int64_t ordered_dims = mesh.size() < 3 ? 0 : 2;
  for (int64_t rows = 0; rows <= 9; ++rows) {
    for (int64_t columns = 0; columns <= 9; ++columns) {
      for_each_choice(options, [&](const Placements& chosen) {
        for_each_order(chosen, ordered_dims, 2, [&](const Placements& ordered) {
          ASSERT_NO_FATAL_FAILURE(check({rows, columns}, mesh, ordered));
        });
      });
    }
  }
}

INSTANTIATE_TEST_SUITE_P(
    Meshes, Exhaustive,
    ::testing::Values(
        List{}, List{1}, List{2}, List{3}, List{4}, List{5}, List{6}, List{7},
        List{8}, List{2, 2}, List{2, 3}, List{2, 2, 2}),
    [](const auto& param) {
      std::string name = "mesh";
      for (int64_t size : param.param) {
        name.append("_").append(std::to_string(size));
      }
      return name;
    });

// All ways to write `size` as `count` lengths, zeros allowed.
std::vector<List> ragged_sizes(int64_t size, int64_t count) {
  if (count == 1) {
    return {{size}};
  }
  std::vector<List> result;
  for (int64_t first = 0; first <= size; ++first) {
    for (List rest : ragged_sizes(size - first, count - 1)) {
      rest.insert(rest.begin(), first);
      result.push_back(rest);
    }
  }
  return result;
}

TEST(ExhaustiveRagged, EveryDivisionOfEverySizeOnOneToFourRanks) {
  for (int64_t ranks = 1; ranks <= 4; ++ranks) {
    for (int64_t size = 0; size <= 9; ++size) {
      for (const List& lengths : ragged_sizes(size, ranks)) {
        ASSERT_NO_FATAL_FAILURE(
            check({size}, {ranks}, {RaggedShard(0, lengths)}));
      }
    }
  }
}

TEST(ExhaustiveRagged, EveryDivisionThenAnotherCutOfTheSameDim) {
  for (int64_t size = 0; size <= 7; ++size) {
    for (const List& lengths : ragged_sizes(size, 2)) {
      for (const Placement& second : options_1d()) {
        const Placement first = RaggedShard(0, lengths);
        ASSERT_NO_FATAL_FAILURE(check({size}, {2, 3}, {first, second}));
        if (second.is_shard()) {
          ASSERT_NO_FATAL_FAILURE(check(
              {size}, {3, 2}, {second.with_order(1), first.with_order(0)}));
        }
      }
    }
  }
}

TEST(ExhaustiveRagged, EveryDivisionAfterAnEvenCut) {
  for (int64_t half = 0; half <= 4; ++half) {
    for (const List& lengths : ragged_sizes(half, 3)) {
      for (const Placement& first : {Shard(0), StridedShard(0, 2)}) {
        if (first.split_factor() == 2 && half % 2 != 0) {
          continue;
        }
        ASSERT_NO_FATAL_FAILURE(
            check({2 * half}, {2, 3}, {first, RaggedShard(0, lengths)}));
        ASSERT_NO_FATAL_FAILURE(check(
            {2 * half, 3}, {2, 3, 2},
            {first, RaggedShard(0, lengths), Shard(1)}));
      }
    }
  }
}

}  // namespace
}  // namespace tessera
