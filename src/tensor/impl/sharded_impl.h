// The representation of a sharded tensor inside LibTorch.
//
// Note [A sharded tensor is a TensorImpl]
// The TensorImpl has the global sizes and strides, no storage, and a private
// dispatch key below autograd. Its BackendMeta holds this rank's shard and the
// spec. The meta is immutable, since saved variables and detach() share it: a
// change of spec or shard installs a new one, and in-place ops write into the
// shard that is there.
//
// Note [Views of shards]
// A view that the shard itself can show (what a rule says, see rules/rule.h)
// shares the shard's memory. Every other view is taken of a copy of the tensor
// in placements that can show it, replicated where a cut is in the way: a
// `Copy`, shared by all views that need those placements. A write through one
// of them is cut back into the shard at once; a write to the shard makes the
// copies stale, and the next use of a view copies again. All ranks run the same
// program, so all of them do; whether one of them still holds a view must not
// decide that.
//
// Note [Versions]
// A sharded tensor and its shard have one version counter, so that autograd
// notices writes through to_local() and writes to what from_local() was given.
#pragma once

#include <cstdint>
#include <memory>
#include <optional>
#include <vector>

#include <ATen/core/Tensor.h>
#include <c10/core/DispatchKeySet.h>
#include <c10/core/TensorImpl.h>
#include <tessera/tensor/dtensor_spec.h>

namespace tessera::detail {

constexpr c10::DispatchKey kShardedKey = c10::DispatchKey::PrivateUse3;
constexpr c10::DispatchKey kShardedAutogradKey =
    c10::DispatchKey::AutogradPrivateUse3;

/// Marks of values that are not what memory holds: conjugated, negated, zero.
constexpr auto kLazyKeys = c10::DispatchKeySet(
    {c10::DispatchKey::Conjugate, c10::DispatchKey::Negative,
     c10::DispatchKey::ZeroTensor});

struct Copy;
struct ParameterUse;
struct ShardedMeta;

/// What the rows of a tensor add up to along a dim that is cut, known without
/// asking other ranks; as of one generation of the shard.
struct KnownSums {
  int64_t dim;
  at::Tensor sums;  // the shape of the shard, with 1 for the dim
  uint64_t generation;
};

/// The shard that views of a Copy write back to.
struct ShardCell {
  at::Tensor local;
  SpecPtr spec;
  /// Writes by our kernels, to the shard or to one that shows its memory.
  std::shared_ptr<uint64_t> writes;
  std::vector<std::weak_ptr<Copy>> copies;
  /// Set where `local` is itself a view into a copy.
  std::shared_ptr<Copy> of;
  /// Set where `local` shows the memory of another tensor's shard.
  c10::intrusive_ptr<ShardedMeta> base;
  std::optional<KnownSums> sums = std::nullopt;

  /// Counts all writes, those through to_local() included.
  uint64_t generation() const {
    return *writes + (local.is_inference() ? 0 : local._version());
  }
};

/// A copy of a sharded tensor in other placements, as of one generation of its
/// shard.
struct Copy {
  at::Tensor value;
  SpecPtr spec;
  std::shared_ptr<ShardCell> shard;
  uint64_t generation = 0;

  /// Tells whether the shard has been written since.
  bool is_stale() const { return generation != shard->generation(); }
};

/// An asynchronous move and the plan that it carries out.
struct PendingMove;

struct ShardedMeta final : c10::BackendMeta {
  ShardedMeta(
      at::Tensor shard, SpecPtr layout, std::shared_ptr<Copy> seen,
      c10::intrusive_ptr<ShardedMeta> shown)
      : local(std::move(shard)),
        spec(std::move(layout)),
        copy(std::move(seen)),
        base(std::move(shown)),
        is_own(!copy && !local.key_set().has_any(kLazyKeys)) {}
  /// Every call ends in one of these: it is compiled with the hot path.
  ~ShardedMeta() override;
  static void* operator new(size_t size);
  static void* operator new(size_t, void* place) { return place; }
  static void operator delete(void* block);
  static void operator delete(void*, void*) {}

