// The states of a search: placements with the order of their cuts, on one mesh,
// packed into 64 bits.
//
// Byte m of a state describes mesh dim m: the low 5 bits number a placement in
// a table (0: Replicate), the high 3 bits are the order of a cut among those of
// its tensor dim. So equal states are equal numbers, and undoing the innermost
// cut or appending one changes one byte.
//   [8, 8] S(0)[1] S(0)[0] R with table R, S(0): bytes 0x21, 0x01, 0x00
#pragma once

#include <cstdint>
#include <optional>
#include <unordered_map>
#include <vector>

#include <tessera/layout/layout.h>

namespace tessera::detail::inline plan_layer {

using State = uint64_t;

/// A mesh with more dims than this has no packed states.
inline constexpr int64_t kMaxMeshDims = 8;

class States {
 public:
  /// Both layouts are on one mesh.
  States(const Layout& source, const Layout& target);

  int64_t mesh_dims() const { return mesh_dims_; }
  State source() const { return source_; }
  State target() const { return target_; }
  /// Tells whether the search is wide: every cut of a mesh dim (Shard of every
  /// tensor dim, and what source and target have there) in every order. A
  /// narrow search sees what lies on the way: the target's cuts in their order,
  /// and for each Partial one temporary cut, in mesh order.
  bool is_wide() const { return wide_; }

  const Placement& placement(State s, int64_t m) const {
    return table_[index(s, m)];
  }
  /// Returns the cuts that mesh dim m may change to, as numbers of the table.
  const std::vector<uint8_t>& cuts(int64_t m) const {
    return cuts_[static_cast<size_t>(m)];
  }
  /// Returns the tensor dim that a placement of the table cuts.
  int64_t tensor_dim(uint8_t index) const { return cut_dims_[index]; }
  bool is_replicate(State s, int64_t m) const { return index(s, m) == 0; }
  bool is_partial(State s, int64_t m) const {
    return cut_dims_[index(s, m)] == kPartial;
  }
  bool is_shard(State s, int64_t m) const {
    return cut_dims_[index(s, m)] >= 0;
  }
  uint8_t index(State s, int64_t m) const { return byte(s, m) & 31; }
  int64_t order(State s, int64_t m) const { return byte(s, m) >> 5; }

  /// Tells whether mesh dim m cuts, and no later cut of its tensor dim exists.
  bool is_innermost(State s, int64_t m) const;
  /// Returns the state with mesh dim m replicated; a cut must be innermost.
  State replicated(State s, int64_t m) const {
    return s & ~(State{255} << (8 * m));
  }
  /// Returns the state with a replicated mesh dim m partial as in the target,
  /// or nothing where that is none or does not mix with those there are.
  std::optional<State> partial(State s, int64_t m) const;
  /// Returns the state with cut number `cut` appended for the replicated mesh
  /// dim m, or nothing where it does not fit or does not lie on the way.
  std::optional<State> cut(State s, int64_t m, uint8_t cut) const;

  /// Returns the elements of the largest shard.
  int64_t numel(State s) const;
  Layout layout(State s) const;

 private:
  struct Lengths {  // of one tensor dim over all coordinates
    int64_t largest;
    bool equal;
  };
  static constexpr int64_t kReplicate = -1;
  static constexpr int64_t kPartial = -2;
  static uint8_t byte(State s, int64_t m) {
    return static_cast<uint8_t>(s >> (8 * m));
  }
  uint8_t number(const Placement& placement);
  State pack(const Layout& layout);
  void choose_cuts(const Layout& source, const Layout& target);
  int64_t cut_dim(State s, int64_t m) const { return cut_dims_[index(s, m)]; }
  State cuts_of(State s, int64_t tensor_dim) const;
  bool is_on_the_way(State s, int64_t m) const;
  const Lengths& lengths(State cuts, int64_t tensor_dim) const;
  Lengths measure(State cuts, int64_t tensor_dim) const;

  const std::vector<int64_t>& shape_;
  const MeshShape& mesh_;
  int64_t mesh_dims_;
  std::vector<int64_t> sizes_;
  std::vector<Placement> table_;
  std::vector<int64_t> cut_dims_;  // of the table: a tensor dim or a negative
  std::vector<std::vector<uint8_t>> cuts_;
  State source_ = 0;
  State target_ = 0;
  bool wide_ = false;
  mutable std::vector<std::unordered_map<State, Lengths>> lengths_;
  mutable std::vector<State> cuts_by_dim_;  // of the state at hand
};

}  // namespace tessera::detail::inline plan_layer
