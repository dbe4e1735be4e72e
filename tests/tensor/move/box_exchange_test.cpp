// Exchanges between explicit tilings, against slices of the whole value. Data
// has a distinct value per element; rerun a random case with TESSERA_SEED=n.
#include <tensor/move/box_exchange.h>

#include <tessera/plan/exchange.h>

#include "harness/sharded_test.h"
#include "layout/boxes/random_tiling.h"

namespace tessera {
namespace {

using detail::exchange_boxes;
using testing::error_of;
using List = std::vector<int64_t>;
using Tensors = std::vector<at::Tensor>;

// Every element differs, but of bools, and i64 needs more than 24 bits.
at::Tensor whole_value(const List& shape, at::ScalarType dtype) {
  const at::Tensor count =
      at::arange(c10::multiply_integers(shape), at::kLong).reshape(shape);
  if (dtype == at::kBool) {
    return count.mul(count).remainder(7).lt(3);
  }
  if (dtype == at::kLong) {
    return count.add((int64_t{1} << 53) + 1);
  }
  if (c10::isComplexType(dtype)) {
    return at::complex(count.to(at::kFloat), count.to(at::kFloat).neg())
        .to(dtype);
  }
  return count.to(dtype);
}

at::Tensor part(const at::Tensor& value, const Box& box) {
  at::Tensor result = value;
  for (size_t d = 0; d < box.sizes.size(); ++d) {
    result =
        result.narrow(static_cast<int64_t>(d), box.offsets[d], box.sizes[d]);
  }
  return result;
}

// What a rank holds; `strided` leaves views of the whole value.
Tensors held_by(
    const at::Tensor& value, const BoxLayout& layout, bool strided = false) {
  Tensors held;
  for (const Box& box : layout.boxes(rank())) {
    const at::Tensor view = part(value, box);
    held.push_back(strided ? view : view.clone(at::MemoryFormat::Contiguous));
  }
  return held;
}

std::string difference(const Tensors& got, const Tensors& want) {
  if (got.size() != want.size()) {
    return c10::str(got.size(), " tensors, not ", want.size());
  }
  for (size_t i = 0; i < got.size(); ++i) {
    if (got[i].scalar_type() != want[i].scalar_type() ||
        !at::equal(got[i], want[i]) || !got[i].is_contiguous()) {
      return c10::str("tensor ", i, " is\n", got[i], "\nnot\n", want[i]);
    }
  }
  return "";
}

// Exchanges and compares values, collectives and bytes; says what is wrong.
std::string exchange_and_compare(
    const BoxLayout& source, const BoxLayout& target, at::ScalarType dtype,
    const Communicator& group, bool strided = false) {
  const at::Tensor value = whole_value(source.shape(), dtype);
  const CommLog log;
  const Tensors got = exchange_boxes(
      held_by(value, source, strided), source, target, dtype, group);
  std::string wrong = difference(got, held_by(value, target));
  const int64_t bytes = exchange_elements_on(source, target, rank()) *
                        static_cast<int64_t>(value.element_size());
  const auto entries = log.entries();
  const bool silent = stays_in_place(source, target);
  if (entries.size() != (silent ? 0U : 1U) || log.bytes() != bytes ||
      (!silent && entries[0].kind != "exchange")) {
    wrong += c10::str("\nlogged\n", to_string(log), "not ", bytes, " bytes");
  }
  return wrong;
}

List random_shape(Random& random) {
  List shape;
  for (int64_t d = random.between(0, 3); d > 0; --d) {
    shape.push_back(random.between(random.between(0, 1), 7));
  }
  return shape;
}

const at::ScalarType kDtypes[] = {at::kFloat,         at::kLong,
                                  at::kBool,          at::kByte,
                                  at::kComplexDouble, at::kBFloat16};

// All ranks draw the same cases; those outside a group draw and wait.
void compare_random_cases(uint64_t cases, const std::vector<List>& groups) {
  const char* chosen = std::getenv("TESSERA_SEED");
  const uint64_t first = chosen ? std::strtoull(chosen, nullptr, 10) : 0;
  for (uint64_t seed = first; seed < (chosen ? first + 1 : cases); ++seed) {
    Random random(seed);
    const List& ranks = groups[seed % groups.size()];
    if (std::find(ranks.begin(), ranks.end(), rank()) == ranks.end()) {
      continue;
    }
    const List shape = random_shape(random);
    const int64_t cuts = random.between(0, 8);
    const BoxLayout source = random_tiling(random, shape, ranks, cuts);
    const BoxLayout target = random_tiling(random, shape, ranks, cuts);
    const std::string wrong = exchange_and_compare(
        source, target, kDtypes[random.between(0, 5)],
        init().communicator(ranks), random.flip());
    EXPECT_EQ(wrong, "") << "TESSERA_SEED=" << seed << ", rank " << rank()
                         << ":" << to_text(source) << " ->" << to_text(target);
  }
}

class BoxExchangeOnRanks : public ::testing::TestWithParam<int> {};

TEST_P(BoxExchangeOnRanks, RandomTilingsArriveBitExact) {
  List ranks;
  for (int64_t r = 0; r < GetParam(); ++r) {
    ranks.push_back(r);
  }
  run_ranks(GetParam(), [&] { compare_random_cases(400, {ranks}); });
}

INSTANTIATE_TEST_SUITE_P(OneToFive, BoxExchangeOnRanks, ::testing::Range(1, 6));

TEST(ExchangeBoxes, TilesNameGlobalRanksOfAnyGroup) {
  run_ranks(5, [] {
    compare_random_cases(
        500, {{4, 1, 3}, {2, 0}, {3}, {4, 3, 2, 1, 0}, {1, 2, 4, 0}});
  });
}

BoxLayout tiles_of(const std::string& text) {
  return BoxLayout::from(parse_layout(text).layout);
}

TEST(ExchangeBoxes, ChunksChangeRanksInCycles) {
  run_ranks(4, [] {
    for (const char* target :
         {"[10, 3] S(0) @ mesh(4; ranks 1 2 0 3)",
          "[10, 3] S(0) @ mesh(4; ranks 1 2 3 0)",
          "[10, 3] S(1) @ mesh(4; ranks 3 0 2 1)",
          "[10, 3] S(0) S(1) @ mesh(2, 2)", "[10, 3] S(0) @ mesh(1)",
          "[10, 3] RS(0,[0,7,0,3]) @ mesh(4)"}) {
      const BoxLayout chunks = tiles_of("[10, 3] S(0) @ mesh(4)");
      const Communicator all = init().communicator();
      EXPECT_EQ(
          exchange_and_compare(chunks, tiles_of(target), at::kLong, all), "");
      EXPECT_EQ(
          exchange_and_compare(tiles_of(target), chunks, at::kLong, all), "");
    }
  });
}

TEST(ExchangeBoxes, LargeTensorsAreSharedAmongThreads) {
  run_ranks(4, [] {
    Random random(1);
    const List shape{300, 700};
    const BoxLayout source = random_tiling(random, shape, {0, 1, 2, 3}, 12);
    const BoxLayout target = random_tiling(random, shape, {0, 1, 2}, 9);
    const Communicator all = init().communicator();
    EXPECT_EQ(exchange_and_compare(source, target, at::kDouble, all), "");
    EXPECT_EQ(exchange_and_compare(target, source, at::kDouble, all, true), "");
  });
}

TEST(ExchangeBoxes, MovesScalarsAndNothingAtAll) {
  run_ranks(3, [] {
    const Communicator all = init().communicator();
    const BoxLayout here({}, {{{{}, {}}, 0}});
    const BoxLayout there({}, {{{{}, {}}, 2}});
    EXPECT_EQ(exchange_and_compare(here, there, at::kComplexFloat, all), "");
    EXPECT_EQ(
        exchange_and_compare(
            tiles_of("[0, 4] S(1) @ mesh(3)"),
            tiles_of("[0, 4] S(0) @ mesh(2)"), at::kBool, all),
        "");
  });
}

TEST(ExchangeBoxes, EqualTilesGiveWhatIsHeld) {
  run_ranks(2, [] {
    const BoxLayout rows = tiles_of("[4, 4] S(0) @ mesh(2)");
    const CommLog log;
    const Tensors held{at::ones({4, 2}).t().requires_grad_()};
    const Tensors got =
        exchange_boxes(held, rows, rows, at::kFloat, init().communicator());
    EXPECT_TRUE(got[0].is_same(held[0]));
    EXPECT_EQ(log.count(), 0);
  });
}

TEST(ExchangeBoxes, OtherCutsOnTheSameRanksAreNotCommunicated) {
  run_ranks(2, [] {
    const int64_t first = 0;
    const BoxLayout rows = tiles_of("[4, 4] S(0) @ mesh(2)");
    const BoxLayout quarters(
        {4, 4}, {{{{0, 2}, {2, 2}}, first},
                 {{{2, 0}, {2, 4}}, 1},
                 {{{0, 0}, {2, 2}}, first}});
    // The tensors of a rank are its own: none is a view of another.
    const at::Tensor value = whole_value({4, 4}, at::kFloat);
    const CommLog log;
    const Tensors got = exchange_boxes(
        held_by(value, rows), rows, quarters, at::kFloat,
        init().communicator());
    EXPECT_EQ(difference(got, held_by(value, quarters)), "");
    EXPECT_EQ(log.count(), 0);
    if (rank() == 0) {
      EXPECT_FALSE(got[0].is_alias_of(got[1]));
      EXPECT_EQ(got[0].storage().nbytes(), 16U);
    }
  });
}

TEST(ExchangeBoxes, TakesLazyViewsAndTensorsWithGradients) {
  run_ranks(2, [] {
    const BoxLayout rows = tiles_of("[4, 4] S(0) @ mesh(2)");
    const BoxLayout columns = tiles_of("[4, 4] S(1) @ mesh(2)");
    const at::Tensor value =
        whole_value({4, 4}, at::kComplexFloat).requires_grad_();
    const Communicator all = init().communicator();
    for (const at::Tensor& lazy :
         {value.conj(), at::imag(value.conj()), value.t(),
          at::_neg_view(at::real(value).clone())}) {
      const Tensors got = exchange_boxes(
          held_by(lazy, rows, true), rows, columns, lazy.scalar_type(), all);
      EXPECT_EQ(
          difference(
              got,
              held_by(lazy.detach().resolve_conj().resolve_neg(), columns)),
          "");
      EXPECT_FALSE(got[0].requires_grad());
    }
  });
}

TEST(ExchangeBoxes, IsOneLineOfALog) {
  run_ranks(3, [] {
    if (rank() == 1) {
      return;
    }
    const BoxLayout source({4}, {{{{0}, {3}}, 0}, {{{3}, {1}}, 2}});
    const BoxLayout target({4}, {{{{0}, {1}}, 0}, {{{1}, {3}}, 2}});
    const Communicator group = init().communicator({2, 0});
    const CommLog log;
    exchange_boxes(
        held_by(whole_value({4}, at::kInt), source), source, target, at::kInt,
        group);
    ASSERT_EQ(log.count(), 1);
    EXPECT_EQ(
        log.entries()[0].line(),
        "exchange group {2, 0}: [4], 2 tiles -> 2 tiles, 8 bytes");
    EXPECT_EQ(log.largest_over(group)[0].bytes, 8);
  });
}

TEST(ExchangeBoxes, PutsEachTensorOnTheDeviceOfItsTile) {
  run_ranks(2, [] {
    // Rank 1 has no tile here, so nothing but the layouts tells it to travel on
    // the CPU.
    const BoxLayout source({6}, {{{{0}, {6}}, 0, "cpu:0"}});
    // A second kind of device that every build has; it keeps no values.
    const BoxLayout target(
        {6}, {{{{0}, {1}}, 1, "meta"},
              {{{1}, {2}}, 0, "cpu:0"},
              {{{3}, {3}}, 1, "cpu"}});
    const at::Tensor value = whole_value({6}, at::kShort);
    Tensors got = exchange_boxes(
        held_by(value, source), source, target, at::kShort,
        init().communicator());
    if (rank() == 1) {
      ASSERT_EQ(got.size(), 2U);
      EXPECT_TRUE(got[0].is_meta());
      EXPECT_EQ(got[0].sizes(), (List{1}));
      got.erase(got.begin());
      EXPECT_EQ(difference(got, {part(value, {{3}, {3}})}), "");
    } else {
      EXPECT_EQ(difference(got, held_by(value, target)), "");
    }
  });
}

TEST(ExchangeBoxes, GoesThroughTheCpuBetweenGpusAndCpus) {
  if (!at::hasCUDA()) {
    GTEST_SKIP() << "needs a second kind of device";
  }
  run_ranks(2, [] {
    const List shape{6};
    const BoxLayout source(
        shape, {{{{0}, {4}}, 0, "cuda:0"}, {{{4}, {2}}, 1, "cpu"}});
    const BoxLayout target(
        shape,
        {{{{0}, {1}}, 1, "cuda"}, {{{1}, {2}}, 0, ""}, {{{3}, {3}}, 1, "cpu"}});
    const at::Tensor value = whole_value(shape, at::kDouble);
    Tensors held = held_by(value, source);
    held[0] = held[0].to(rank() == 0 ? at::kCUDA : at::kCPU);
    Tensors got = exchange_boxes(
        held, source, target, at::kDouble, init().communicator());
    EXPECT_EQ(got[0].is_cuda(), rank() == 1);
    got[0] = got[0].cpu();
    EXPECT_EQ(difference(got, held_by(value, target)), "");
    const BoxLayout on_device(
        shape, {{{{0}, {2}}, 0, "cuda:0"}, {{{2}, {4}}, 1, "cuda:0"}});
    const BoxLayout turned(
        shape, {{{{0}, {2}}, 1, "cuda:0"}, {{{2}, {4}}, 0, "cuda:0"}});
    const Tensors moved = exchange_boxes(
        {held_by(value, on_device)[0].cuda()}, on_device, turned, at::kDouble,
        init().communicator());
    EXPECT_TRUE(moved[0].is_cuda());
    EXPECT_EQ(difference({moved[0].cpu()}, held_by(value, turned)), "");
  });
}

TEST(ExchangeBoxes, RefusesWhatDoesNotFitTheTiles) {
  run_ranks(2, [] {
    const Communicator all = init().communicator();
    const BoxLayout rows = tiles_of("[4] S(0) @ mesh(2)");
    const BoxLayout turned = tiles_of("[4] S(0) @ mesh(2; ranks 1 0)");
    const Tensors one{at::zeros({2})};
    const auto call = [&](const Tensors& held, const BoxLayout& from,
                          const BoxLayout& to, at::ScalarType dtype) {
      return error_of([&] { exchange_boxes(held, from, to, dtype, all); });
    };
    const auto expect = [](const std::string& error, const std::string& text) {
      EXPECT_NE(error.find(text), std::string::npos) << error;
    };
    expect(
        call({}, rows, turned, at::kFloat),
        c10::str(
            "exchange_boxes on group {0, 1}, rank ", rank(),
            ": there must be one tensor per tile of this rank; got 0 for 1"));
    expect(
        call({at::zeros({3})}, rows, turned, at::kFloat),
        "must have the sizes of its tile");
    expect(
        call({at::Tensor()}, rows, turned, at::kFloat), "an undefined tensor");
    expect(
        call(one, rows, turned, at::kDouble), "must have dtype f64; got f32");
    expect(
        call(one, rows, tiles_of("[5] S(0) @ mesh(2)"), at::kFloat),
        "both tilings must have one shape; got [4] and [5]");
    expect(
        call(one, rows, tiles_of("[4] S(0) @ mesh(3)"), at::kFloat),
        "every tile must be of a rank of the group; got [4:4] of rank 2");
  });
}

}  // namespace
}  // namespace tessera
