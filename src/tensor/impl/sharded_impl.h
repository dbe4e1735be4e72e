// The representation of a sharded tensor inside LibTorch.
//
// Note [A sharded tensor is a TensorImpl]
// The TensorImpl has the global sizes and strides, no storage, and a private
// dispatch key below autograd. Its BackendMeta holds this rank's shard and the
// spec. The meta is immutable, since saved variables and detach() share it: a
// change of spec or shard installs a new one, and in-place ops write into the
// shard that is there. What is no part of the value, and does change, is one
// object beside it, MetaState, which is made when it is needed first.
//
// Note [Versions]
// A sharded tensor and its shard have one version counter, so that autograd
// notices writes through to_local() and writes to what from_local() was given.
#pragma once

#include <cstdint>
#include <memory>
#include <optional>
#include <utility>

#include <ATen/core/Tensor.h>
#include <c10/core/DispatchKeySet.h>
#include <c10/core/TensorImpl.h>
#include <tensor/state/dispatch_keys.h>
#include <tensor/state/extra_meta.h>
#include <tensor/state/thread_state.h>
#include <tessera/tensor/dtensor_spec.h>

namespace tessera::detail::inline tensor_layer {

struct ViewCopy;
struct ViewSource;
struct ParameterMember;
struct ParameterUse;
struct ShardedMeta;

/// A move that fills a shard asynchronously; see execute.h.
struct PendingMove {
  virtual ~PendingMove() = default;
  /// Waits until the shard is there; throws what went wrong.
  virtual void wait() = 0;
};

/// The memory of a gathered parameter, which is given back between uses. The
/// tensor and all its views share one, so that whichever is used first has it
/// filled again.
class GatheredMemory {
 public:
  explicit GatheredMemory(at::Tensor of) : shard_(std::move(of)) {}
  GatheredMemory(const GatheredMemory&) = delete;
  GatheredMemory& operator=(const GatheredMemory&) = delete;
  virtual ~GatheredMemory() = default;

  /// Tells whether it holds the values that the shards have now.
  bool is_filled() const { return filled_ && version_ == shard_version(); }
  /// Gathers them; collective.
  virtual void fill() = 0;
  /// Takes what was written over into the shard: all ranks hold the same.
  virtual void write_back() = 0;
  /// Says that a plain tensor shows it, as to_local() returns: it is kept.
  virtual void hand_out() = 0;
  /// Says that a backward pass computes with it.
  virtual void note_backward() = 0;
  /// Layers bring their other inputs to the dtype of the parameter.
  virtual bool casts_inputs() const = 0;

 protected:
  uint32_t shard_version() const {
    const auto& counter = shard_.unsafeGetTensorImpl()->version_counter();
    return counter.enabled() ? counter.current_version() : 0;
  }
  const at::Tensor& shard() const { return shard_; }
  /// Says which version of the shard the values are of; nothing of none.
  void set_filled(std::optional<uint32_t> version) {
    filled_ = version.has_value();
    version_ = version.value_or(0);
  }

 private:
  const at::Tensor shard_;
  bool filled_ = false;
  uint32_t version_ = 0;
};

/// What changes about a tensor while its meta stays.
struct MetaState {
  /// Made when the first ViewCopy of the shard is, or its sums are known.
  std::shared_ptr<ViewSource> view_source;
  /// What the tensor, or the one that it is a view of, asks of calls that use
  /// it as a parameter; see parameter_use.h.
  std::shared_ptr<const ParameterUse> use;
  /// Set where calls take a gathered tensor in its place; see member_use.h.
  std::shared_ptr<ParameterMember> member;
  /// Set where `local` lies in memory that is given back between uses.
  std::shared_ptr<GatheredMemory> memory;
  /// The mesh dim in which gradients of the leaf may stay partial values.
  std::optional<int64_t> unreduced_dim;
  /// Set while an asynchronous move fills the shard; see meta_ready().
  std::shared_ptr<PendingMove> pending;
};

struct ShardedMeta final : c10::BackendMeta {
  ShardedMeta(
      at::Tensor shard, SpecPtr layout, std::shared_ptr<ViewCopy> seen,
      c10::intrusive_ptr<ShardedMeta> shown)
      : local(std::move(shard)),
        spec(std::move(layout)),
        copy(std::move(seen)),
        base(std::move(shown)),
        is_own(!copy && !local.key_set().has_any(kLazyKeys)) {}
  /// Every call ends in one of these: it is compiled with the hot path.
  ~ShardedMeta() override;
  static void* operator new(size_t) {
    return ThreadState::here().pools.metas.take();
  }
  static void* operator new(size_t, void* place) { return place; }
  static void operator delete(void* block) {
    ThreadState::here().pools.metas.give(block);
  }
  static void operator delete(void*, void*) {}

  const at::Tensor local;
  const SpecPtr spec;
  /// Set where `local` is a view into a copy of another tensor.
  const std::shared_ptr<ViewCopy> copy;
  /// Set where `local` shows the memory of another tensor's shard, which is no
  /// such view itself.
  const c10::intrusive_ptr<ShardedMeta> base;
  /// Memory of `local` holds the elements of the tensor, and nothing else does.
  const bool is_own;

