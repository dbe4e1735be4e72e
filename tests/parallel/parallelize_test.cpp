// Parallel styles: a GPT that knows nothing of ranks trains on a mesh with the
// losses of one device. The same tests run in processes under mpirun.
#include "gpt_training.h"

namespace tessera {
namespace {

using testing::Losses;
using testing::sequence_parallel;
using testing::tensor_parallel;
using testing::train_parallel;
using testing::train_plain;
using testing::TrainingCase;
using testing::with_vocabulary;

constexpr int kSteps = 50;
constexpr int kFewSteps = 10;

// f64 to 1e-10, f32 to 1e-4 of the loss.
void expect_equal_losses(TrainingCase c, at::ScalarType dtype, int steps) {
  SCOPED_TRACE(std::string(c.name) + ", " + c10::toString(dtype));
  c.dtype = dtype;
  const Losses plain = train_plain(c, steps);
  ASSERT_NE(plain.back(), plain.front());
  run_ranks(static_cast<int>(c10::multiply_integers(c.mesh)), [&] {
    const Losses parallel = train_parallel(c, steps);
    for (size_t i = 0; i < plain.size(); ++i) {
      const double allowed = dtype == at::kDouble ? 1e-10 : 1e-4 * plain[i];
      ASSERT_NEAR(parallel[i], plain[i], allowed)
          << "step " << i << ", rank " << rank();
    }
  });
}

void expect_equal_losses(const TrainingCase& c, int steps = kSteps) {
  expect_equal_losses(c, at::kDouble, steps);
  expect_equal_losses(c, at::kFloat, steps);
}

// Neither 4 heads nor 13 words are a multiple of the ranks in all of these.
gpt::Sizes uneven() {
  gpt::Sizes sizes;
  sizes.heads = 3;
  sizes.width = 12;
  sizes.hidden = 22;
  sizes.vocabulary = 13;
  sizes.length = 7;
  return sizes;
}

TEST(Losses, OfTensorParallelRunsAreThoseOfOneDevice) {
  expect_equal_losses({"tp 2", {2}, {"tp"}, tensor_parallel()});
  expect_equal_losses({"tp 4", {4}, {"tp"}, tensor_parallel()});
  expect_equal_losses(
      {"logits gathered",
       {2},
       {"tp"},
       with_vocabulary(tensor_parallel(), {.output_layouts = Replicate()})},
      kFewSteps);
}

TEST(Losses, OfUnevenTensorParallelRunsAreThoseOfOneDevice) {
  expect_equal_losses(
      {"tp 2, uneven", {2}, {"tp"}, tensor_parallel(), uneven()});
  expect_equal_losses(
      {"tp 4, uneven",
       {4},
       {"tp"},
       with_vocabulary(tensor_parallel()),
       uneven()});
}

TEST(Losses, OfSequenceParallelRunsAreThoseOfOneDevice) {
  expect_equal_losses({"sp 2", {2}, {"tp"}, sequence_parallel()});
  expect_equal_losses({"sp 4", {4}, {"tp"}, sequence_parallel()});
  expect_equal_losses(
      {"sp 4, uneven", {4}, {"tp"}, sequence_parallel(), uneven()});
}

TEST(Losses, OfDataParallelRunsAreThoseOfOneDevice) {
  for (const bool buckets : {false, true}) {
    SCOPED_TRACE(buckets);
    const int steps = buckets ? kSteps : kFewSteps;
    expect_equal_losses(
        {.name = "dp 2",
         .mesh = {2},
         .dims = {"dp"},
         .plan = {},
         .data_parallel = buckets},
        steps);
    expect_equal_losses(
        {.name = "dp 3, uneven",
         .mesh = {3},
         .dims = {"dp"},
         .plan = {},
         .sizes = uneven(),
         .data_parallel = buckets},
        steps);
    expect_equal_losses(
        {.name = "dp 2 x tp 2",
         .mesh = {2, 2},
         .dims = {"dp", "tp"},
         .plan = tensor_parallel(),
         .data_parallel = buckets},
        steps);
  }
}

TEST(Losses, OverACutVocabularyAreThoseOfOneDevice) {
  for (const bool guarded : {false, true}) {
    SCOPED_TRACE(guarded);
    const int steps = guarded ? kSteps : kFewSteps;
    expect_equal_losses(
        {.name = "tp 2",
         .mesh = {2},
         .dims = {"tp"},
         .plan = with_vocabulary(tensor_parallel()),
         .loss_parallel = guarded},
        steps);
    expect_equal_losses(
        {.name = "tp 4, uneven",
         .mesh = {4},
         .dims = {"tp"},
         .plan = with_vocabulary(tensor_parallel()),
         .sizes = uneven(),
         .loss_parallel = guarded},
        steps);
    expect_equal_losses(
        {.name = "dp 2 x tp 2",
         .mesh = {2, 2},
         .dims = {"dp", "tp"},
         .plan = with_vocabulary(tensor_parallel()),
         .loss_parallel = guarded,
         .data_parallel = true},
        steps);
  }
}

}  // namespace
}  // namespace tessera
