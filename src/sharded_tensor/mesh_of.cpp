#include <sharded_tensor/mesh_of.h>

#include <unordered_map>

#include <base/hash.h>
#include <tessera/comm/world.h>

namespace tessera::detail {

namespace {

// Enough for any program that repeats itself; one that does not starts over.
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

}  // namespace

DeviceMesh shared_mesh(c10::DeviceType device_type, const MeshShape& shape) {
  thread_local std::unordered_map<Key, DeviceMesh, KeyHash> meshes;
  const Key key{device_type, shape};
  const auto known = meshes.find(key);
  if (known != meshes.end() && known->second.world() == init()) {
    return known->second;
  }
  if (meshes.size() >= kMaxMeshes) {
    meshes.clear();
  }
  return meshes.insert_or_assign(key, DeviceMesh(device_type, shape))
      .first->second;
}

}  // namespace tessera::detail
