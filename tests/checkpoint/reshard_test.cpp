// Any layout on any mesh is saved, and loaded on any other, bit for bit.
#include <gtest/gtest.h>
#include <tessera/checkpoint/checkpoint.h>

#include <cstdlib>
#include <random>

#include <checkpoint/scratch_folder.h>
#include <harness/sharded_test.h>

namespace tessera::testing {
namespace {

using checkpoint::StateDict;

struct Case {
  std::vector<int64_t> mesh;
  std::vector<Placements> placements;  // of each tensor
  int64_t ranks() const { return c10::multiply_integers(mesh); }
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

  Case place(const std::vector<std::vector<int64_t>>& shapes) {
    static const std::vector<std::vector<int64_t>> kMeshes = {
        {1},    {2},    {3},    {4},    {5},       {7},      {8},
        {2, 2}, {2, 3}, {4, 2}, {1, 3}, {2, 2, 2}, {1, 2, 3}};
    Case result{kMeshes[static_cast<size_t>(below(kMeshes.size()))], {}};
    for (const auto& shape : shapes) {
      Placements placements;
      for (const int64_t size : result.mesh) {
        placements.push_back(placement(shape, size, result.mesh.size() == 1));
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

TEST(Reshard, FourHundredPairsOfMeshesAreBitExact) {
  const char* given = std::getenv("TESSERA_SEED");
  const uint64_t seed = given != nullptr ? std::stoull(given) : 7;
  const ScratchFolder folder;
  constexpr std::array kFormats = {
      checkpoint::Format::kTessera, checkpoint::Format::kDcp,
      checkpoint::Format::kSafetensors};
  for (uint64_t i = 0; i < 400; ++i) {
    SCOPED_TRACE(
        "rerun: TESSERA_SEED=" + std::to_string(seed) + ", pair " +
        std::to_string(i));
    RandomCases random(seed * 1000 + i);
    const auto shapes = random.shapes();
    const Case from = random.place(shapes), to = random.place(shapes);
    const std::string path = folder / std::to_string(i);
    run_ranks(static_cast<int>(from.ranks()), [&] {
      checkpoint::save(
          dict_of(from, shapes, true), path, {.format = kFormats[i % 3]});
    });
    run_ranks(static_cast<int>(to.ranks()), [&] {
      StateDict dict = dict_of(to, shapes, false);
      checkpoint::load(dict, path);
      for (size_t t = 0; t < shapes.size(); ++t) {
        const at::Tensor loaded =
            full_tensor(dict.at("t" + std::to_string(t)).to_tensor());
        EXPECT_TRUE(at::equal(loaded, distinct(shapes[t])));
      }
    });
    if (::testing::Test::HasFailure()) {
      return;
    }
  }
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
