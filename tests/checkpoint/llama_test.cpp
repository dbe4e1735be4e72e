// A model of Hugging Face's, in its file layout and names, read into the same
// model on a mesh: the logits are those of the model without ranks, and each
// rank reads its own part of every weight.
#include <gtest/gtest.h>
#include <tessera/checkpoint/checkpoint.h>

#include <fstream>
#include <map>

#include <checkpoint/scratch_folder.h>
#include <examples/llama.h>
#include <harness/sharded_test.h>

namespace tessera::testing {
namespace {

using checkpoint::StateDict;
using llama::Llama;
using llama::Sizes;

const checkpoint::LoadOptions kWeights = {
    .convert_dtype = true, .only = {"*.weight"}};

using Weights = std::vector<std::pair<std::string, at::Tensor>>;

Weights random_weights(const Sizes& sizes, c10::ScalarType dtype) {
  const Llama model(sizes);
  Weights weights;
  auto generator = at::detail::createCPUGenerator(7);
  for (const auto& [name, value] : checkpoint::state_dict(*model)) {
    if (name.ends_with(".weight")) {
      const bool is_norm = name.find("norm") != std::string::npos;
      const at::Tensor drawn = at::randn(
          value.to_tensor().sizes(), generator, at::TensorOptions(at::kDouble));
      weights.emplace_back(
          name, (drawn * 0.1 + (is_norm ? 1 : 0)).to(dtype).contiguous());
    }
  }
  return weights;
}

// The format, by hand: as the package of Hugging Face writes it.
int64_t write_file(
    const std::string& path, const Weights& weights, const std::string& dtype) {
  std::string header = R"({"__metadata__":{"format":"pt"})";
  int64_t end = 0;
  for (const auto& [name, tensor] : weights) {
    const auto begin = end;
    end += static_cast<int64_t>(tensor.nbytes());
    header += c10::str(
        ",\"", name, R"(":{"dtype":")", dtype, R"(","shape":)", tensor.sizes(),
        R"(,"data_offsets":[)", begin, ",", end, "]}");
  }
  header += "}";
  header.resize((header.size() + 7) / 8 * 8, ' ');
  std::ofstream file(path, std::ios::binary);
  const uint64_t size = header.size();
  file.write(reinterpret_cast<const char*>(&size), sizeof size);
  file << header;
  for (const auto& [name, tensor] : weights) {
    file.write(
        static_cast<const char*>(tensor.const_data_ptr()),
        static_cast<std::streamsize>(tensor.nbytes()));
  }
  return end;
}

// model-00001-of-00003.safetensors ..., their index, and what else lies there.
int64_t write_folder(
    const std::string& folder, const Weights& weights,
    const std::string& dtype) {
  constexpr size_t kFiles = 3;
  std::filesystem::create_directory(folder);
  std::string map;
  int64_t bytes = 0;
  for (size_t file = 0; file < kFiles; ++file) {
    const std::string name =
        c10::str("model-0000", file + 1, "-of-00003.safetensors");
    const auto from = [&](size_t part) {
      return weights.begin() +
             static_cast<std::ptrdiff_t>(weights.size() * part / kFiles);
    };
    const Weights part(from(file), from(file + 1));
    bytes += write_file(folder + "/" + name, part, dtype);
    for (const auto& weight : part) {
      map += c10::str(
          map.empty() ? "" : ",", "\"", weight.first, "\":\"", name, "\"");
    }
  }
  std::ofstream(folder + "/model.safetensors.index.json")
      << R"({"metadata":{"total_size":)" << bytes << R"(},"weight_map":{)"
      << map << "}}";
  std::ofstream(folder + "/config.json") << "{}";
  std::ofstream(folder + "/tokenizer.json") << "{}";
  return bytes;
}

at::Tensor prompt(int64_t vocabulary) {
  return at::arange(4 * 7, at::kLong)
      .mul(5)
      .add(3)
      .remainder(vocabulary)
      .view({4, 7});
}

// The logits of a model that was filled without any checkpoint.
at::Tensor expected_logits(const Sizes& sizes, const Weights& weights) {
  const torch::NoGradGuard no_grad;
  Llama model(sizes);
  model->to(at::kDouble);
  auto parameters = model->named_parameters();
  for (const auto& [name, tensor] : weights) {
    parameters[name].copy_(tensor);
  }
  return model(prompt(sizes.vocabulary));
}

Llama on_mesh(const Sizes& sizes, const DeviceMesh& mesh) {
  Llama model(sizes);
  model->to(at::kDouble);
  parallelize_module(model, mesh, plan(sizes));
  return model;
}

void expect_logits(
    Llama& model, const DeviceMesh& mesh, const Sizes& sizes,
    const at::Tensor& want) {
  const torch::NoGradGuard no_grad;
  Placements batch(static_cast<size_t>(mesh.ndim()), Replicate());
  if (mesh.ndim() == 2) {
    batch[0] = Shard(0);
  }
  const at::Tensor logits =
      model(distribute_tensor(prompt(sizes.vocabulary), mesh, batch));
  EXPECT_TRUE(close(logits, want, 1e-12)) << to_string(mesh);
}

struct MeshCase {
  std::vector<int64_t> shape;
  std::vector<std::string> names;
};

const std::vector<MeshCase> kMeshes = {
    {{1}, {"tp"}}, {{2}, {"tp"}}, {{4}, {"tp"}}, {{2, 2}, {"dp", "tp"}}};

TEST(LlamaOfHuggingFace, HasTheLogitsOfTheModelWithoutRanks) {
  for (const auto& [dtype, name] :
       {std::pair(at::kBFloat16, "BF16"), std::pair(at::kFloat, "F32")}) {
    for (const bool has_head : {true, false}) {
      const ScratchFolder scratch;
      const Sizes sizes{.vocabulary = 93, .has_head = has_head};
      const Weights weights = random_weights(sizes, dtype);
      write_folder(scratch / "llama", weights, name);
      const at::Tensor want = expected_logits(sizes, weights);
      for (const MeshCase& c : kMeshes) {
        run_ranks(static_cast<int>(c10::multiply_integers(c.shape)), [&] {
          const DeviceMesh mesh = mesh_of(c.shape, c.names);
          Llama model = on_mesh(sizes, mesh);
          StateDict state = checkpoint::state_dict(*model);
          checkpoint::load(state, scratch / "llama", kWeights);
          for (const auto& [path, tensor] : weights) {
            EXPECT_TRUE(
                same(state.at(path).to_tensor(), tensor.to(at::kDouble)))
                << path;
          }
          expect_logits(model, mesh, sizes, want);
        });
      }
    }
  }
}

TEST(LlamaOfHuggingFace, TiedWeightsHaveOneNameInTheFilesAndTwoInTheDict) {
  const ScratchFolder scratch;
  const Sizes sizes{.has_head = false};
  const Weights weights = random_weights(sizes, at::kFloat);
  write_folder(scratch / "llama", weights, "F32");
  const at::Tensor want = expected_logits(sizes, weights);
  run_ranks(4, [&] {
    const DeviceMesh mesh = mesh_of({4}, {"tp"});
    Llama model = on_mesh(sizes, mesh);
    StateDict state = checkpoint::state_dict(*model);
    const at::Tensor table = model->model->embed_tokens->weight;
    state.set("lm_head.weight", table.detach());
    checkpoint::load(state, scratch / "llama", kWeights);
    expect_logits(model, mesh, sizes, want);
    // Not the same elements in the same order.
    for (const at::Tensor& other :
         {table.detach().clone(), table.detach().mul(-1)}) {
      state.set("lm_head.weight", other);
      EXPECT_ERROR(
          "the checkpoint lacks 'lm_head.weight'",
          checkpoint::load(state, scratch / "llama", kWeights));
    }
  });
}

TEST(LlamaOfHuggingFace, ATransposedWeightIsNotTied) {
  const ScratchFolder scratch;
  write_file(
      scratch / "model.safetensors", {{"a", counting({3, 3}, f32())}}, "F32");
  run_ranks(2, [&] {
    const at::Tensor square = at::zeros({3, 3}, f32());
    StateDict tied{{"a", square}, {"b", square.view({3, 3})}};
    checkpoint::load(tied, scratch / "model.safetensors");
    EXPECT_TRUE(same(square, counting({3, 3}, f32())));
    StateDict turned{{"a", square}, {"b", square.t()}};
    EXPECT_ERROR(
        "the checkpoint lacks 'b'",
        checkpoint::load(turned, scratch / "model.safetensors"));
  });
}

// A model of one's own has its own names; the dict has those of the files.
TEST(LlamaOfHuggingFace, IsLoadedUnderOtherNames) {
  const ScratchFolder scratch;
  const at::Tensor q = counting({6, 4}, f32());
  const at::Tensor k = counting({6, 4}, f32()).add(100);
  write_folder(
      scratch / "llama",
      {{"model.layers.0.self_attn.q_proj.weight", q},
       {"model.layers.0.self_attn.k_proj.weight", k},
       {"model.norm.weight", counting({4}, f32())}},
      "F32");
  run_ranks(2, [&] {
    const DeviceMesh mesh = mesh_of({2});
    const auto zeros = [&](at::IntArrayRef shape, const Placement& placement) {
      return distribute_tensor(at::zeros(shape, f32()), mesh, {placement});
    };
    const StateDict own{
        {"blocks.0.attention.q", zeros({6, 4}, Shard(0))},
        {"blocks.0.attention.k", zeros({6, 4}, Shard(1))},
        {"final", zeros({4}, Replicate())}};
    const std::map<std::string, std::string> names = {
        {"blocks.0.attention.q", "model.layers.0.self_attn.q_proj.weight"},
        {"blocks.0.attention.k", "model.layers.0.self_attn.k_proj.weight"},
        {"final", "model.norm.weight"}};
    StateDict theirs;
    for (const auto& [name, tensor] : own) {
      theirs.set(names.at(name), tensor);
    }
    checkpoint::load(theirs, scratch / "llama");
    EXPECT_TRUE(same(own.at("blocks.0.attention.q").to_tensor(), q));
    EXPECT_TRUE(same(own.at("blocks.0.attention.k").to_tensor(), k));
    EXPECT_TRUE(same(own.at("final").to_tensor(), counting({4}, f32())));
  });
}

TEST(LlamaOfHuggingFace, LinksAreFollowedOnRequest) {
  const ScratchFolder scratch;
  const at::Tensor norm = counting({4}, f32());
  write_file(scratch / "blob", {{"model.norm.weight", norm}}, "F32");
  std::filesystem::create_directory(scratch / "snapshot");
  std::filesystem::create_symlink(
      "../blob", scratch / "snapshot/model.safetensors");
  run_ranks(2, [&] {
    StateDict state{{"model.norm.weight", at::zeros({4}, f32())}};
    EXPECT_ERROR("follow_links", checkpoint::load(state, scratch / "snapshot"));
    checkpoint::load(state, scratch / "snapshot", {.follow_links = true});
    EXPECT_TRUE(same(state.at("model.norm.weight").to_tensor(), norm));
  });
  EXPECT_ERROR("follow_links", checkpoint::list(scratch / "snapshot"));
  EXPECT_EQ(checkpoint::list(scratch / "snapshot", true).size(), 1U);
  EXPECT_EQ(checkpoint::verify(scratch / "snapshot", true).size(), 1U);
}

/// Returns how many bytes this process has read, or nothing where the system
/// does not count.
std::optional<int64_t> bytes_read() {
  std::ifstream io("/proc/self/io");
  std::string word;
  int64_t count = 0;
  return io >> word >> count && word == "rchar:" && count > 0
             ? std::optional(count)
             : std::nullopt;
}

TEST(LlamaOfHuggingFace, EachRankReadsItsOwnPart) {
  if (!bytes_read()) {
    GTEST_SKIP() << "/proc/self/io has no counts";
  }
  const ScratchFolder scratch;
  const Sizes sizes{
      .vocabulary = 1000,
      .width = 512,
      .heads = 8,
      .kv_heads = 4,
      .hidden = 4096,
      .layers = 1};
  const int64_t bytes =
      write_folder(scratch / "llama", random_weights(sizes, at::kFloat), "F32");
  for (const int ranks : {1, 2, 4}) {
    std::optional<int64_t> before;
    run_ranks(ranks, [&] {
      const DeviceMesh mesh = mesh_of({ranks}, {"tp"});
      Llama model(sizes);
      parallelize_module(model, mesh, plan(sizes));
      StateDict state = checkpoint::state_dict(*model);
      init().communicator().barrier();
      if (rank() == 0) {
        before = bytes_read();
      }
      init().communicator().barrier();
      checkpoint::load(state, scratch / "llama", kWeights);
    });
    const int64_t read = *bytes_read() - *before;
    // All ranks read o_proj, whose rows of 512 floats are cut into runs smaller
    // than a page, and the norms; the headers too.
    const int64_t by_all = (512 * 512 + 3 * 512) * 4;
    EXPECT_GE(read, bytes);
    EXPECT_LT(read, bytes + (ranks - 1) * by_all + ranks * 64 * 1024)
        << ranks << " ranks, " << bytes << " bytes of weights";
  }
}

}  // namespace
}  // namespace tessera::testing
