#include <sharded_tensor/tensor/infer_mesh.h>

#include <algorithm>

#include <base/hash.h>
#include <layout/boxes/device_kind.h>
#include <tensor/state/bounded_cache.h>
#include <tessera/comm/world.h>

namespace tessera::detail::inline sharded_tensor_layer {

using sharded_tensor::ChunkShardingSpec;

namespace {

constexpr size_t kMaxMeshes = 256;

struct Key {
  c10::DeviceType device_type;
  MeshShape shape;
  friend bool operator==(const Key&, const Key&) = default;
};

struct KeyHash {
  size_t operator()(const Key& key) const {
    return base::hash_combine(
        static_cast<size_t>(key.device_type), key.shape.hash());
  }
};

std::vector<int64_t> owners(const BoxLayout& layout) {
  std::vector<int64_t> ranks;
  for (const Tile& tile : layout.tiles()) {
    ranks.push_back(tile.rank);
  }
  return ranks;
}

bool distinct(std::vector<int64_t> ranks) {
  std::sort(ranks.begin(), ranks.end());
  return std::adjacent_find(ranks.begin(), ranks.end()) == ranks.end();
}

// What the spec itself says beats what its boxes look like: a chunk of a 1-row
// tensor is still a chunk of rows.
std::optional<Layout> layout_by_spec(const ShardedTensorState& state) {
  const BoxLayout& boxes = *state.layout;
  const std::vector<int64_t> ranks = owners(boxes);
  if (!distinct(ranks)) {
    return std::nullopt;
  }
  const MeshShape line =
      MeshShape::from_ranks(ranks, {static_cast<int64_t>(ranks.size())});
  if (const ChunkShardingSpec* chunks = exact_chunks(*state.spec)) {
    const auto ndim = static_cast<int64_t>(boxes.shape().size());
    const int64_t dim =
        chunks->dim() < 0 ? chunks->dim() + ndim : chunks->dim();
    return Layout(boxes.shape(), line, {tessera::Shard(dim)});
  }
  if (ranks.size() == 1) {
    return Layout(boxes.shape(), line, {Replicate()});
  }
  return std::nullopt;
}

}  // namespace

std::optional<Layout> mesh_layout_of(const ShardedTensorState& state) {
  if (device_kinds(state.layout->tiles()).size() != 1) {
    return std::nullopt;
  }
  const auto by_spec = layout_by_spec(state);
  return by_spec ? by_spec : state.layout->try_as_mesh();
}

DeviceMesh shared_mesh(c10::DeviceType device_type, const MeshShape& shape) {
  thread_local BoundedCache<Key, DeviceMesh, KeyHash> meshes(kMaxMeshes);
  const Key key{device_type, shape};
  DeviceMesh* known = meshes.find(key);
  if (known == nullptr) {
    return meshes.insert(key, DeviceMesh(device_type, shape));
  }
  if (known->world() != init()) {
    *known = DeviceMesh(device_type, shape);
  }
  return *known;
}

}  // namespace tessera::detail::inline sharded_tensor_layer
