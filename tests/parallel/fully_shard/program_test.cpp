// All of it in one program: fully_shard on top of tensor parallelism, bf16,
// activation checkpointing, and files that another mesh loads.
#include <filesystem>

#include "../gpt_training.h"

namespace tessera {
namespace {

using testing::mesh_of;

constexpr testing::GptSizes kSizes = {.layers = 3};

at::Tensor batch(const DeviceMesh& mesh, const at::Tensor& t) {
  Placements placements(static_cast<size_t>(mesh.ndim()), Replicate());
  placements[0] = Shard(0);
  return distribute_tensor(t, mesh, placements);
}

struct Training {
  explicit Training(const DeviceMesh& on) : mesh(on) {
    parallelize_module(*model, mesh, testing::tensor_parallel());
    sharded.emplace(fully_shard(
        *model, mesh,
        {.groups = {"blocks.*"},
         .mp_policy = {
             .param_dtype = at::kBFloat16, .reduce_dtype = at::kFloat}}));
    optimizer.emplace(model->parameters(), 1e-3);
  }

  double step(int64_t number) {
    optimizer->zero_grad();
    at::Tensor x =
        model->tokens(batch(mesh, testing::indices(kSizes, number))) +
        model->positions;
    for (const auto& block : *model->blocks) {
      x = activation_checkpoint(
          [block](const at::Tensor& h) {
            return block->as<gpt::BlockImpl>()->forward(h);
          },
          x);
    }
    const at::Tensor loss = testing::loss_of(
        model->head(model->norm(x)).to(at::kFloat),
        batch(mesh, testing::targets(kSizes, number)));
    loss.backward();
    clip_grad_norm(model->parameters(), 1.0);
    optimizer->step();
    return full_tensor(loss.detach()).item<double>();
  }

  DeviceMesh mesh;
  testing::Gpt model = testing::new_gpt(kSizes, at::kFloat);
  std::optional<FullyShard> sharded;
  std::optional<torch::optim::AdamW> optimizer;
};

std::vector<at::Tensor> whole(const testing::Gpt& model) {
  std::vector<at::Tensor> tensors;
  for (const at::Tensor& p : model->parameters()) {
    tensors.push_back(full_tensor(p.detach()));
  }
  return tensors;
}

TEST(FullyShardProgram, SavesOnFourRanksAndGoesOnOnTwoAndOnOne) {
  const std::string path =
      (std::filesystem::temp_directory_path() / "tessera_fully_shard").string();
  std::vector<double> wanted(5);
  std::vector<at::Tensor> saved;
  run_ranks(4, [&] {
    Training training(mesh_of({2, 2}, {"dp", "tp"}));
    std::vector<double> losses;
    for (int64_t i = 0; i < 3; ++i) {
      losses.push_back(training.step(i));
    }
    const auto state =
        checkpoint::state_dict(*training.model, *training.optimizer);
    checkpoint::save(state, path, {.overwrite = true});
    const auto tensors = whole(training.model);
    for (int64_t i = 3; i < 5; ++i) {
      losses.push_back(training.step(i));
    }
    if (rank() == 0) {
      EXPECT_LT(losses[4], losses[0]);
      wanted = losses;
      saved = tensors;
    }
  });
  const std::vector<std::pair<std::vector<int64_t>, int>> meshes = {
      {{2, 1}, 2}, {{1, 2}, 2}, {{1, 1}, 1}};
  for (const auto& [shape, ranks] : meshes) {
    run_ranks(ranks, [&, shape = shape] {
      Training training(mesh_of(shape, {"dp", "tp"}));
      training.step(9);  // gathered, and other values, before the load
      auto state = checkpoint::state_dict(*training.model, *training.optimizer);
      checkpoint::load(state, path);
      const auto loaded = whole(training.model);
      if (rank() == 0) {
        for (size_t p = 0; p < loaded.size(); ++p) {
          EXPECT_TRUE(at::equal(loaded[p], saved[p])) << p;
        }
      }
      for (int64_t i = 3; i < 5; ++i) {
        const double loss = training.step(i);
        if (rank() == 0) {
          EXPECT_NEAR(
              loss, wanted[static_cast<size_t>(i)],
              2e-2 * wanted[static_cast<size_t>(i)]);
        }
      }
    });
  }
  run_ranks(1, [&] { std::filesystem::remove_all(path); });
}

}  // namespace
}  // namespace tessera
