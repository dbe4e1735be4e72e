#include <tessera/plan/exchange.h>

#include <gtest/gtest.h>
#include <tessera/layout/notation.h>

#include "layout/expect_error.h"

namespace tessera {
namespace {

Layout layout_of(const std::string& text) {
  return parse_layout(text).layout;
}

TEST(ExchangeTest, ListsTheBoxesOfARank) {
  const Layout source = layout_of("[4, 4] S(0) @ mesh(2)");
  const Layout target = layout_of("[4, 4] S(1) @ mesh(2)");
  const std::vector<Transfer> expected{
      {0, 0, {{0, 0}, {2, 2}}},
      {1, 0, {{2, 0}, {2, 2}}},
      {0, 1, {{0, 2}, {2, 2}}}};
  EXPECT_EQ(exchange_transfers(source, target, 0), expected);
  EXPECT_EQ(exchange_elements(source, target), 4);
}

TEST(ExchangeTest, TakesTheCopyAtTheOwnCoordinate) {
  const Layout source = layout_of("[4] S(0) R @ mesh(2, 2)");
  const Layout target = layout_of("[4] R R @ mesh(2, 2)");
  for (const int64_t rank : {0, 1, 2, 3}) {
    for (const Transfer& move : exchange_transfers(source, target, rank)) {
      EXPECT_EQ(move.from % 2, move.to % 2);
    }
  }
}

TEST(ExchangeTest, RanksOutsideTheSourceMeshShareItsCopies) {
  const Layout source = layout_of("[4] R @ mesh(2)");
  const Layout target = layout_of("[4] R @ mesh(4; ranks 4 5 6 7)");
  EXPECT_EQ(exchange_transfers(source, target, 0).size(), 2U);
  EXPECT_EQ(exchange_transfers(source, target, 5)[0].from, 1);
  EXPECT_EQ(exchange_elements(source, target), 8);
}

TEST(ExchangeTest, CountsTheBusiestSender) {
  const Layout source = layout_of("[8] RS(0,[8,0,0,0]) @ mesh(4)");
  const Layout target = layout_of("[8] S(0) @ mesh(4)");
  EXPECT_EQ(exchange_elements(source, target), 6);
}

TEST(ExchangeTest, RefusesPartialsAndOtherShapes) {
  const Layout partial = layout_of("[8] P(sum) @ mesh(2)");
  const Layout target = layout_of("[8] R @ mesh(2)");
  EXPECT_VALUE_ERROR(
      exchange_elements(partial, target), "must be reduced first");
  EXPECT_VALUE_ERROR(
      exchange_transfers(layout_of("[7] R @ mesh(2)"), target, 0),
      "must have one shape");
  EXPECT_INDEX_ERROR(
      exchange_transfers(target, target, 2), "must be in one of the meshes");
}

}  // namespace
}  // namespace tessera
