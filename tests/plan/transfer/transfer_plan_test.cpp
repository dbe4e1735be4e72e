// Plans of transfers, carried out on buffers of this process: what every rank
// ends with must be its part of the target, however the data travel.
#include "plan/transfer/transfer_plan.h"

#include <numeric>

#include <gtest/gtest.h>
#include <tessera/layout/notation.h>

namespace tessera::detail {
namespace {

using Buffer = std::vector<int64_t>;
using Buffers = std::vector<Buffer>;  // per rank
constexpr int64_t kNothing = -1;

void copy_strided(
    const StridedCopy& copy, const Buffer& from, Buffer& to, size_t dim,
    int64_t at, int64_t goes) {
  if (dim == copy.sizes.size()) {
    to.at(static_cast<size_t>(goes)) = from.at(static_cast<size_t>(at));
    return;
  }
  for (int64_t i = 0; i < copy.sizes[dim]; ++i) {
    copy_strided(
        copy, from, to, dim + 1, at + i * copy.from_strides[dim],
        goes + i * copy.to_strides[dim]);
  }
}

void run(const StridedCopies& copies, const Buffer& from, Buffer& to) {
  for (const StridedCopy& copy : copies) {
    copy_strided(copy, from, to, 0, copy.from, copy.to);
  }
}

// The elements of a region, each told by its row-major number in the tensor.
Buffer elements(const Region& region, const std::vector<int64_t>& shape) {
  Buffer result{0};
  for (size_t d = 0; d < shape.size(); ++d) {
    Buffer longer;
    for (const int64_t front : result) {
      for (const Run& run : region[d]) {
        for (int64_t i = run.begin; i < run.end; ++i) {
          longer.push_back(front * shape[d] + i);
        }
      }
    }
    result = std::move(longer);
  }
  return result;
}

Buffers held_by(const Layout& layout, const std::vector<int64_t>& ranks) {
  Buffers result;
  for (const int64_t rank : ranks) {
    const auto at = layout.mesh().coordinate_of(rank);
    result.push_back(
        at ? elements(region_of(layout, *at), layout.shape()) : Buffer());
  }
  return result;
}

Buffers held_by(const BoxLayout& layout, const std::vector<int64_t>& ranks) {
  Buffers result(ranks.size());
  for (size_t r = 0; r < ranks.size(); ++r) {
    for (const Tile& tile : layout.tiles()) {
      if (tile.rank == ranks[r]) {
        const Buffer more = elements(region_of(tile.box), layout.shape());
        result[r].insert(result[r].end(), more.begin(), more.end());
      }
    }
  }
  return result;
}

Buffer sub_buffer(
    const Buffer& all, const std::vector<int64_t>& counts, size_t i) {
  const int64_t begin = std::accumulate(
      counts.begin(), counts.begin() + static_cast<int64_t>(i), int64_t{0});
  return Buffer(all.begin() + begin, all.begin() + begin + counts[i]);
}

template <class Tensors>
void expect_arrives(
    const Tensors& source, const Tensors& target,
    const std::vector<int64_t>& ranks) {
  const Buffers held = held_by(source, ranks);
  const Buffers wanted = held_by(target, ranks);
  const auto plan_of = [&](size_t r, bool direct) {
    return plan_transfer(source, target, {ranks, ranks[r], direct});
  };
  for (size_t r = 0; r < ranks.size(); ++r) {
    const TransferPlan direct = plan_of(r, true);
    Buffer read(wanted[r].size(), kNothing);
    for (size_t from = 0; from < ranks.size(); ++from) {
      run(direct.reads[from], held[from], read);
    }
    EXPECT_EQ(read, wanted[r]) << "rank " << ranks[r];
    EXPECT_TRUE(direct.pack.empty() && direct.unpack.empty());

    const TransferPlan plan = plan_of(r, false);
    EXPECT_EQ(plan.sent, direct.sent);
    EXPECT_EQ(plan.received, direct.received);
    EXPECT_TRUE(plan.reads.empty());
    Buffer arrived;
    for (size_t from = 0; from < ranks.size(); ++from) {
      const TransferPlan theirs = plan_of(from, false);
      Buffer packed(
          static_cast<size_t>(std::accumulate(
              theirs.sent.begin(), theirs.sent.end(), int64_t{0})),
          kNothing);
      run(theirs.pack, held[from], packed);
      EXPECT_EQ(theirs.sent[r], plan.received[from]);
      const Buffer mine = sub_buffer(packed, theirs.sent, r);
      arrived.insert(arrived.end(), mine.begin(), mine.end());
    }
    Buffer result(wanted[r].size(), kNothing);
    run(plan.stay, held[r], result);
    run(plan.unpack, arrived, result);
    EXPECT_EQ(result, wanted[r]) << "rank " << ranks[r];
  }
}

Layout layout_of(const std::string& text) {
  return parse_layout(text).layout;
}

TEST(TransferPlanTest, LayoutsOnOneMeshGiveEveryRankItsShard) {
  for (const char* from : {"S(0)", "S(1)", "SS(0,2)", "RS(0,[1,4,0,2])", "R"}) {
    for (const char* to : {"S(0)", "S(1)", "SS(1,3)", "RS(1,[5,0,0,1])", "R"}) {
      const std::string shape = "[7, 6] ";
      SCOPED_TRACE(std::string(from) + " -> " + to);
      expect_arrives(
          layout_of(shape + from + " @ mesh(4)"),
          layout_of(shape + to + " @ mesh(4)"), {0, 1, 2, 3});
    }
  }
}

TEST(TransferPlanTest, LayoutsOnTwoMeshesShareTheCopies) {
  expect_arrives(
      layout_of("[5, 4] S(0) R @ mesh(2, 2)"),
      layout_of("[5, 4] S(1) @ mesh(3; ranks 5 3 4)"), {0, 1, 2, 3, 4, 5});
}

TEST(TransferPlanTest, AGroupOfOneMeshDimIsEnoughWhereTheOthersStay) {
  expect_arrives(
      layout_of("[6, 4] S(0) S(0) @ mesh(2, 2)"),
      layout_of("[6, 4] S(0) S(1) @ mesh(2, 2)"), {2, 3});
}

TEST(TransferPlanTest, TilesOfARankLieOneAfterAnother) {
  const BoxLayout source(
      {4, 4}, {{{{0, 0}, {2, 4}}, 7, ""},
               {{{2, 0}, {2, 1}}, 3, ""},
               {{{2, 1}, {2, 3}}, 7, ""}});
  const BoxLayout target(
      {4, 4}, {{{{0, 0}, {4, 1}}, 3, ""},
               {{{0, 1}, {1, 3}}, 7, ""},
               {{{1, 1}, {3, 3}}, 5, ""}});
  expect_arrives(source, target, {7, 3, 5});
}

TEST(TransferPlanTest, WantedBoxesAreFilledFromSavedOnesWithoutRanks) {
  const std::vector<int64_t> shape{6, 5};
  const std::vector<Box> saved{
      {{0, 0}, {2, 5}}, {{2, 0}, {4, 2}}, {{2, 2}, {4, 3}}};
  // They overlap, and leave something out.
  const std::vector<Box> wanted{
      {{1, 1}, {4, 3}}, {{0, 0}, {6, 1}}, {{3, 3}, {0, 2}}, {{5, 4}, {1, 1}}};
  Buffers filled;
  for (const Box& box : wanted) {
    filled.emplace_back(static_cast<size_t>(box.numel()), kNothing);
  }
  for (const BoxCopies& pair : copies_between_boxes(saved, wanted)) {
    run(pair.copies, elements(region_of(saved[pair.source]), shape),
        filled[pair.target]);
  }
  for (size_t i = 0; i < wanted.size(); ++i) {
    EXPECT_EQ(filled[i], elements(region_of(wanted[i]), shape)) << i;
  }
}

TEST(TransferPlanTest, TheCopiesOfABoxAreRunsWhereBothSidesAllowIt) {
  const auto copies =
      copies_between_boxes({{{0}, {4}}, {{4}, {4}}}, {{{2}, {4}}});
  ASSERT_EQ(copies.size(), 2U);
  EXPECT_EQ(copies[0].copies, (StridedCopies{{2, 0, {2}, {1}, {1}}}));
  EXPECT_EQ(copies[1].copies, (StridedCopies{{0, 2, {2}, {1}, {1}}}));
}

}  // namespace
}  // namespace tessera::detail
