// The object pools that a thread makes wrappers from: see Note [Object pools].
#pragma once

#include <c10/core/Storage.h>
#include <c10/core/TensorImpl.h>
#include <tensor/state/object_pool.h>

namespace tessera::detail::inline tensor_layer {

/// Memory of a wrapper.
struct WrapperMemory {
  static void* make();
  static void drop(void* memory);
};
/// Memory of a wrapper's meta.
struct MetaMemory {
  static void* make();
  static void drop(void* memory);
};
/// LibTorch's ExtraMeta, with the error texts that wrappers throw.
struct ErrorTexts {
  static c10::ExtraMeta* make();
  static void drop(c10::ExtraMeta* texts);
};

struct WrapperPools {
  WrapperPools();
  ObjectPool<WrapperMemory> wrappers;
  ObjectPool<MetaMemory> metas;
  ObjectPool<ErrorTexts> texts;
  /// An empty storage. TensorImpl's constructor takes one by value; ours moves
  /// this one in and out again, so that none is made per wrapper.
  c10::Storage storage;
};

}  // namespace tessera::detail::inline tensor_layer
