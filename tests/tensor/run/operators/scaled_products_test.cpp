// Products of 8-bit floats with scales: what is cut, what is an addend, and
// what has to be put together first.
#include <harness/sharded_test.h>

namespace tessera {
namespace {

using testing::close;
using testing::counting;
using testing::f32;
using testing::mesh_of;

constexpr auto kEightBits = at::kFloat8_e4m3fn;

// Small integers, distinct as far as 8 bits can tell.
at::Tensor numbers(at::IntArrayRef shape) {
  return counting(shape, f32()).mul(7).remainder(17).sub(8).to(kEightBits);
}

struct Scales {
  const char* name;
  bool per_row;
};
constexpr Scales kScales[] = {{"one number", false}, {"one per row", true}};

// The arguments of one product; a sharded one has them distributed.
struct Product {
  at::Tensor a, b, scale_a, scale_b, bias, result_scale;
  c10::ScalarType dtype = at::kFloat;

  at::Tensor run() const {
    const auto given = [](const at::Tensor& t) {
      return t.defined() ? std::optional(t) : std::nullopt;
    };
    return at::_scaled_mm(
        a, b, scale_a, scale_b, given(bias), given(result_scale), dtype);
  }
};

Product product(int64_t m, int64_t k, int64_t n, const Scales& scales) {
  const auto scale = [&](at::IntArrayRef shape) {
    // powers of two: products stay exact
    return scales.per_row ? counting(shape, f32()).remainder(3).exp2()
                          : at::full({}, 0.5, f32());
  };
  return {
      .a = numbers({m, k}),
      .b = numbers({n, k}).t(),
      .scale_a = scale({m, 1}),
      .scale_b = scale({1, n}),
      .bias = {},
      .result_scale = {}};
}

Product distributed(
    const Product& plain, const DeviceMesh& mesh, const Placements& a,
    const Placements& b) {
  const auto spread = [&](const at::Tensor& t, const Placements& p) {
    return t.defined()
               ? distribute_tensor(t, mesh, p, {.src_data_rank = std::nullopt})
               : t;
  };
  const Placements whole(a.size(), Replicate());
  return {
      .a = spread(plain.a, a),
      .b = spread(plain.b, b),
      .scale_a = spread(plain.scale_a, whole),
      .scale_b = spread(plain.scale_b, whole),
      .bias = spread(plain.bias, whole),
      .result_scale = spread(plain.result_scale, whole),
      .dtype = plain.dtype};
}

TEST(ScaledProduct, OfCutInnerDimsGivesAddends) {
  for (const int64_t ranks : {2, 3}) {
    // whole blocks; uneven; a rank without elements; one element
    for (const int64_t k : {48, 37, 2, 1}) {
      for (const Scales& scales : kScales) {
        for (const bool with_bias : {false, true}) {
          for (const auto dtype : {at::kFloat, at::kBFloat16}) {
            SCOPED_TRACE(c10::str(
                ranks, " ranks, K = ", k, ", ", scales.name,
                with_bias ? ", bias, " : ", ", dtype));
            Product plain = product(5, k, 6, scales);
            plain.dtype = dtype;
            if (with_bias) {
              plain.bias = counting({6}, f32()).sub(2).to(dtype);
            }
            const at::Tensor want = plain.run();
            run_ranks(static_cast<int>(ranks), [&] {
              const Product cut =
                  distributed(plain, mesh_of({ranks}), {Shard(1)}, {Shard(0)});
              const CommLog log;
              const at::Tensor got = cut.run();
              EXPECT_EQ(log.count(), 0) << log;
              EXPECT_EQ(placements(got), Placements{Partial()});
              EXPECT_EQ(got.scalar_type(), dtype);
              EXPECT_TRUE(close(
                  full_tensor(got).to(at::kFloat), want.to(at::kFloat),
                  dtype == at::kFloat ? 0 : 4.0));
            });
          }
        }
      }
    }
  }
}

TEST(ScaledProduct, IsCutAlongRowsAndColumnsAndInnerDims) {
  for (const Scales& scales : kScales) {
    const Product plain = product(5, 20, 6, scales);
    const at::Tensor want = plain.run();
    run_ranks(4, [&] {
      const auto mesh = mesh_of({2, 2});
      const auto expect = [&](const char* a, const char* b, const char* out) {
        SCOPED_TRACE(c10::str(a, " x ", b, ", ", scales.name));
        const Product cut =
            distributed(plain, mesh, parse_placements(a), parse_placements(b));
        const CommLog log;
        const at::Tensor got = cut.run();
        EXPECT_EQ(log.count(), 0) << log;
        EXPECT_EQ(to_string(placements(got)), out);
        EXPECT_TRUE(close(got, want, 0));
      };
      expect("S(0) R", "R R", "S(0) R");
      expect("R R", "R S(1)", "R S(1)");
      expect("S(0) R", "R S(1)", "S(0) S(1)");
      expect("S(0) S(1)", "R S(0)", "S(0) P(sum)");
      expect("S(1) R", "S(0) S(1)", "P(sum) S(1)");
      expect("S(1) S(1)", "S(0) S(0)", "P(sum) P(sum)");
    });
  }
}

// 8 bits do not hold sums of parts, and a scale of the result is none of them.
TEST(ScaledProduct, IsPutTogetherWhereItsPartsDoNotAddUp) {
  Product eight = product(5, 20, 6, kScales[0]);
  eight.dtype = kEightBits;
  Product scaled = product(5, 20, 6, kScales[0]);
  scaled.result_scale = at::full({}, 2.0, f32());
  for (const Product& plain : {eight, scaled}) {
    const at::Tensor want = plain.run().to(at::kFloat);
    run_ranks(2, [&] {
      const at::Tensor got =
          distributed(plain, mesh_of({2}), {Shard(1)}, {Shard(0)}).run();
      for (const Placement& p : placements(got)) {
        EXPECT_FALSE(p.is_partial());
      }
      EXPECT_TRUE(close(full_tensor(got).to(at::kFloat), want, 0));
    });
  }
}

}  // namespace
}  // namespace tessera
