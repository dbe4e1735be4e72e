// explain() of attention: what it says before a call is what a log has seen
// after it, in every form that attention takes.
#include <harness/sharded_test.h>
#include <tensor/inspect/comm_lines.h>

#include <ATen/ops/_scaled_dot_product_attention_math.h>
#include <ATen/ops/_scaled_dot_product_flash_attention_for_cpu.h>

namespace tessera {
namespace {

using testing::close;
using testing::distinct;
using testing::f32;
using testing::lines_of;
using testing::mesh_of;
using testing::step_lines;

using Mask = std::optional<at::Tensor>;

struct Inputs {
  at::Tensor query, key, value, mask;
};

// [batch, heads, length, features], distinct values.
Inputs plain_inputs() {
  return {
      distinct({4, 4, 6, 8}, f32()), distinct({4, 4, 6, 8}, f32()).cos(),
      distinct({4, 4, 6, 8}, f32()).sin(), distinct({4, 4, 6, 6}, f32())};
}

at::Tensor cut_of(
    const at::Tensor& t, const DeviceMesh& mesh, const std::string& on) {
  return distribute_tensor(
      t, mesh, parse_placements(on), {.src_data_rank = std::nullopt});
}

enum class MaskKind : uint8_t { kNone, kAdded, kBool };

struct Form {
  std::string name;
  MaskKind mask;
  bool causal;
  double dropout;
};

const std::vector<Form>& forms() {
  static const std::vector<Form> all = {
      {"plain", MaskKind::kNone, false, 0},
      {"causal", MaskKind::kNone, true, 0},
      {"masked", MaskKind::kAdded, false, 0},
      {"masked by bools", MaskKind::kBool, false, 0},
      {"dropout", MaskKind::kNone, false, 0.5},
      {"masked dropout", MaskKind::kAdded, false, 0.25},
      {"dropout masked by bools", MaskKind::kBool, false, 0.25},
      {"causal dropout", MaskKind::kNone, true, 0.5}};
  return all;
}

Mask mask_of(const Inputs& x, const Form& form) {
  switch (form.mask) {
    case MaskKind::kNone:
      break;
    case MaskKind::kAdded:
      return x.mask;
    case MaskKind::kBool:
      return x.mask.gt(0);
  }
  return std::nullopt;
}

at::Tensor attend(const Inputs& x, const Form& form) {
  return at::scaled_dot_product_attention(
      x.query, x.key, x.value, mask_of(x, form), form.dropout, form.causal);
}

at::Tensor attend_by_math(const Inputs& x, const Form& form) {
  return std::get<0>(at::_scaled_dot_product_attention_math(
      x.query, x.key, x.value, mask_of(x, form), form.dropout, form.causal));
}

at::Tensor attend_fused(const Inputs& x, const Form& form) {
  return std::get<0>(at::_scaled_dot_product_flash_attention_for_cpu(
      x.query, x.key, x.value, form.dropout, form.causal, mask_of(x, form)));
}

std::string told_of(const Inputs& x, const Form& form) {
  return explain(
      "aten::scaled_dot_product_attention", x.query, x.key, x.value,
      mask_of(x, form), form.dropout, form.causal);
}

std::string told_of_math(const Inputs& x, const Form& form) {
  return explain(
      "aten::_scaled_dot_product_attention_math", x.query, x.key, x.value,
      mask_of(x, form), form.dropout, form.causal);
}

std::string told_of_fused(const Inputs& x, const Form& form) {
  return explain(
      "aten::_scaled_dot_product_flash_attention_for_cpu", x.query, x.key,
      x.value, form.dropout, form.causal, mask_of(x, form));
}

struct Layouts {
  std::vector<int64_t> mesh;
  const char* query;
  const char* key;
  const char* mask;
};

// By batch, by heads, by both, by the length of the query, and where something
// has to move.
const std::vector<Layouts>& layouts() {
  static const std::vector<Layouts> all = {
      {{2}, "S(0)", "S(0)", "S(0)"},
      {{4}, "S(1)", "S(1)", "R"},
      {{2, 2}, "S(0) S(1)", "S(0) S(1)", "S(0) S(1)"},
      {{2, 2}, "S(1) S(1)", "S(1) S(1)", "R R"},
      {{2}, "S(2)", "R", "R"},
      {{2}, "S(2)", "S(2)", "R"},
      {{2}, "S(3)", "S(3)", "R"},
      {{2}, "S(0)", "S(1)", "S(0)"},
      {{2, 2}, "S(0) R", "S(0) S(1)", "R R"},
      {{2}, "P(sum)", "R", "R"},
      {{2}, "R", "R", "R"},
  };
  return all;
}

Inputs cut_inputs(const Layouts& on) {
  const DeviceMesh mesh = mesh_of(on.mesh);
  const Inputs x = plain_inputs();
  return {
      cut_of(x.query, mesh, on.query), cut_of(x.key, mesh, on.key),
      cut_of(x.value, mesh, on.key), cut_of(x.mask, mesh, on.mask)};
}

std::string text_of(const Layouts& on, const Form& form) {
  return c10::str(
      form.name, ", query ", on.query, ", key ", on.key, ", mask ", on.mask);
}

template <class Tell, class Run>
void expect_told(
    const Layouts& on, const Form& form, Tell tell, Run run, int64_t& silent) {
  SCOPED_TRACE(text_of(on, form));
  const Inputs x = cut_inputs(on);
  CommLog log;  // a mask of bools is made without communication
  const std::string told = tell(x, form);
  EXPECT_EQ(log.count(), 0) << "explain() communicated";
  const at::Tensor got = run(x, form);
  EXPECT_EQ(step_lines(told), lines_of(log.entries()))
      << "rank " << rank() << ", told\n"
      << told << "recorded\n"
      << to_string(log);
  silent += log.count() == 0 ? 1 : 0;
  if (form.dropout == 0) {
    EXPECT_TRUE(close(got, run(plain_inputs(), form), 1e-5));
  }
}

template <class Tell, class Run>
void expect_all_told(Tell tell, Run run, bool is_fused, int64_t expected) {
  int64_t silent_cases = 0;
  for (const Layouts& on : layouts()) {
    run_ranks(static_cast<int>(c10::multiply_integers(on.mesh)), [&] {
      int64_t silent = 0;
      for (const Form& form : forms()) {
        // A fused form draws nothing, and adds its mask.
        const bool fits = form.dropout == 0 && form.mask != MaskKind::kBool;
        if (!is_fused || fits) {
          expect_told(on, form, tell, run, silent);
        }
      }
      if (rank() == 0) {
        silent_cases += silent;
      }
    });
  }
  EXPECT_GE(silent_cases, expected) << "cases that send nothing";
}

TEST(ExplainAttention, EqualsTheLogOfTheCallThatChoosesAForm) {
  expect_all_told(told_of, attend, /*is_fused=*/false, 20);
}

TEST(ExplainAttention, EqualsTheLogOfTheMathForm) {
  expect_all_told(told_of_math, attend_by_math, /*is_fused=*/false, 20);
}

TEST(ExplainAttention, EqualsTheLogOfTheFusedForm) {
  if (testing::device() != at::kCPU) {
    GTEST_SKIP() << "this form is the CPU's";
  }
  expect_all_told(told_of_fused, attend_fused, /*is_fused=*/true, 12);
}

TEST(ExplainAttention, SaysThatTheFusedFormRunsOnShards) {
  if (testing::device() != at::kCPU) {
    GTEST_SKIP() << "this form is the CPU's";
  }
  run_ranks(2, [] {
    const Inputs x = cut_inputs({{2}, "S(1)", "S(1)", "R"});
    const std::string told = told_of(x, forms()[0]);
    EXPECT_NE(
        told.find("runs on the shards: rule "
                  "aten::_scaled_dot_product_flash_attention_for_cpu"),
        told.npos)
        << told;
    EXPECT_NE(told.find("total: 0 bytes"), told.npos) << told;
    const StrictMode strict;
    EXPECT_EQ(placements(attend(x, forms()[0])), Placements{Shard(1)});
  });
}

TEST(ExplainAttention, OfAChoiceByShapesMovesNothingWithDropout) {
  run_ranks(2, [] {
    const Inputs x = cut_inputs({{2}, "S(1)", "S(1)", "R"});
    CommLog log;
    const std::string told = explain(
        "aten::_fused_sdp_choice", x.query, x.key, x.value, Mask(), 0.5);
    EXPECT_EQ(step_lines(told).size(), 0U) << told;
    EXPECT_EQ(at::_fused_sdp_choice(x.query, x.key, x.value, Mask(), 0.5), 0);
    EXPECT_EQ(log.count(), 0);
  });
}

TEST(ExplainAttention, RanksOutsideTheMeshGetTheLayoutsOfTheOthers) {
  run_ranks(3, [] {
    const DeviceMesh mesh(testing::device(), at::arange(2, at::kLong));
    const Inputs plain = plain_inputs();
    const Inputs x = {
        cut_of(plain.query, mesh, "S(2)"),
        cut_of(plain.key, mesh, "R"),
        cut_of(plain.value, mesh, "R"),
        {}};
    EXPECT_EQ(placements(attend(x, forms()[0])), Placements{Shard(2)});
  });
}

}  // namespace
}  // namespace tessera