  /// Returns what has changed, for reading; most tensors never have any.
  const MetaState& state() const { return state_ ? *state_ : kUnchanged; }
  /// Returns it for a change, and makes it where there is none.
  MetaState& change() const;
  bool has_state() const { return state_ != nullptr; }
  /// Tells whether its data must be waited for, or gathered again.
  bool is_pending() const {
    return state_ && (state_->pending ||
                      (state_->memory && !state_->memory->is_filled()));
  }
  ViewSource* view_source() const {
    return state_ ? state_->view_source.get() : nullptr;
  }

 private:
  static const MetaState kUnchanged;  // of tensors without any
  /// Not part of the value. Owned here: views reach it through `base`.
  mutable std::unique_ptr<MetaState> state_;
};

inline constexpr c10::DispatchKeySet kShardedKeys(kShardedKey);
[[gnu::always_inline]] inline bool is_sharded(const at::Tensor& t) {
  return t.key_set().has_all(kShardedKeys);  // an undefined tensor has no keys
}

/// Returns the meta; its shard may be on its way still.
inline const ShardedMeta& meta_nowait(const at::Tensor& t) {
  return *static_cast<ShardedMeta*>(
      t.unsafeGetTensorImpl()->get_backend_meta());
}
/// Waits for an asynchronous move, then forgets it; fills memory that was given
/// back.
void wait(const ShardedMeta& meta);
/// Returns the meta when its shard is there: the first use of a tensor that
/// moves asynchronously waits here.
inline const ShardedMeta& meta_ready(const at::Tensor& t) {
  const ShardedMeta& meta = meta_nowait(t);
  if (meta.is_pending()) {
    wait(meta);
  }
  return meta;
}
inline const DTensorSpec& spec_of(const at::Tensor& t) {
  return *meta_nowait(t).spec;
}

// The keys that autograd requires of tensors made outside of inference mode:
// its own, and ADInplaceOrView, which counts in-place writes.
constexpr auto kAutogradKeys =
    c10::inplace_or_view_ks | c10::DispatchKeySet(kShardedAutogradKey);

// Without the keys of autograd.
inline c10::DispatchKeySet inference_keys(c10::DispatchKeySet keys) {
  return keys - c10::autograd_dispatch_keyset_with_ADInplaceOrView;
}

/// The tensor that stands for a sharded one.
class ShardedImpl final : public c10::TensorImpl {
 public:
  static void* operator new(size_t) {
    return ThreadState::here().pools.wrappers.take();
  }
  static void operator delete(void* memory) {
    ThreadState::here().pools.wrappers.give(memory);
  }

  // Has keys and dtype, and neither shape nor meta. A tensor of inference mode
  // at first: only that has no version counter of its own, which would be made
  // and dropped.
  ShardedImpl(
      c10::DispatchKeySet keys, caffe2::TypeMeta dtype, c10::Device device,
      WrapperPools& pools)
      : TensorImpl(
            VIEW, std::move(pools.storage), inference_keys(keys), dtype) {
    pools.storage = std::move(storage_);
    device_opt_ = device;
  }
  // Has all that wrappers share, the shape too.
  ShardedImpl(
      const ShardedImpl& like, int64_t storage_offset, WrapperPools& pools)
      : ShardedImpl(like.key_set_, like.data_type_, *like.device_opt_, pools) {
    copy_shape(like, storage_offset);
  }
  ShardedImpl(const ShardedImpl&) = delete;
  ShardedImpl& operator=(const ShardedImpl&) = delete;
  ~ShardedImpl() override {
    if (extra_meta_ && !extra_meta_->symbolic_shape_meta_ &&
        extra_meta_->custom_storage_error_msg_) {
      forget_tensor(*extra_meta_);
      ThreadState::here().pools.texts.give(extra_meta_.release());
    }
  }

  // Makes it a tensor that autograd may follow.
  void become_normal(c10::VariableVersion version) {
    key_set_ = key_set_ | kAutogradKeys;
    version_counter_ = std::move(version);
  }

  void forget_use() { key_set_ = key_set_.remove(kUseKey); }

  [[gnu::always_inline]] void set_meta(
      c10::intrusive_ptr<ShardedMeta> meta, WrapperPools& pools) {
    extra_meta_.reset(pools.texts.take());
    extra_meta_->backend_meta_ = std::move(meta);
    storage_access_should_throw_ = true;
  }

  static c10::DispatchKeySet TensorImpl::*key_set() {
    return &ShardedImpl::key_set_;
  }
  static constexpr int64_t TensorImpl::*storage_offset_of() {
    return &ShardedImpl::storage_offset_;
  }

 private:
  // Takes sizes and strides, and what set_sizes_and_strides() finds out.
  void copy_shape(const ShardedImpl& __restrict like, int64_t storage_offset) {
    sizes_and_strides_ = like.sizes_and_strides_;
    storage_offset_ = storage_offset;
    numel_ = like.numel_;
    is_contiguous_ = like.is_contiguous_;
    is_channels_last_ = like.is_channels_last_;
    is_channels_last_contiguous_ = like.is_channels_last_contiguous_;
    is_channels_last_3d_ = like.is_channels_last_3d_;
    is_channels_last_3d_contiguous_ = like.is_channels_last_3d_contiguous_;
    is_non_overlapping_and_dense_ = like.is_non_overlapping_and_dense_;
  }
};

}  // namespace tessera::detail::inline tensor_layer
