// DTensorSpec: everything about a sharded tensor but its data.
#pragma once

#include <cstdint>
#include <memory>
#include <string>
#include <vector>

#include <c10/core/ScalarType.h>
#include <tessera/comm/device_mesh.h>
#include <tessera/export.h>
#include <tessera/layout/layout.h>

namespace tessera {

/// The mesh, placements and global shape, strides and dtype of a sharded
/// tensor. Specs are immutable and interned: equal specs of one rank are one
/// object, so comparing addresses compares contents.
class TESSERA_API DTensorSpec
    : public std::enable_shared_from_this<DTensorSpec> {
 public:
  /// Returns the interned spec; checks that the placements fit.
  static std::shared_ptr<const DTensorSpec> make(
      const DeviceMesh& mesh, const Placements& placements,
      const std::vector<int64_t>& shape, const std::vector<int64_t>& strides,
      c10::ScalarType dtype);
  /// Returns the same with contiguous strides.
  static std::shared_ptr<const DTensorSpec> make(
      const DeviceMesh& mesh, const Placements& placements,
      const std::vector<int64_t>& shape, c10::ScalarType dtype);

  /// Return this spec with one thing changed.
  std::shared_ptr<const DTensorSpec> with_placements(
      const Placements& placements) const;
  std::shared_ptr<const DTensorSpec> with_dtype(c10::ScalarType dtype) const;
  std::shared_ptr<const DTensorSpec> with_shape(
      const std::vector<int64_t>& shape,
      const std::vector<int64_t>& strides) const;
  /// Returns the spec of a contiguous tensor of this shape on this mesh.
  std::shared_ptr<const DTensorSpec> contiguous(
      const Placements& placements, c10::ScalarType dtype) const;

  /// Returns how many specs exist in this process, for tests of growth.
  static size_t live_count();

  const DeviceMesh& mesh() const { return mesh_; }
  const Layout& layout() const { return layout_; }
  const Placements& placements() const { return layout_.placements(); }
  const std::vector<int64_t>& shape() const { return layout_.shape(); }
  const std::vector<int64_t>& strides() const { return strides_; }
  c10::ScalarType dtype() const { return dtype_; }
  bool is_replicated() const { return replicated_; }
  /// Tells whether this rank is in the mesh.
  bool has_shard() const { return mesh_.coordinate().has_value(); }
  /// Returns the shape of this rank's shard; [0] on a rank outside the mesh.
  const std::vector<int64_t>& local_shape() const { return local_shape_; }

  DTensorSpec(const DTensorSpec&) = delete;
  DTensorSpec& operator=(const DTensorSpec&) = delete;

 private:
  DTensorSpec(
      DeviceMesh mesh, Layout layout, std::vector<int64_t> strides,
      c10::ScalarType dtype);

  DeviceMesh mesh_;
  Layout layout_;
  std::vector<int64_t> strides_;
  c10::ScalarType dtype_;
  bool replicated_;
  std::vector<int64_t> local_shape_;
};

/// A shared pointer to an interned spec.
using SpecPtr = std::shared_ptr<const DTensorSpec>;

/// Prints "f32[8, 16] S(0) R @ mesh(dp=2, tp=4)".
TESSERA_API std::string to_string(const DTensorSpec& spec);

/// Returns the notation's word for a dtype: "f32", "bf16", "i64", "bool", ...
TESSERA_API std::string dtype_name(c10::ScalarType dtype);

}  // namespace tessera
