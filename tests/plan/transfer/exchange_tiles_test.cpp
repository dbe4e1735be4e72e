#include <chrono>
#include <map>

#include <gtest/gtest.h>
#include <tessera/layout/notation.h>
#include <tessera/plan/exchange.h>

#include "layout/boxes/random_tiling.h"
#include "layout/expect_error.h"

namespace tessera {
namespace {

using List = std::vector<int64_t>;

BoxLayout tiles_of(const std::string& text) {
  return BoxLayout::from(parse_layout(text).layout);
}

// Calls f(index) for every element of a shape.
template <class F>
void for_each_element(const List& shape, const F& f) {
  List index(shape.size(), 0);
  if (whole(shape).empty()) {
    return;
  }
  while (true) {
    f(index);
    size_t d = shape.size();
    while (d > 0 && ++index[d - 1] == shape[d - 1]) {
      index[--d] = 0;
    }
    if (d == 0) {
      return;
    }
  }
}

const BoxLayout::Tile& tile_with(const BoxLayout& layout, const List& index) {
  for (const BoxLayout::Tile& tile : layout.tiles()) {
    if (tile.box.contains(index)) {
      return tile;
    }
  }
  throw std::logic_error("no tile");
}

// Who sends each element to whom, one element at a time.
std::map<List, std::pair<int64_t, int64_t>> routes(
    const BoxLayout& source, const BoxLayout& target) {
  std::map<List, std::pair<int64_t, int64_t>> result;
  for_each_element(source.shape(), [&](const List& index) {
    result[index] = {
        tile_with(source, index).rank, tile_with(target, index).rank};
  });
  return result;
}

std::optional<std::string> wrong_transfers(
    const BoxLayout& source, const BoxLayout& target, int64_t rank) {
  std::map<List, std::pair<int64_t, int64_t>> listed;
  std::optional<std::string> wrong;
  for (const Transfer& move : exchange_transfers(source, target, rank)) {
    for_each_element(source.shape(), [&](const List& index) {
      if (move.box.contains(index) &&
          !listed.emplace(index, std::pair(move.from, move.to)).second) {
        wrong = "an element is listed twice";
      }
    });
  }
  auto expected = routes(source, target);
  std::erase_if(expected, [&](const auto& entry) {
    return entry.second.first != rank && entry.second.second != rank;
  });
  return listed == expected ? wrong : "other elements than by definition";
}

// Every pair of tiles, in the documented order.
std::vector<Transfer> all_transfers(
    const BoxLayout& source, const BoxLayout& target) {
  std::vector<Transfer> result;
  for (const BoxLayout::Tile& to : target.tiles()) {
    for (const BoxLayout::Tile& from : source.tiles()) {
      if (const auto box = intersect(from.box, to.box)) {
        result.push_back({from.rank, to.rank, *box});
      }
    }
  }
  std::stable_sort(
      result.begin(), result.end(), [](const Transfer& a, const Transfer& b) {
        return std::pair(a.to, a.from) < std::pair(b.to, b.from);
      });
  return result;
}

// The larger of what a rank sends and receives, element by element.
int64_t moved_on(
    const BoxLayout& source, const BoxLayout& target, int64_t rank) {
  int64_t sent = 0;
  int64_t received = 0;
  for (const auto& [index, route] : routes(source, target)) {
    sent += route.first == rank && route.second != rank ? 1 : 0;
    received += route.second == rank && route.first != rank ? 1 : 0;
  }
  return std::max(sent, received);
}

TEST(BoxExchange, ListsTransfersByReceiverSenderAndTiles) {
  // 0 0 1      5 5 5
  // 3 0 1  ->  5 5 5
  // 3 2 2      1 1 1
  const BoxLayout source(
      {3, 3}, {{{{0, 0}, {1, 2}}, 0},
               {{{0, 2}, {2, 1}}, 1},
               {{{2, 1}, {1, 2}}, 2},
               {{{1, 0}, {2, 1}}, 3},
               {{{1, 1}, {1, 1}}, 0}});
  const BoxLayout target(
      {3, 3}, {{{{2, 0}, {1, 3}}, 1}, {{{0, 0}, {2, 3}}, 5}});
  EXPECT_EQ(
      exchange_transfers(source, target, 5), (std::vector<Transfer>{
                                                 {0, 5, {{0, 0}, {1, 2}}},
                                                 {0, 5, {{1, 1}, {1, 1}}},
                                                 {1, 5, {{0, 2}, {2, 1}}},
                                                 {3, 5, {{1, 0}, {1, 1}}}}));
  EXPECT_EQ(
      exchange_transfers(source, target, 1), (std::vector<Transfer>{
                                                 {2, 1, {{2, 1}, {1, 2}}},
                                                 {3, 1, {{2, 0}, {1, 1}}},
                                                 {1, 5, {{0, 2}, {2, 1}}}}));
  EXPECT_EQ(exchange_transfers(source, target, 4), std::vector<Transfer>{});
  EXPECT_EQ(exchange_elements(source, target), 6);
  EXPECT_EQ(exchange_elements_on(source, target, 1), 3);
  EXPECT_EQ(exchange_elements_on(source, target, 4), 0);
  EXPECT_FALSE(stays_in_place(source, target));
}

TEST(BoxExchange, MovesEveryElementAsTheDefinitionSays) {
  for_random_cases(
      3000, 6, [](Random& random, int64_t size) -> std::optional<std::string> {
        List shape;
        for (int64_t d = random.between(0, 3); d > 0; --d) {
          shape.push_back(random.between(random.between(0, 1), size + 1));
        }
        const List ranks{7, 0, 3, 12};
        const BoxLayout source = random_tiling(random, shape, ranks, size);
        const BoxLayout target = random_tiling(random, shape, ranks, size);
        const std::string text = to_text(source) + " ->" + to_text(target);
        int64_t most = 0;
        for (const int64_t rank : {0, 3, 7, 9, 12}) {
          if (const auto wrong = wrong_transfers(source, target, rank)) {
            return *wrong + " on rank " + std::to_string(rank) + ":" + text;
          }
          const int64_t moved = moved_on(source, target, rank);
          if (moved != exchange_elements_on(source, target, rank)) {
            return "other counts on rank " + std::to_string(rank) + ":" + text;
          }
          most = std::max(most, moved);
          auto ordered = all_transfers(source, target);
          std::erase_if(ordered, [&](const Transfer& move) {
            return move.from != rank && move.to != rank;
          });
          if (ordered != exchange_transfers(source, target, rank)) {
            return "another order on rank " + std::to_string(rank) + ":" + text;
          }
        }
        if (most != exchange_elements(source, target) ||
            (most == 0) != stays_in_place(source, target)) {
          return "other traffic in all:" + text;
        }
        return std::nullopt;
      });
}

TEST(BoxExchange, AgreesWithTheExchangeBetweenLayouts) {
  const char* texts[] = {
      "[8, 6] S(0) @ mesh(4)", "[8, 6] S(1) @ mesh(4; ranks 2 0 3 1)",
      "[8, 6] S(0) S(1) @ mesh(2, 2)", "[8, 6] SS(0,2) @ mesh(3)",
      "[8, 6] RS(0,[0,5,3]) @ mesh(3)"};
  for (const char* from : texts) {
    for (const char* to : texts) {
      EXPECT_EQ(
          exchange_elements(tiles_of(from), tiles_of(to)),
          exchange_elements(parse_layout(from).layout, parse_layout(to).layout))
          << from << " -> " << to;
    }
  }
}

TEST(BoxExchange, StaysInPlaceWhereOnlyTheCutsDiffer) {
  const BoxLayout halves = tiles_of("[8] S(0) @ mesh(2)");
  const BoxLayout pieces(
      {8},
      {{{{6}, {2}}, 1}, {{{0}, {1}}, 0}, {{{1}, {3}}, 0}, {{{4}, {2}}, 1}});
  EXPECT_TRUE(stays_in_place(halves, pieces));
  EXPECT_EQ(exchange_elements(halves, pieces), 0);
  EXPECT_TRUE(stays_in_place(
      tiles_of("[0] S(0) @ mesh(2)"),
      tiles_of("[0] S(0) @ mesh(2; ranks 1 0)")));
}

TEST(BoxExchange, PlansFourThousandTilesInWellUnderASecond) {
  const BoxLayout rows = tiles_of("[4096, 4096] S(0) @ mesh(4096)");
  const BoxLayout columns = tiles_of("[4096, 4096] S(1) @ mesh(4096)");
  const BoxLayout grid = tiles_of("[4096, 4096] S(0) S(1) @ mesh(64, 64)");
  const BoxLayout shifted = tiles_of("[4096, 4096] S(1) S(0) @ mesh(32, 128)");
  const auto start = std::chrono::steady_clock::now();
  EXPECT_EQ(exchange_transfers(rows, columns, 5).size(), 8191U);
  EXPECT_EQ(exchange_transfers(grid, shifted, 5).size(), 4U);
  EXPECT_EQ(exchange_transfers(grid, grid, 5).size(), 1U);
  EXPECT_EQ(exchange_elements(grid, shifted), 4096);
  EXPECT_TRUE(stays_in_place(grid, grid));
  EXPECT_FALSE(stays_in_place(rows, columns));
  const std::chrono::duration<double> plans =
      std::chrono::steady_clock::now() - start;
  // Every row meets every column: 16 million pairs to count.
  EXPECT_EQ(exchange_elements(rows, columns), 4095);
  const std::chrono::duration<double> all =
      std::chrono::steady_clock::now() - start;
  RecordProperty("plans_ms", std::to_string(plans.count() * 1e3));
  RecordProperty("all_ms", std::to_string(all.count() * 1e3));
  EXPECT_LT(all.count(), 5.0);  // a loaded machine; far below when alone
}

TEST(BoxExchange, RefusesTilingsOfDifferentShapes) {
  const BoxLayout a = tiles_of("[8] S(0) @ mesh(2)");
  const BoxLayout b = tiles_of("[9] S(0) @ mesh(2)");
  EXPECT_VALUE_ERROR(
      exchange_transfers(a, b, 0),
      "exchange_transfers: both tilings must have one shape; got [8] and [9]");
  EXPECT_VALUE_ERROR(exchange_elements(a, b), "both tilings must have one");
  EXPECT_VALUE_ERROR(
      exchange_elements_on(a, b, 0), "both tilings must have one");
  EXPECT_VALUE_ERROR(stays_in_place(a, b), "both tilings must have one");
}

}  // namespace
}  // namespace tessera
