// What a thread keeps to make wrappers from: see Note [Object pools].
#pragma once

#include <c10/core/Storage.h>
#include <c10/core/TensorImpl.h>
#include <tensor/state/object_pool.h>

namespace tessera::detail {

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
/// What LibTorch keeps per unusual tensor, with the error texts of wrappers.
struct ErrorTexts {
  static c10::ExtraMeta* make();
  static void drop(c10::ExtraMeta* texts);
};

struct WrapperPools {
  WrapperPools();
  ObjectPool<WrapperMemory> wrappers;
  ObjectPool<MetaMemory> metas;
  ObjectPool<ErrorTexts> texts;
  /// LibTorch's constructor asks for one; it is lent, and comes back.
  c10::Storage storage;
};

}  // namespace tessera::detail