  const at::Tensor local;
  const SpecPtr spec;
  /// Set where `local` is a view into a copy of another tensor.
  const std::shared_ptr<Copy> copy;
  /// Set where `local` shows the memory of another tensor's shard, which is no
  /// such view itself.
  const c10::intrusive_ptr<ShardedMeta> base;
  /// Memory of `local` holds the elements of the tensor, and nothing else does.
  const bool is_own;
  /// Made when the first Copy of this shard is, or its sums are known; not part
  /// of the value.
  mutable std::shared_ptr<ShardCell> cell;
  /// What the tensor, or the one that it is a view of, asks of calls that use
  /// it as a parameter; see parameter_use.h.
  mutable std::shared_ptr<const ParameterUse> use;
  /// The mesh dim in which gradients of the leaf may stay addends.
  mutable std::optional<int64_t> addends_dim;
  /// Set while an asynchronous move fills `local`; see meta_of().
  mutable std::shared_ptr<PendingMove> pending;
};

inline bool is_sharded(const at::Tensor& t) {
  return t.key_set().has(kShardedKey);  // an undefined tensor has no keys
}

/// Returns the meta; its shard may be on its way still.
inline const ShardedMeta& moving_meta_of(const at::Tensor& t) {
  return *static_cast<ShardedMeta*>(
      t.unsafeGetTensorImpl()->get_backend_meta());
}
/// Waits for an asynchronous move, then forgets it.
void settle(const ShardedMeta& meta);
/// Returns the meta when its shard is there: the first use of a tensor that
/// moves asynchronously waits here.
inline const ShardedMeta& meta_of(const at::Tensor& t) {
  const ShardedMeta& meta = moving_meta_of(t);
  if (meta.pending) {
    settle(meta);
  }
  return meta;
}
inline const DTensorSpec& spec_of(const at::Tensor& t) {
  return *moving_meta_of(t).spec;
}

/// What a view shows: a copy, or the memory of another tensor's shard.
struct Shown {
  std::shared_ptr<Copy> copy = nullptr;
  c10::intrusive_ptr<ShardedMeta> base = nullptr;
};

/// Makes a sharded tensor of a shard. A replicated spec takes the shard's own
/// strides and offset, so that views agree.
at::Tensor wrap(at::Tensor local, const SpecPtr& spec, Shown shown = {});
/// Makes a replicated tensor of a plain one.
at::Tensor wrap_replicated(
    const at::Tensor& local, const DeviceMesh& mesh, Shown shown = {});
/// Makes a view of `source` of a local view: of its shard, or of a copy.
at::Tensor wrap_view(
    at::Tensor local, const SpecPtr& spec, const at::Tensor& source,
    std::shared_ptr<Copy> copy = nullptr);
/// Makes a second tensor over the same meta.
at::Tensor wrap_shared(const at::Tensor& t);

/// Installs a new shard and spec in a tensor, sharded or plain.
void install(const at::Tensor& t, const at::Tensor& local, const SpecPtr& spec);

/// Returns the shard for reading: gathered again where a write made it stale.
const at::Tensor& fresh_local(const at::Tensor& t);
/// Copies a tensor into other placements; its views share the copy. The copy's
/// strides follow those of the tensor.
std::shared_ptr<Copy> copy_of(const at::Tensor& t, const Placements& target);
/// Copies the tensor of a meta that is no view into a copy.
std::shared_ptr<Copy> copy_of(
    const ShardedMeta& meta, const Placements& target);
/// Returns the tensor whose memory a view shows, at once or through copies; a
/// tensor that is no view shows its own.
c10::intrusive_ptr<ShardedMeta> root_of(const at::Tensor& t);
/// Says that the shard (or what fresh_local() returned) has been written.
void after_write(const at::Tensor& t);
/// Says that a copy, from copy_of(), has been written.
void after_write(Copy& copy);
/// Keeps what the rows of a new tensor add up to along a cut dim, for
/// known_sums(); forgotten when the tensor is written.
void keep_sums(const at::Tensor& t, int64_t dim, at::Tensor sums);
/// Returns what was kept for this tensor, or for one that it shows whole, in
/// the shape of its shard with 1 for the dim; undefined where nothing was.
at::Tensor known_sums(const at::Tensor& t, int64_t dim);

/// Returns the whole value, plain; may share memory with the tensor.
at::Tensor replicated_value(const at::Tensor& t);

}  // namespace tessera::detail
