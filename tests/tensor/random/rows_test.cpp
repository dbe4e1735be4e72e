// Random operators on rows of their tensors: multinomial samples cut rows where
// they lie, with the numbers that it has on one rank.
#include <harness/sharded_test.h>
#include <tensor/inspect/comm_lines.h>

namespace tessera {
namespace {

using testing::device;
using testing::distinct;
using testing::f32;
using testing::f64;
using testing::i64;
using testing::lines_of;
using testing::mesh_of;
using testing::same;
using testing::step_lines;

at::Tensor cut_of(
    const at::Tensor& t, const DeviceMesh& mesh, const std::string& on) {
  return distribute_tensor(
      t, mesh, parse_placements(on), {.src_data_rank = std::nullopt});
}

at::Tensor weights_of(int64_t rows) {
  return distinct({rows, 9}).abs();
}

// What one rank draws.
at::Tensor drawn_alone(int64_t rows, bool replacement) {
  manual_seed(11);
  return full_tensor(at::multinomial(
      cut_of(weights_of(rows), mesh_of({1}), "R"), 5, replacement));
}

struct Case {
  std::vector<int64_t> mesh;
  const char* on;
  const char* result;
};

const std::vector<Case>& cases() {
  static const std::vector<Case> all = {
      {{2}, "S(0)", "S(0)"},
      {{4}, "S(0)", "S(0)"},
      {{2, 2}, "S(0) R", "S(0) R"},
      {{2, 2}, "S(0) S(0)", "S(0) S(0)"},
      {{2, 2}, "S(0)[1] S(0)[0]", "S(0)[1] S(0)[0]"},
      {{2, 2}, "SS(0,2) S(0)", "SS(0,2) S(0)"},
      {{2, 2}, "S(0) P(sum)", "S(0) R"},
      {{2, 2}, "S(0) S(1)", "R R"},
      {{2}, "S(1)", "R"},
      {{2}, "R", "R"},
  };
  return all;
}

TEST(Multinomial, DrawsTheSameFromCutRowsOnAnyMesh) {
  for (const int64_t rows : {8, 5, 3}) {
    for (const bool replacement : {true, false}) {
      const auto alone = drawn_alone(rows, replacement);
      for (const Case& c : cases()) {
        run_ranks(static_cast<int>(c10::multiply_integers(c.mesh)), [&] {
          SCOPED_TRACE(c10::str(rows, " rows, ", c.on));
          const auto x = cut_of(weights_of(rows), mesh_of(c.mesh), c.on);
          manual_seed(11);
          CommLog log;
          const auto got = at::multinomial(x, 5, replacement);
          if (device() == at::kCPU) {
            EXPECT_EQ(to_string(placements(got)), c.result);
          }
          if (to_string(placements(x)) == c.result) {
            EXPECT_LE(log.bytes(), 64) << to_string(log);
          }
          EXPECT_TRUE(same(got, alone));
        });
      }
    }
  }
}

TEST(Multinomial, ForetellsWhatItSends) {
  run_ranks(4, [] {
    const auto mesh = mesh_of({2, 2});
    for (const char* on :
         {"S(0) R", "S(0) S(0)", "S(0) P(sum)", "S(0) S(1)", "R S(1)"}) {
      SCOPED_TRACE(on);
      const auto x = cut_of(weights_of(6), mesh, on);
      CommLog log;
      const std::string told = explain("aten::multinomial", x, 2);
      EXPECT_EQ(log.count(), 0);
      at::multinomial(x, 2);
      EXPECT_EQ(step_lines(told), lines_of(log.entries())) << told;
      for (const char* into : {"S(0) R", "R R", "R S(0)"}) {
        auto out = cut_of(at::zeros({6, 2}, i64()), mesh, into);
        CommLog of_out;
        const std::string told_of_out =
            explain("aten::multinomial.out", x, 2, false, std::nullopt, out);
        at::multinomial_out(out, x, 2);
        EXPECT_EQ(step_lines(told_of_out), lines_of(of_out.entries()))
            << into << "\n"
            << told_of_out;
        EXPECT_EQ(to_string(placements(out)), into);
      }
    }
  });
}

TEST(Multinomial, ThrowsOnAllRanksWhatIsWrongOnOne) {
  run_ranks(4, [] {
    const auto mesh = mesh_of({4});
    auto weights = weights_of(6);
    weights.select(0, 5).fill_(0);
    EXPECT_ERROR(
        "a row of weights must have a positive sum",
        at::multinomial(cut_of(weights, mesh, "S(0)"), 2));
    weights.select(0, 1).fill_(-1);
    EXPECT_ERROR(
        "the weights must be finite and not negative",
        at::multinomial(cut_of(weights, mesh, "S(0)"), 2));
    EXPECT_ERROR(
        "at most 9 samples; got 10",
        at::multinomial(cut_of(weights, mesh, "S(0)"), 10));
  });
}

TEST(Multinomial, RanksOutsideTheMeshGetTheLayoutsOfTheOthers) {
  run_ranks(3, [] {
    const DeviceMesh mesh(device(), at::arange(2, at::kLong));
    const auto x = cut_of(weights_of(6), mesh, "S(0)");
    const auto drawn = at::multinomial(x, 2);
    EXPECT_EQ(drawn.sizes(), at::IntArrayRef({6, 2}));
    EXPECT_EQ(
        placements(drawn),
        Placements{device() == at::kCPU ? Shard(0) : Replicate()});
    // Collectives compare how often ranks drew.
    EXPECT_NO_THROW(full_tensor(rand({3}, mesh_of({3}), {Shard(0)}, f64())));
  });
}

// rrelu in its functional form: both results lie as self does.
TEST(Rrelu, ReturnsItsNoiseInTheLayoutOfSelf) {
  run_ranks(4, [] {
    const auto mesh = mesh_of({2, 2});
    const auto values = distinct({5, 3}).sub(0.5);
    const auto noise = distinct({5, 3}).abs();
    for (const char* other : {"R R", "S(0) S(1)", "S(1) R"}) {
      SCOPED_TRACE(other);
      const auto x = cut_of(values, mesh, "S(0) S(1)");
      const auto given = cut_of(noise, mesh, other);
      for (const bool training : {false, true}) {
        CommLog log;
        const std::string told = explain(
            "aten::rrelu_with_noise_functional", x, given, 0.1, 0.3, training);
        const auto [y, used] =
            at::rrelu_with_noise_functional(x, given, 0.1, 0.3, training);
        EXPECT_EQ(step_lines(told), lines_of(log.entries())) << told;
        EXPECT_NE(told.find("result: f64[5, 3] S(0) S(1)"), told.npos) << told;
        EXPECT_EQ(placements(y), placements(x));
        EXPECT_EQ(placements(used), placements(x));
        EXPECT_TRUE(same(given, noise)) << "the noise given is not written";
        EXPECT_FALSE(used.is_same(given));
        if (!training) {
          EXPECT_TRUE(same(used, noise));
          EXPECT_TRUE(same(
              y, std::get<0>(at::rrelu_with_noise_functional(
                     values, noise, 0.1, 0.3, false))));
        } else {
          EXPECT_TRUE(same(y, testing::plain(x) * testing::plain(used)));
        }
      }
    }
  });
}

TEST(Rrelu, WritesTheNoiseThatItDrewAsForetold) {
  run_ranks(4, [] {
    const auto mesh = mesh_of({2, 2});
    for (const char* other : {"R R", "S(0) S(1)", "S(1) R"}) {
      const auto x = cut_of(distinct({5, 3}).sub(0.5), mesh, "S(0) S(1)");
      auto noise = cut_of(distinct({5, 3}), mesh, other);
      CommLog log;
      const std::string told =
          explain("aten::rrelu_with_noise", x, noise, 0.1, 0.3, true);
      const auto y = at::rrelu_with_noise(x, noise, 0.1, 0.3, true);
      EXPECT_EQ(step_lines(told), lines_of(log.entries())) << told;
      EXPECT_TRUE(same(y, testing::plain(x) * testing::plain(noise)));
    }
  });
}

}  // namespace
}  // namespace tessera
