// The host against an accelerator. Without one, the accelerator's algorithm
// runs on host tensors: the arithmetic is the same.
#include <limits>

#include <ATen/Context.h>
#include <tensor/random/fill/fill.h>
#include <tensor/random/philox/philox_blocks.h>
#include <tensor/random/random_ops.h>

namespace tessera {
namespace {

using detail::Distribution;
using detail::draw_on_device;
using detail::draw_values;
using detail::GlobalIndexRanges;
using Kind = Distribution::Kind;

TEST(Philox, GivesThePublishedVectors) {
  using detail::philox;
  using detail::PhiloxBlock;
  EXPECT_EQ(
      philox({0, 0, 0, 0}, {0, 0}),
      (PhiloxBlock{0x6627e8d5, 0xe169c58d, 0xbc57ac4c, 0x9b00dbd8}));
  constexpr uint32_t kOnes = 0xffffffff;
  EXPECT_EQ(
      philox({kOnes, kOnes, kOnes, kOnes}, {kOnes, kOnes}),
      (PhiloxBlock{0x408f276d, 0x41c83b0e, 0xa20bc7c6, 0x6d5451fd}));
  EXPECT_EQ(
      philox(
          {0x243f6a88, 0x85a308d3, 0x13198a2e, 0x03707344},
          {0xa4093822, 0x299f31d0}),
      (PhiloxBlock{0xd16cfe09, 0x94fdcceb, 0x5001e420, 0x24126ea1}));
}

TEST(Philox, GivesTheSameBlocksInBulk) {
  for (const uint64_t first :
       {uint64_t{0}, uint64_t{0xfffffffd}, uint64_t{0x123456789abcd}}) {
    for (const int64_t count : {0, 1, 7, 8, 9, 40}) {
      std::vector<uint32_t> words(static_cast<size_t>(4 * count) + 1, 42);
      detail::philox_blocks(
          {0xa4093822, 0x299f31d0}, {3, 1}, first, count, words.data());
      EXPECT_EQ(words.back(), 42u);
      for (int64_t i = 0; i < count; ++i) {
        const auto block = detail::philox_block(
            first + static_cast<uint64_t>(i), {3, 1}, {0xa4093822, 0x299f31d0});
        for (size_t w = 0; w < 4; ++w) {
          EXPECT_EQ(words[4 * static_cast<size_t>(i) + w], block[w]);
        }
      }
    }
  }
}

const detail::PhiloxKey kKey{123, 456};

// The integers that order the values of a dtype, to count ulps.
at::Tensor ordered(const at::Tensor& t) {
  const auto bits = t.element_size() == 4   ? t.view(at::kInt).to(at::kLong)
                    : t.element_size() == 2 ? t.view(at::kShort).to(at::kLong)
                                            : t.view(at::kLong);
  const int64_t sign = t.element_size() == 4 ? int64_t{1} << 31
                       : t.element_size() == 2
                           ? int64_t{1} << 15
                           : std::numeric_limits<int64_t>::min();
  return at::where(
      bits.lt(0), -(bits - (t.element_size() == 8 ? sign : -sign)), bits);
}

std::vector<Distribution> exact_ones() {
  return {
      {.kind = Kind::kUniform},
      {.kind = Kind::kUniform, .a = -2, .b = 3.3},
      {.kind = Kind::kInteger, .low = -3, .range = 10},
      {.kind = Kind::kInteger, .low = -3, .range = uint64_t{5} << 40},
      {.kind = Kind::kInteger, .low = 0, .range = uint64_t{3} << 62},
      {.kind = Kind::kInteger, .low = 0, .range = 0},
      {.kind = Kind::kBernoulli, .a = 0.3}};
}

bool fits(const Distribution& d, at::ScalarType dtype) {
  const bool floating = c10::isFloatingType(dtype);
  if (d.kind == Kind::kUniform) {
    return floating;
  }
  return d.kind != Kind::kInteger || dtype == at::kLong ||
         dtype == at::kDouble || d.range == 10;
}

// The shard of each rank of several layouts, and plain extents.
std::vector<GlobalIndexRanges> extents() {
  std::vector<GlobalIndexRanges> result = {
      GlobalIndexRanges(at::IntArrayRef()),
      GlobalIndexRanges(at::IntArrayRef({0})),
      GlobalIndexRanges(at::IntArrayRef({7})),
      GlobalIndexRanges(at::IntArrayRef({40000}))};
  run_ranks(2, [&] {
    if (rank() != 1) {
      return;
    }
    const DeviceMesh mesh(at::kCPU, at::tensor({0, 1}, at::kLong));
    for (const char* text : {"S(0)", "S(1)", "SS(0,2)", "RS(1,[1,6])"}) {
      result.emplace_back(*DTensorSpec::make(
          mesh, parse_placements(text), {21, 7, 3}, at::kFloat));
    }
  });
  return result;
}

c10::Device device_under_test() {
  return at::globalContext().hasCUDA() ? c10::Device(at::kCUDA, 0)
                                       : c10::Device(at::kCPU);
}

TEST(RandomOnDevice, ExactDistributionsHaveTheSameBits) {
  for (const GlobalIndexRanges& extent : extents()) {
    for (const auto dtype :
         {at::kFloat, at::kDouble, at::kHalf, at::kBFloat16, at::kLong,
          at::kInt, at::kByte, at::kBool}) {
      for (const Distribution& d : exact_ones()) {
        if (!fits(d, dtype) || (dtype == at::kByte && d.low < 0)) {
          continue;
        }
        const auto host = draw_values(extent, dtype, at::kCPU, d, kKey, 1);
        const auto other =
            draw_on_device(extent, dtype, device_under_test(), d, kKey, 1);
        EXPECT_TRUE(at::equal(host, other.cpu()))
            << dtype << ", kind " << static_cast<int>(d.kind) << ", range "
            << d.range;
      }
    }
  }
}

TEST(RandomOnDevice, OthersDifferByTwoUlpsAtMost) {
  for (const GlobalIndexRanges& extent : extents()) {
    for (const auto dtype : {at::kFloat, at::kHalf, at::kBFloat16}) {
      for (const Distribution& d : std::vector<Distribution>{
               {.kind = Kind::kNormal, .a = 0, .b = 1},
               {.kind = Kind::kNormal, .a = 0, .b = 2.5},
               {.kind = Kind::kLogNormal, .a = 0.1, .b = 0.4},
               {.kind = Kind::kExponential, .a = 2}}) {
        const auto host = draw_values(extent, dtype, at::kCPU, d, kKey, 0);
        const auto other =
            draw_on_device(extent, dtype, device_under_test(), d, kKey, 0)
                .cpu();
        if (host.numel() > 0) {
          const int64_t ulps =
              (ordered(host) - ordered(other)).abs().max().item<int64_t>();
          EXPECT_LE(ulps, 2) << dtype;
        }
      }
    }
  }
}

// With a real accelerator: all operators, through sharded tensors.
TEST(RandomOnDevice, OperatorsAgreeWithTheHost) {
  if (!at::globalContext().hasCUDA()) {
    GTEST_SKIP() << "no accelerator";
  }
  const auto ops = testing::all_random_ops();
  const auto draw = [&](c10::DeviceType type) {
    const auto mesh = init_device_mesh(type, {1});
    const auto x = distribute_tensor(
        testing::fractions(
            {37, 1001}, at::TensorOptions(at::kFloat).device(type)),
        mesh, {Shard(0)});
    return testing::draw_all(ops, x, 5);
  };
  const auto host = draw(at::kCPU);
  const auto other = draw(at::kCUDA);
  for (size_t i = 0; i < ops.size(); ++i) {
    if (!host[i].defined()) {
      continue;
    }
    const at::Tensor got = other[i].cpu();
    const bool close = !c10::isIntegralType(got.scalar_type(), true) &&
                       at::allclose(got, host[i], 1e-5, 1e-6, true);
    EXPECT_TRUE(close || at::equal(got, host[i])) << ops[i].name;
  }
}

TEST(RandomOnDevice, ShardsAgreeOnOneDeviceType) {
  if (!at::globalContext().hasCUDA()) {
    GTEST_SKIP() << "no accelerator";
  }
  const auto draw = [](const DeviceMesh& mesh, const Placements& placements) {
    manual_seed(2);
    const auto options = at::TensorOptions(at::kFloat).device(at::kCUDA);
    return at::cat(
        {full_tensor(randn({300, 70}, mesh, placements, options)),
         full_tensor(rand({300, 70}, mesh, placements, options))});
  };
  const auto alone = draw(init_device_mesh(at::kCUDA, {1}), {Replicate()});
  run_ranks(3, [&] {
    const auto mesh = init_device_mesh(at::kCUDA, {3});
    for (const Placements& placements :
         {Placements{Shard(0)}, Placements{Shard(1)}}) {
      EXPECT_TRUE(at::equal(draw(mesh, placements), alone));
    }
  });
}

}  // namespace
}  // namespace tessera
