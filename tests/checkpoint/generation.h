// The state that crash tests save: other elements in every generation, large
// enough for several writes per rank, and a check that nothing is mixed.
#pragma once

#include <tessera/checkpoint/checkpoint.h>

#include <filesystem>
#include <set>
#include <string>

#include <harness/sharded_test.h>

namespace tessera::testing {

/// `large` is placed as told, the other tensors by rows.
inline checkpoint::StateDict generation(
    int64_t number, const DeviceMesh& mesh, const Placement& large) {
  const auto sharded = [&](at::IntArrayRef shape, const Placement& placement) {
    return distribute_tensor(
        counting(shape, f32()).add_(static_cast<double>(number) / 16), mesh,
        Placements(static_cast<size_t>(mesh.ndim()), placement),
        {std::nullopt});
  };
  return {
      {"step", number},
      {"large", sharded({280, 1024}, large)},
      {"uneven", sharded({7, 3}, Shard(0))},
      {"one", sharded({1}, Shard(0))},
      {"empty", sharded({0, 4}, Shard(0))},
      // Over 1 MiB: all ranks write a part of it.
      {"plain", counting({257, 513}, i64()).add_(number)}};
}

/// Saves a generation from 4 ranks: one has more than is gathered for a write.
inline void save_generation(
    int64_t number, const std::string& path,
    const checkpoint::SaveOptions& options = {}) {
  checkpoint::save(
      generation(number, mesh_of({4}), RaggedShard(0, {4, 266, 10, 0})), path,
      options);
}

inline checkpoint::Handle save_generation_async(
    int64_t number, const std::string& path,
    const checkpoint::SaveOptions& options = {}) {
  return checkpoint::save_async(
      generation(number, mesh_of({4}), RaggedShard(0, {4, 266, 10, 0})), path,
      options);
}

/// Loads a checkpoint by 4 ranks, on another mesh; returns its generation,
/// and throws where an element is of another one.
inline int64_t load_generation(const std::string& path) {
  const DeviceMesh mesh = mesh_of({2, 2});
  checkpoint::StateDict loaded = generation(-1, mesh, Shard(0));
  checkpoint::load(loaded, path);
  const int64_t number = loaded.at("step").to_int();
  const auto held = [](const checkpoint::StateValue& value) {
    const at::Tensor& t = value.to_tensor();
    return is_dtensor(t) ? to_local(t) : t;
  };
  for (const auto& [name, wanted] : generation(number, mesh, Shard(0))) {
    TORCH_CHECK(
        name == "step" || at::equal(held(loaded.at(name)), held(wanted)), path,
        ": '", name, "' is not that of generation ", number);
  }
  return number;
}

inline std::set<std::string> names_in(const std::string& folder) {
  std::set<std::string> names;
  for (const auto& entry : std::filesystem::directory_iterator(folder)) {
    names.insert(entry.path().filename().string());
  }
  return names;
}

}  // namespace tessera::testing
