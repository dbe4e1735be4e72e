// fully_shard: values, communication and memory of a module whose parameters
// are gathered where they are used.
#include "../gpt_training.h"

namespace tessera {
namespace {

using testing::close;
using testing::f64;
using testing::mesh_of;
using testing::new_gpt;

constexpr testing::GptSizes kSizes = {};

constexpr double kLearningRate = 1e-2;
constexpr double kEpsilon = 1e-8;  // of AdamW

// What a key's bias adds to the scores of a query is the same for all keys, and
// softmax takes it away: its gradient is 0, and what autograd computes is the
// rounding of sums that cancel. AdamW divides that by its root plus eps, so
// orders of sums that differ in the last bit move such a parameter by rate x
// rounding / eps in each step: the plain model too, see below.
bool has_no_gradient(const std::string& name) {
  return name.ends_with("attention.k.bias");
}

struct Trained {
  std::vector<double> losses;
  std::vector<at::Tensor> parameters;
  double noise = 0;  // the largest gradient that should be 0

  /// What rounding can do to such a parameter. Twice: both sides round.
  double noise_bound() const {
    return 2 * kLearningRate * static_cast<double>(losses.size()) * noise /
           kEpsilon;
  }
};

// The loss of a batch, or of `parts` of it one after another.
Trained train_plain(int steps, int64_t parts = 1) {
  auto model = new_gpt(kSizes);
  torch::optim::AdamW optimizer(
      model->parameters(),
      torch::optim::AdamWOptions(kLearningRate).eps(kEpsilon));
  Trained trained;
  for (int step = 0; step < steps; ++step) {
    optimizer.zero_grad();
    const auto x = testing::indices(kSizes, step).chunk(parts);
    const auto y = testing::targets(kSizes, step).chunk(parts);
    double total = 0;
    for (size_t i = 0; i < x.size(); ++i) {
      const at::Tensor loss =
          testing::loss_of(model(x[i]), y[i]) / static_cast<double>(parts);
      loss.backward();
      total += loss.item<double>();
    }
    for (const auto& p : model->named_parameters()) {
      if (has_no_gradient(p.key())) {
        trained.noise = std::max(
            trained.noise, p.value().grad().abs().max().item<double>());
      }
    }
    optimizer.step();
    trained.losses.push_back(total);
  }
  trained.parameters = model->parameters();
  return trained;
}

Placements batch(const DeviceMesh& mesh) {
  Placements placements(static_cast<size_t>(mesh.ndim()), Replicate());
  placements[0] = Shard(0);
  return placements;
}

at::Tensor loss_on(testing::Gpt& model, const DeviceMesh& mesh, int step) {
  return testing::loss_of(
      model(
          distribute_tensor(testing::indices(kSizes, step), mesh, batch(mesh))),
      distribute_tensor(testing::targets(kSizes, step), mesh, batch(mesh)));
}

void expect_trained_alike(
    const Trained& plain, const DeviceMesh& mesh, testing::Gpt& model) {
  torch::optim::AdamW optimizer(
      model->parameters(),
      torch::optim::AdamWOptions(kLearningRate).eps(kEpsilon));
  for (size_t step = 0; step < plain.losses.size(); ++step) {
    optimizer.zero_grad();
    const at::Tensor loss = loss_on(model, mesh, static_cast<int>(step));
    loss.backward();
    optimizer.step();
    EXPECT_NEAR(
        full_tensor(loss).item<double>(), plain.losses[step],
        1e-12 * plain.losses[step]);
  }
  const auto mine = model->named_parameters();
  for (size_t p = 0; p < mine.size(); ++p) {
    const std::string& name = mine[p].key();
    EXPECT_TRUE(close(
        mine[p].value(), plain.parameters[p],
        has_no_gradient(name) ? plain.noise_bound() : 1e-12))
        << name;
  }
}

// Where 1e-12 does not hold, it is not for sharding: the plain model itself
// differs as much when it sums its batch in two halves.
TEST(FullyShard, OnlyParametersWithoutAGradientDependOnTheOrderOfSums) {
  const Trained once = train_plain(20);
  const Trained halves = train_plain(20, 2);
  const auto names = new_gpt(kSizes)->named_parameters().keys();
  double most = 0;
  for (size_t p = 0; p < once.parameters.size(); ++p) {
    const std::string& name = names[p];
    if (has_no_gradient(name)) {
      most = std::max(
          most, (once.parameters[p] - halves.parameters[p])
                    .abs()
                    .max()
                    .item<double>());
    } else {
      EXPECT_TRUE(close(halves.parameters[p], once.parameters[p], 1e-12))
          << name;
    }
  }
  EXPECT_LT(once.noise, 1e-15);  // of gradients that are 0
  EXPECT_GT(most, 1e-12);
  EXPECT_LE(most, once.noise_bound());
}

TEST(FullyShard, TrainsAsThePlainModelDoes) {
  const Trained plain = train_plain(20);
  for (const int n : {1, 2, 3, 4}) {
    run_ranks(n, [&] {
      const auto mesh = mesh_of({n}, {"dp"});
      auto model = new_gpt(kSizes);
      const FullyShard sharded =
          fully_shard(*model, mesh, {.groups = {"blocks.*"}});
      expect_trained_alike(plain, mesh, model);
    });
  }
}

TEST(FullyShard, CutsWhatTensorParallelismLeft) {
  const Trained plain = train_plain(20);
  run_ranks(4, [&] {
    const auto mesh = mesh_of({2, 2}, {"dp", "tp"});
    auto model = new_gpt(kSizes);
    parallelize_module(*model, mesh, testing::tensor_parallel());
    const FullyShard sharded =
        fully_shard(*model, mesh, {.groups = {"blocks.*"}});
    expect_trained_alike(plain, mesh, model);
  });
}

}  // namespace
}  // namespace tessera
