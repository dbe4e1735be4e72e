// Any layout on any mesh is saved, and loaded on any other, bit for bit.
#include <gtest/gtest.h>
#include <tessera/checkpoint/checkpoint.h>

#include <array>
#include <cstdlib>
#include <iostream>
#include <map>
#include <random>

#include <checkpoint/scratch_folder.h>
#include <harness/ranks.h>
#include <harness/sharded_test.h>

namespace tessera::testing {
namespace {

using checkpoint::StateDict;

struct Case {
  std::vector<int64_t> mesh;
  std::vector<Placements> placements;  // of each tensor
  int64_t ranks() const { return c10::multiply_integers(mesh); }
};

// How many cases have what they are to have.
class Census {
 public:
  void add(const Case& c, const std::vector<std::vector<int64_t>>& shapes) {
    ++counts_[std::to_string(c.ranks()) + " ranks"];
    ++counts_[std::to_string(c.mesh.size()) + "-D"];
    for (size_t t = 0; t < shapes.size(); ++t) {
      for (size_t d = 0; d < c.mesh.size(); ++d) {
        add(c.placements[t][d], shapes[t], c.mesh[d], c.mesh.size() > 1);
      }
    }
  }
  const std::map<std::string, int>& counts() const { return counts_; }

 private:
  void add(
      const Placement& placement, const std::vector<int64_t>& shape,
      int64_t ranks, bool has_more_dims) {
    if (!placement.is_shard()) {
      ++counts_["replicated"];
      return;
    }
    const int64_t size = shape[static_cast<size_t>(placement.dim())];
    counts_["empty"] += size == 0;
    counts_["uneven"] += size % ranks != 0;
    counts_["fewer rows than ranks"] += size < ranks;
    const std::string word = to_string(placement).substr(0, 2);
    ++counts_[word + (has_more_dims ? " on a mesh of more dims" : "")];
  }

  std::map<std::string, int> counts_;
};

class RandomCases {
 public:
  explicit RandomCases(uint64_t seed) : random_(seed) {}

  int64_t below(int64_t n) {
    return static_cast<int64_t>(random_() % static_cast<uint64_t>(n));
  }

  std::vector<std::vector<int64_t>> shapes() {
    std::vector<std::vector<int64_t>> all(3);
    for (auto& shape : all) {
      shape.resize(static_cast<size_t>(below(4)));
      for (int64_t& size : shape) {
        size = below(12) == 0 ? 0 : 1 + below(9);
      }
    }
    return all;
  }

  /// Places the tensors on some mesh of at most `most` ranks.
  Case place(const std::vector<std::vector<int64_t>>& shapes, int64_t most) {
    static const std::vector<std::vector<int64_t>> kMeshes = {
        {1},    {2},    {3},    {4},    {5},       {7},       {8},
        {2, 2}, {2, 3}, {4, 2}, {1, 3}, {2, 2, 2}, {1, 2, 3}, {2, 1, 2}};
    Case result;
    do {
      result.mesh = kMeshes[static_cast<size_t>(below(kMeshes.size()))];
    } while (result.ranks() > most);
    for (const auto& shape : shapes) {
      Placements placements = strided(shape, result.mesh);
      for (size_t d = placements.size(); d < result.mesh.size(); ++d) {
        placements.push_back(
            placement(shape, result.mesh[d], result.mesh.size() == 1));
      }
      result.placements.push_back(placements);
    }
    return result;
  }

 private:
  Placement placement(
      const std::vector<int64_t>& shape, int64_t ranks, bool alone) {
    const auto dims = static_cast<int64_t>(shape.size());
    if (dims == 0 || below(3) == 0) {
      return Replicate();
    }
    const int64_t dim = below(dims);
    const int64_t kind = below(6);
    if (alone && kind == 0) {
      return RaggedShard(dim, ragged(shape[static_cast<size_t>(dim)], ranks));
    }
    return alone && kind == 1 ? StridedShard(dim, 2) : Shard(dim);
  }

  // Rows cut by the second mesh dim first, then by the first: as a weight that
  // is sharded for tensor and for data parallelism. Mostly none.
  Placements strided(
      const std::vector<int64_t>& shape, const std::vector<int64_t>& mesh) {
    if (mesh.size() != 2 || shape.empty() || below(4) != 0) {
      return {};
    }
    const int64_t dim = below(static_cast<int64_t>(shape.size()));
    return {StridedShard(dim, mesh[1]), Shard(dim)};
  }

  std::vector<int64_t> ragged(int64_t length, int64_t ranks) {
    std::vector<int64_t> sizes(static_cast<size_t>(ranks), 0);
    for (int64_t i = 0; i < length; ++i) {
      ++sizes[static_cast<size_t>(below(ranks))];
    }
    return sizes;
  }

