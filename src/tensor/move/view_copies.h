// Views that the shard itself cannot show.
//
// Note [Views of shards]
// A view that the shard itself can show (what a rule says, see rules/rule.h)
// shares the shard's memory. Every other view is taken of a copy of the tensor
// in placements that can show it, replicated where a sharded dim prevents that:
// a `ViewCopy`, shared by all views that need those placements. A write through
// one of them is cut back into the shard at once; a write to the shard makes
// the copies stale, and the next use of a view copies again. All ranks run the
// same program, so all of them do; whether one of them still holds a view must
// not decide that.
#pragma once

#include <cstdint>
#include <memory>
#include <optional>
#include <vector>

#include <ATen/core/Tensor.h>
#include <tensor/impl/sharded_impl.h>

namespace tessera::detail::inline tensor_layer {

/// What the rows of a tensor add up to along a dim that is cut, known without
/// asking other ranks; as of one generation of the shard.
struct KnownSums {
  int64_t dim;
  at::Tensor sums;  // the shape of the shard, with 1 for the dim
  uint64_t generation;
};

/// The shard that views of a Copy write back to.
struct ViewSource {
  at::Tensor local;
  SpecPtr spec;
  /// Writes by our kernels, to the shard or to one that shows its memory.
  std::shared_ptr<uint64_t> writes;
  std::vector<std::weak_ptr<ViewCopy>> copies;
  /// Set where `local` is itself a view into a copy.
  std::shared_ptr<ViewCopy> of;
  /// Set where `local` shows the memory of another tensor's shard.
  c10::intrusive_ptr<ShardedMeta> base;
  std::optional<KnownSums> sums = std::nullopt;
  /// Set where `local` lies in memory that is given back between uses.
  std::shared_ptr<GatheredMemory> memory = nullptr;

  /// Counts all writes, those through to_local() included.
  uint64_t generation() const {
    return *writes + (local.is_inference() ? 0 : local._version());
  }
};

/// A copy of a sharded tensor in other placements, as of one generation of its
/// shard.
struct ViewCopy {
  at::Tensor value;
  SpecPtr spec;
  std::shared_ptr<ViewSource> shard;
  uint64_t generation = 0;

  /// Tells whether the shard has been written since.
  bool is_stale() const { return generation != shard->generation(); }
};

/// Returns the shard for reading: gathered again where a write made it stale.
const at::Tensor& refreshed_shard(const at::Tensor& t);
/// Copies a tensor into other placements; its views share the copy. The copy's
/// strides follow those of the tensor.
std::shared_ptr<ViewCopy> copy_of(
    const at::Tensor& t, const Placements& target);
/// Copies the tensor of a meta that is no view into a copy.
std::shared_ptr<ViewCopy> copy_of(
    const ShardedMeta& meta, const Placements& target);
/// Returns the tensor whose memory a view shows, at once or through copies; a
/// tensor that is no view shows its own.
c10::intrusive_ptr<ShardedMeta> root_of(const at::Tensor& t);
/// Says that the shard (or what refreshed_shard() returned) has been written.
void after_write(const at::Tensor& t);
/// Says that a copy, from copy_of(), has been written.
void after_write(ViewCopy& copy);
/// Keeps what the rows of a new tensor add up to along a cut dim, for
/// known_sums(); forgotten when the tensor is written.
void keep_sums(const at::Tensor& t, int64_t dim, at::Tensor sums);
/// Returns what was kept for this tensor, or for one that it shows whole, in
/// the shape of its shard with 1 for the dim; undefined where nothing was.
at::Tensor known_sums(const at::Tensor& t, int64_t dim);

/// Returns the replicated value as a plain tensor; may share memory with `t`.
at::Tensor replicated_value(const at::Tensor& t);

}  // namespace tessera::detail::inline tensor_layer
