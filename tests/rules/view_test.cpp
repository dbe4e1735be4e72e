// aten::view, exhaustively on small shapes: what the rule keeps in place lies
// where the definition of the placements says.
#include <gtest/gtest.h>

#include "rules/view_call.h"

namespace tessera::view_tests {
namespace {

// All shapes of `ndim` dims with `numel` elements.
void add_shapes(
    int64_t numel, size_t ndim, const List& front, std::vector<List>& shapes) {
  if (ndim == 1) {
    shapes.push_back(front);
    shapes.back().push_back(numel);
    return;
  }
  for (int64_t size = 1; size <= numel; ++size) {
    if (numel % size == 0) {
      List longer = front;
      longer.push_back(size);
      add_shapes(numel / size, ndim - 1, longer, shapes);
    }
  }
}

std::vector<List> shapes_of(int64_t numel) {
  std::vector<List> shapes;
  for (const size_t ndim : {1, 2, 3}) {
    add_shapes(numel, ndim, {}, shapes);
  }
  return shapes;
}

Placements cuts_of(const List& shape, const std::vector<int64_t>& factors) {
  Placements found{Replicate()};
  for (size_t d = 0; d < shape.size(); ++d) {
    found.push_back(Shard(static_cast<int64_t>(d)));
    for (const int64_t factor : factors) {
      if (factor <= shape[d]) {
        found.push_back(StridedShard(static_cast<int64_t>(d), factor));
      }
    }
  }
  return found;
}

// Tells whether a result laid out like this has the operand's elements in place
// at every coordinate.
bool in_place(
    const Case& c, const Placements& operand, const List& to,
    const Placements& result) {
  for (const List& coordinate : reference::coordinates(c.mesh)) {
    if (elements(c.shape, c.mesh, operand, coordinate) !=
        elements(to, c.mesh, result, coordinate)) {
      return false;
    }
  }
  return true;
}

struct Count {
  int64_t calls = 0;
  int64_t cuts = 0;
  int64_t kept = 0;
  int64_t wrong = 0;
  int64_t missed = 0;
};

void fail(int64_t& kind, const Case& c, const List& to) {
  if (++kind <= 5) {
    ADD_FAILURE() << describe(c) << " to " << ::testing::PrintToString(to);
  }
}

void check_local_shapes(
    const Case& c, const ViewResult& result, const List& to, Count& count) {
  const Layout layout(to, MeshShape(c.mesh), result.placements);
  for (const List& coordinate : reference::coordinates(c.mesh)) {
    const ViewLayout local = layout_of(c, &coordinate);
    const bool cut =
        local.results[0].placements != Placements(c.mesh.size(), Replicate());
    const bool right =
        cut ? local.local_arguments.size() == 1 &&
                  local.local_arguments[0].first == 1 &&
                  local.local_arguments[0].second.toIntVector() ==
                      layout.local_shape(coordinate)
            : local.local_arguments.empty();
    if (!right) {
      fail(count.wrong, c, to);
      return;
    }
  }
}

void check(const Case& c, const List& to, Count& count) {
  const ViewLayout layout = layout_of(c, nullptr);
  const ViewResult& result = layout.results.at(0);
  const Placements operand = kept(c, layout);
  ++count.calls;
  for (size_t m = 0; m < c.mesh.size(); ++m) {
    count.cuts += c.placements[m].is_shard();
    count.kept += c.placements[m].is_shard() && layout.keeps[m];
  }
  if (result.shape != to || result.strides != contiguous(to) ||
      !in_place(c, operand, to, result.placements)) {
    fail(count.wrong, c, to);
  }
  if (count.calls % 16 == 0) {
    check_local_shapes(c, result, to, count);
  }
  // On one mesh dim no plain or strided cut is overlooked.
  if (c.mesh.size() == 1 && !layout.keeps[0]) {
    List factors;
    for (int64_t f = 2; f <= 24; ++f) {
      factors.push_back(f);
    }
    for (const Placement& p : cuts_of(to, factors)) {
      if (p.is_shard() && in_place(c, c.placements, to, {p})) {
        fail(count.missed, c, to);
        break;
      }
    }
  }
}

Count check_all(
    const List& mesh, const std::vector<int64_t>& factors, int64_t most) {
  Count count;
  for (int64_t numel = 1; numel <= most; ++numel) {
    const std::vector<List> shapes = shapes_of(numel);
    for (const List& from : shapes) {
      std::vector<Placements> layouts{{}};
      for (size_t m = 0; m < mesh.size(); ++m) {
        std::vector<Placements> longer;
        for (const Placements& front : layouts) {
          for (const Placement& p : cuts_of(from, factors)) {
            longer.push_back(front);
            longer.back().push_back(p);
          }
        }
        layouts = std::move(longer);
      }
      for (const List& to : shapes) {
        for (const Placements& placements : layouts) {
          check(
              {"aten::view", from, contiguous(from), mesh, placements, {to}},
              to, count);
        }
      }
    }
  }
  std::printf(
      "%lld calls, %lld cuts, %lld kept, %lld wrong, %lld missed\n",
      static_cast<long long>(count.calls), static_cast<long long>(count.cuts),
      static_cast<long long>(count.kept), static_cast<long long>(count.wrong),
      static_cast<long long>(count.missed));
  return count;
}

void expect_right(const Count& count) {
  EXPECT_EQ(count.wrong, 0);
  EXPECT_EQ(count.missed, 0);
  EXPECT_GT(count.kept, count.cuts / 4);
}

TEST(ViewRuleTest, KeepsWhatLiesInPlaceOnTwoRanks) {
  expect_right(check_all({2}, {2, 3, 4, 6}, 24));
}
TEST(ViewRuleTest, KeepsWhatLiesInPlaceOnThreeRanks) {
  expect_right(check_all({3}, {2, 3, 4, 6}, 24));
}
TEST(ViewRuleTest, KeepsWhatLiesInPlaceOnFourRanks) {
  expect_right(check_all({4}, {2, 3, 4, 6}, 24));
}
TEST(ViewRuleTest, KeepsWhatLiesInPlaceOnTwoByTwoRanks) {
  const Count count = check_all({2, 2}, {2, 3}, 24);
  EXPECT_EQ(count.wrong, 0);
  EXPECT_GT(count.kept, count.cuts / 4);
}

struct Expected {
  List from;
  List mesh;
  Placements placements;
  List to;
  Placements result;
  std::vector<bool> keeps;
};

TEST(ViewRuleTest, WorkedRows) {
  const std::vector<Expected> rows{
      // Flattening: the first dim of a group stays plain, a later one becomes
      // strided.
      {{4, 6}, {2}, {Shard(0)}, {24}, {Shard(0)}, {true}},
      {{4, 6}, {2}, {Shard(1)}, {24}, {StridedShard(0, 4)}, {true}},
      {{24}, {2}, {StridedShard(0, 4)}, {4, 6}, {Shard(1)}, {true}},
      // Uneven: runs of 10 10 10 0 are no ceil chunks of 30.
      {{6, 5},
       {4},
       {Shard(0)},
       {30},
       {RaggedShard(0, {10, 10, 10, 0})},
       {true}},
      {{30},
       {4},
       {RaggedShard(0, {10, 10, 10, 0})},
       {6, 5},
       {Shard(0)},
       {true}},
      // Splitting: chunks of 6 do not end where rows of 4 do.
      {{24}, {4}, {Shard(0)}, {6, 4}, {Replicate()}, {false}},
      {{24}, {4}, {Shard(0)}, {4, 6}, {Shard(0)}, {true}},
      // Two mesh dims on dims that are joined; f counts what is left of dim 0.
      {{4, 6},
       {2, 2},
       {Shard(0), Shard(1)},
       {24},
       {Shard(0), StridedShard(0, 2)},
       {true, true}},
      {{4, 6},
       {2, 2},
       {Shard(1), Shard(0)},
       {24},
       {StridedShard(0, 4), Shard(0)},
       {true, true}},
      {{3, 4},
       {2, 2},
       {Shard(0), Shard(1)},
       {12},
       {RaggedShard(0, {8, 4}), Replicate()},
       {true, false}},
      {{8, 3},
       {2, 2},
       {Shard(0), Shard(0)},
       {24},
       {Shard(0), Shard(0)},
       {true, true}},
      // Turns go with the dim.
      {{8, 3},
       {2, 2},
       {Shard(0).with_order(1), Shard(0).with_order(0)},
       {24},
       {Shard(0).with_order(1), Shard(0).with_order(0)},
       {true, true}},
      // Attention heads.
      {{2, 6, 8}, {2}, {Shard(2)}, {2, 6, 4, 2}, {Shard(2)}, {true}},
      {{2, 6, 4, 2}, {2}, {Shard(2)}, {2, 6, 8}, {Shard(2)}, {true}},
      {{2, 6},
       {2},
       {Partial(ReduceOp::kMax)},
       {12},
       {Partial(ReduceOp::kMax)},
       {true}},
      // Nothing in it.
      {{0, 4}, {2}, {Shard(1)}, {4, 0}, {Shard(1)}, {true}}};
  for (const Expected& row : rows) {
    const Case c{"aten::view", row.from,       contiguous(row.from),
                 row.mesh,     row.placements, {row.to}};
    const ViewLayout layout = layout_of(c, nullptr);
    EXPECT_EQ(layout.results[0].placements, row.result)
        << describe(c) << " gave " << to_string(layout.results[0].placements);
    EXPECT_EQ(layout.keeps, row.keeps) << describe(c);
  }
}

TEST(ViewRuleTest, RefusesWhatMemoryRefuses) {
  const Case transposed{"aten::view", {4, 6},     {1, 4},
                        {2},          {Shard(0)}, {List{24}}};
  try {
    layout_of(transposed, nullptr);
    ADD_FAILURE() << "no error";
  } catch (const c10::Error& error) {
    EXPECT_NE(
        std::string(error.what()).find("has no view of shape [24]"),
        std::string::npos)
        << error.what();
  }
  const Case wrong_size{"aten::view", {4, 6},     {6, 1},
                        {2},          {Shard(0)}, {List{5, -1}}};
  try {
    layout_of(wrong_size, nullptr);
    ADD_FAILURE() << "no error";
  } catch (const c10::Error& error) {
    EXPECT_NE(
        std::string(error.what()).find("must have the 24 elements"),
        std::string::npos)
        << error.what();
  }
}

}  // namespace
}  // namespace tessera::view_tests
