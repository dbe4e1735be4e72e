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
// A view that the shard itself can show (alias, detach, any view of a
// replicated tensor) shares the shard's memory. Every other view is taken of a
// gathered copy of the whole tensor: a `Whole`, shared by all such views. A
// write through one of them is cut back into the shard at once; a write to the
// shard makes the copy stale, and the next use of a view gathers it again. All
// ranks run the same program, so all of them gather; whether one of them still
// holds a view must not decide that.
//
// Note [Versions]
// A sharded tensor and its shard have one version counter, so that autograd
// notices writes through to_local() and writes to what from_local() was given.
#pragma once

#include <cstdint>
#include <memory>

#include <ATen/core/Tensor.h>
#include <c10/core/DispatchKeySet.h>
#include <c10/core/TensorImpl.h>
#include <tessera/tensor/dtensor_spec.h>

namespace tessera::detail {

constexpr c10::DispatchKey kShardedKey = c10::DispatchKey::PrivateUse3;
constexpr c10::DispatchKey kShardedAutogradKey =
    c10::DispatchKey::AutogradPrivateUse3;

struct Whole;

/// The shard that views of a Whole write back to.
struct ShardCell {
  at::Tensor local;
  SpecPtr spec;
  uint64_t writes = 0;  // by our kernels
  std::weak_ptr<Whole> whole;

  /// Counts all writes, those through to_local() included.
  uint64_t generation() const {
    return writes + (local.is_inference() ? 0 : local._version());
  }
};

/// A gathered copy of a sharded tensor, as of one generation of its shard.
struct Whole {
  at::Tensor value;
  std::shared_ptr<ShardCell> shard;
  uint64_t generation = 0;

  /// Tells whether the shard has been written since.
  bool is_stale() const { return generation != shard->generation(); }
};

/// An asynchronous move and the plan that it carries out.
struct PendingMove;

struct ShardedMeta final : c10::BackendMeta {
  ShardedMeta(at::Tensor shard, SpecPtr layout, std::shared_ptr<Whole> seen)
      : local(std::move(shard)),
        spec(std::move(layout)),
        whole(std::move(seen)) {}
  const at::Tensor local;
  const SpecPtr spec;
  /// Set where `local` is a view into a gathered copy of another tensor.
  const std::shared_ptr<Whole> whole;
  /// Made when the first Whole of this shard is; not part of the value.
  mutable std::shared_ptr<ShardCell> cell;
  /// Set while an asynchronous move fills `local`; see meta_of().
  mutable std::shared_ptr<PendingMove> pending;
};

inline bool is_sharded(const at::Tensor& t) {
  return t.defined() && t.key_set().has(kShardedKey);
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

/// Makes a sharded tensor of a shard. A replicated spec takes the shard's own
/// strides and offset, so that views agree.
at::Tensor wrap(
    const at::Tensor& local, const SpecPtr& spec,
    std::shared_ptr<Whole> whole = nullptr);
/// Makes a replicated tensor of a plain one.
at::Tensor wrap_replicated(
    const at::Tensor& local, const DeviceMesh& mesh,
    std::shared_ptr<Whole> whole = nullptr);
/// Makes a second tensor over the same meta.
at::Tensor wrap_shared(const at::Tensor& t);

/// Makes `view` a normal tensor where `source`, of which it is a view, is one:
/// in inference mode new tensors are inference tensors, but views follow their
/// source.
void follow_source(const at::Tensor& view, const at::Tensor& source);

/// Installs a new shard and spec in a tensor, sharded or plain.
void install(const at::Tensor& t, const at::Tensor& local, const SpecPtr& spec);

/// Returns the shard for reading: gathered again where a write made it stale.
const at::Tensor& fresh_local(const at::Tensor& t);
/// Gathers a tensor that is not replicated, into the copy that its views share.
std::shared_ptr<Whole> whole_of(const at::Tensor& t);
/// Says that the shard (or what fresh_local() returned) has been written.
void after_write(const at::Tensor& t);
/// Says that `whole`, from whole_of(), has been written.
void after_write(Whole& whole);
/// Returns the whole value, plain; may share memory with the tensor.
at::Tensor replicated_value(const at::Tensor& t);

}  // namespace tessera::detail