  std::mt19937_64 random_;
};

StateDict dict_of(
    const Case& c, const std::vector<std::vector<int64_t>>& shapes,
    bool filled) {
  const DeviceMesh mesh = mesh_of(c.mesh);
  StateDict dict;
  for (size_t i = 0; i < shapes.size(); ++i) {
    const at::Tensor value =
        filled ? distinct(shapes[i]) : at::full(shapes[i], -1.0, f64());
    dict.set(
        "t" + std::to_string(i),
        distribute_tensor(value, mesh, c.placements[i], {std::nullopt}));
  }
  return dict;
}

void save_and_load(
    const Case& from, const Case& to,
    const std::vector<std::vector<int64_t>>& shapes, const std::string& path,
    checkpoint::Format format) {
  run_ranks(static_cast<int>(from.ranks()), [&] {
    checkpoint::save(dict_of(from, shapes, true), path, {.format = format});
  });
  run_ranks(static_cast<int>(to.ranks()), [&] {
    StateDict dict = dict_of(to, shapes, false);
    checkpoint::load(dict, path);
    for (size_t t = 0; t < shapes.size(); ++t) {
      const at::Tensor loaded =
          full_tensor(dict.at("t" + std::to_string(t)).to_tensor());
      TORCH_CHECK(
          at::equal(loaded, distinct(shapes[t])), "t", t, " is\n", loaded);
    }
  });
}

// 400 pairs on threads, 40 on the processes of a job (TESSERA_RUN_RANKS).
TEST(Reshard, PairsOfMeshesAreBitExact) {
  const char* given = std::getenv("TESSERA_SEED");
  const uint64_t seed = given != nullptr ? std::stoull(given) : 7;
  const bool on_processes = harness::on_processes();
  const uint64_t pairs = on_processes ? 40 : 400;
  const int64_t most = on_processes ? world_size() : 8;
  const ScratchFolder folder;
  const std::string shared = shared_path(folder);
  constexpr std::array kFormats = {
      checkpoint::Format::kTessera, checkpoint::Format::kDcp,
      checkpoint::Format::kSafetensors};
  Census census;
  for (uint64_t i = 0; i < pairs; ++i) {
    SCOPED_TRACE(
        "rerun: TESSERA_SEED=" + std::to_string(seed) + ", pair " +
        std::to_string(i));
    RandomCases random(seed * 1000 + i);
    const auto shapes = random.shapes();
    const Case from = random.place(shapes, most);
    const Case to = random.place(shapes, most);
    census.add(from, shapes);
    census.add(to, shapes);
    ASSERT_NO_THROW(save_and_load(
        from, to, shapes, shared + "/" + std::to_string(i), kFormats[i % 3]));
  }
  if (!on_processes) {
    std::vector<std::string> features = {
        "1-D",
        "2-D",
        "3-D",
        "empty",
        "uneven",
        "S(",
        "RS",
        "SS",
        "S( on a mesh of more dims",
        "SS on a mesh of more dims",
        "fewer rows than ranks",
        "replicated"};
    for (int ranks = 1; ranks <= 8; ++ranks) {
      features.push_back(std::to_string(ranks) + " ranks");
    }
    for (const std::string& feature : features) {
      const auto found = census.counts().find(feature);
      EXPECT_TRUE(found != census.counts().end() && found->second >= 10)
          << "too few cases have: " << feature;
    }
  }
  std::cout << pairs << " pairs of meshes are bit-exact\n";
}

TEST(Reshard, ACopyIsWrittenOnceAndByAllThatHoldIt) {
  const ScratchFolder folder;
  const std::vector<int64_t> shape = {1024, 512};  // 4 MiB
  run_ranks(4, [&] {
    const DeviceMesh mesh = mesh_of({2, 2});
    checkpoint::save(
        {{"w",
          distribute_tensor(distinct(shape), mesh, {Shard(0), Replicate()})},
         {"plain", distinct(shape)}},
        folder / "a");
  });
  const auto entries = checkpoint::list(folder / "a");
  ASSERT_EQ(entries.size(), 2U);
  for (const auto& entry : entries) {
    EXPECT_EQ(entry.chunks, 4) << entry.name;
    EXPECT_EQ(entry.bytes, 1024 * 512 * 8);
  }
  int64_t bytes = 0;
  std::vector<int64_t> sizes;
  for (const auto& file : std::filesystem::directory_iterator(folder / "a")) {
    if (file.path().filename().string().starts_with("rank_")) {
      sizes.push_back(static_cast<int64_t>(file.file_size()));
      bytes += sizes.back();
    }
  }
  ASSERT_EQ(sizes.size(), 4U);
  for (const int64_t size : sizes) {
    EXPECT_EQ(size, sizes.front()) << "ranks write equally much";
  }
  EXPECT_LT(bytes, 2 * 1024 * 512 * 8 + 65536);
}

}  // namespace
}  // namespace tessera::testing
