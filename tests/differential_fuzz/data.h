// What programs compute with: a distinct value per element, this rank's part of
// it, and hashes of results.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include <ATen/core/Tensor.h>
#include <tessera/comm/device_mesh.h>
#include <tessera/layout/placement.h>

#include "differential_fuzz/program.h"

namespace tessera::programs {

/// Returns values that differ from element to element (bool: irregular) and,
/// for another salt, from each other; no generator, the same on every rank.
at::Tensor distinct(const List& shape, c10::ScalarType dtype, int64_t salt);

/// Combines addends in their order, in the arithmetic of a reduction over
/// ranks.
at::Tensor combine(const std::vector<at::Tensor>& addends, ReduceOp op);

/// A shard, and the value of the whole where it is known to the last bit.
struct Cut {
  at::Tensor local;
  at::Tensor whole;  // undefined where the order of additions is free
};

/// Cuts distinct(shape, dtype, salt) by definition. Each coordinate of a
/// Partial dim has an addend of its own.
Cut cut_distinct(
    const List& shape, c10::ScalarType dtype, int64_t salt,
    const DeviceMesh& mesh, const Placements& placements);

/// Hashes bytes, FNV-1a of 64 bits, starting from `hash`.
class Hash {
 public:
  void add(const void* data, size_t bytes);
  void add(const std::string& text) { add(text.data(), text.size()); }
  /// Adds dtype, shape and bytes of a plain tensor.
  void add_plain(const at::Tensor& tensor);
  /// Adds the spec's text and this rank's shard, or a plain tensor.
  void add(const at::Tensor& tensor);
  uint64_t value() const { return value_; }

 private:
  uint64_t value_ = 0xcbf29ce484222325;
};

}  // namespace tessera::programs
