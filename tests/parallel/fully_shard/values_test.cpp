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

struct Trained {
  std::vector<double> losses;
  std::vector<at::Tensor> parameters;
};

Trained train_plain(int steps) {
  auto model = new_gpt(kSizes);
  torch::optim::AdamW optimizer(model->parameters(), 1e-2);
  Trained trained;
  for (int step = 0; step < steps; ++step) {
    optimizer.zero_grad();
    const at::Tensor loss = testing::loss_of(
        model(testing::indices(kSizes, step)), testing::targets(kSizes, step));
    loss.backward();
    optimizer.step();
    trained.losses.push_back(loss.item<double>());
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
  torch::optim::AdamW optimizer(model->parameters(), 1e-2);
  for (size_t step = 0; step < plain.losses.size(); ++step) {
    optimizer.zero_grad();
    const at::Tensor loss = loss_on(model, mesh, static_cast<int>(step));
    loss.backward();
    optimizer.step();
    EXPECT_NEAR(
        full_tensor(loss).item<double>(), plain.losses[step],
        1e-12 * plain.losses[step]);
  }
  const auto mine = model->parameters();
  for (size_t p = 0; p < mine.size(); ++p) {
    EXPECT_TRUE(close(mine[p], plain.parameters[p], 1e-10)) << p;
  }
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
