// Values of every kind that is saved, and reading them by kind.
#pragma once

#include <string>
#include <string_view>
#include <vector>

#include <tessera/sharded_tensor/serialize.h>

namespace tessera::sharded_tensor {

/// The kinds, each with a function that reads one and writes it again.
struct SavedKind {
  const char* name;
  std::string (*rewrite)(std::string_view saved);
};

template <class T>
std::string rewrite(std::string_view saved) {
  return serialize(deserialize<T>(saved));
}

inline std::string rewrite_spec(std::string_view saved) {
  return serialize(*deserialize<ShardingSpecPtr>(saved));
}

inline const std::vector<SavedKind>& saved_kinds() {
  static const std::vector<SavedKind> kinds = {
      {"RemoteDevice", rewrite<RemoteDevice>},
      {"ShardMetadata", rewrite<ShardMetadata>},
      {"TensorProperties", rewrite<TensorProperties>},
      {"ShardedTensorMetadata", rewrite<ShardedTensorMetadata>},
      {"DevicePlacementSpec", rewrite<DevicePlacementSpec>},
      {"ShardingSpec", rewrite_spec}};
  return kinds;
}

/// An example of a value: the position of its kind, and the value saved.
struct Saved {
  size_t kind;
  std::string text;
};

inline std::vector<Saved> saved_examples() {
  std::vector<Saved> examples;
  const auto add = [&](size_t kind, const auto& value) {
    examples.push_back({kind, serialize(value)});
  };
  for (const char* text :
       {"cpu", "cuda:3", "rank:5/cuda:0", "worker1/cpu", "w\n\\\x80/cpu"}) {
    add(0, RemoteDevice(text));
    add(4, DevicePlacementSpec(text));
  }
  const ShardMetadata scalar({}, {}, "rank:0");
  const ShardMetadata shard({3, 0}, {4, 1 << 20}, "rank:1/cuda:1");
  add(1, scalar);
  add(1, shard);
  add(1, ShardMetadata({9, 9, 9}, {0, 0, 0}));
  add(2, TensorProperties{});
  add(2, TensorProperties{
             .dtype = c10::kBool,
             .layout = c10::kSparse,
             .requires_grad = true,
             .memory_format = c10::MemoryFormat::Preserve,
             .pin_memory = true});
  add(3, ShardedTensorMetadata{});
  add(3, ShardedTensorMetadata{{scalar}, {}, {}});
  add(3, ShardedTensorMetadata{
             {shard, {{0, 0}, {3, 1 << 20}, "worker0"}}, {7, 1 << 20}, {}});
  add(5, ChunkShardingSpec(-1, {}));
  add(5, ChunkShardingSpec(1, {"rank:1", "rank:0/cuda:0", "worker1/cpu"}));
  add(5, EnumerableShardingSpec({scalar}));
  add(5, EnumerableShardingSpec({shard, {{7, 0}, {2, 5}}}));
  return examples;
}

}  // namespace tessera::sharded_tensor
