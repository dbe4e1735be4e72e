// Wrappers: the TensorImpls of sharded tensors. A wrapper has the global shape
// of its spec, a ShardedMeta with the spec and this rank's shard, and no
// storage.
//
// Note [Cheap wrappers]
// Every result of every call is wrapped, so every call pays what a wrapper
// costs. Sizes, strides, key set and flags are copied from a WrapperTemplate;
// memory of wrapper, meta and error texts comes from object pools (Note [Object
// pools]).
//
// Example: the first at::add(a, b) of two f32[8, 16] S(0) over 2 ranks makes a
// template from its result, a shard f32[4, 16] on the CPU with spec
// f32[8, 16] S(0). The next result f32[4, 16] fits() it: its wrapper is the
// template's, copied, and set_sizes_and_strides() does not run again.
//
// Lifetime: a wrapper owns its meta, and the meta the shard. A template owns a
// wrapper without a meta and a reference to the spec, no shard. A view's meta
// owns a reference to its base.
#pragma once

#include <c10/util/SmallVector.h>
#include <tensor/impl/sharded_impl.h>

namespace tessera::detail::inline tensor_layer {

/// Where a view begins in the memory of its source.
struct ViewStart {
  /// Elements of the view behind the first one of its source.
  int64_t offset = 0;
  /// Bytes of an element of the source where those of the view have others, as
  /// under view_as_real(); else 0.
  int64_t source_width = 0;
};

/// Returns the storage offset that a view of elements like `like`'s says it
/// has: as that of a plain tensor, counted in the global strides.
inline int64_t offset_of_view(
    const ViewStart& start, int64_t source_offset,
    const c10::TensorImpl& like) {
  if (start.source_width != 0) [[unlikely]] {
    source_offset = source_offset * start.source_width /
                    static_cast<int64_t>(like.itemsize());
  }
  return source_offset + start.offset;
}

/// What wrappers of equal shards have in common, to be copied. Immutable.
class WrapperTemplate {
 public:
  /// Makes a template that fits no shard.
  WrapperTemplate() = default;
  WrapperTemplate(const at::Tensor& local, SpecPtr spec, ViewStart start = {});

  /// Tells whether `local` has the sizes, strides, dtype, device and keys of
  /// the shard that the template was made from. Strides count only if the
  /// tensor is unsharded: else the spec has them.
  bool fits(const at::Tensor& local) const {
    const c10::TensorImpl* shard = local.unsafeGetTensorImpl();
    return shard->key_set() -
                   c10::autograd_dispatch_keyset_with_ADInplaceOrView ==
               keys_ &&
           shard->dtype() == dtype_ && shard->device() == device_ &&
           are_equal(shard->sizes(), sizes_) &&
           (!unsharded_ || are_equal(shard->strides(), strides_));
  }

  const SpecPtr& spec() const { return spec_; }
  /// A wrapper without a meta.
  const c10::TensorImpl& like() const { return *like_; }
  /// Tells whether the shard is the unsharded tensor: its storage offset is
  /// then that of the wrapper.
  bool is_unsharded() const { return unsharded_; }
  const ViewStart& start() const { return start_; }

 private:
  static bool are_equal(at::IntArrayRef a, at::IntArrayRef b) {
    if (a.size() != b.size()) {
      return false;
    }
    for (size_t i = 0; i < a.size(); ++i) {
      if (a[i] != b[i]) {
        return false;
      }
    }
    return true;
  }

  SpecPtr spec_;
  c10::intrusive_ptr<c10::TensorImpl> like_;
  c10::SmallVector<int64_t, 4> sizes_;    // of the shard
  c10::SmallVector<int64_t, 4> strides_;  // likewise
  c10::DispatchKeySet keys_;              // of the shard, without autograd's
  caffe2::TypeMeta dtype_;
  c10::Device device_{c10::kCPU};
  bool unsharded_ = false;
  ViewStart start_;
};

/// What a view shows: a copy, or the memory of another tensor's shard.
struct ViewOf {
  std::shared_ptr<ViewCopy> copy = nullptr;
  c10::intrusive_ptr<ShardedMeta> base = nullptr;
};

/// Makes a sharded tensor of a shard. A replicated spec takes the shard's own
/// strides and offset, so that views agree.
at::Tensor wrap(at::Tensor local, const SpecPtr& spec, ViewOf shown = {});
/// Makes a replicated tensor of a plain one.
at::Tensor wrap_replicated(
    const at::Tensor& local, const DeviceMesh& mesh, ViewOf shown = {});
/// Makes a view of `source` of a local view: of its shard, or of a copy.
at::Tensor wrap_view(
    at::Tensor local, const SpecPtr& spec, const at::Tensor& source,
    std::shared_ptr<ViewCopy> copy = nullptr);
/// Makes a second tensor over the same meta.
at::Tensor wrap_shared(const at::Tensor& t);

/// Installs a new shard and spec in a tensor, sharded or plain.
void install(const at::Tensor& t, const at::Tensor& local, const SpecPtr& spec);

/// Wraps a shard. Precondition: wrapper_template.fits(local).
at::Tensor wrap(at::Tensor&& local, const WrapperTemplate& wrapper_template);
/// Wraps a view of the shard of `source` as a view of `source`. Precondition:
/// wrapper_template.fits(local).
at::Tensor wrap_view(
    at::Tensor&& local, const WrapperTemplate& wrapper_template,
    const at::Tensor& source);

/// Sets the storage offset of a view that was not made from a template: that
/// which it has in the memory of its source.
void take_offset(
    const at::Tensor& view, const ViewStart& start, const at::Tensor& source);

/// Makes a wrapper around `meta`, whose shard and spec decide its shape.
at::Tensor make_wrapper(c10::intrusive_ptr<ShardedMeta> meta);

/// Makes an existing tensor, of any TensorImpl class, a wrapper around `meta`:
/// all handles to it see the sharded tensor.
void become_wrapper(const at::Tensor& t, c10::intrusive_ptr<ShardedMeta> meta);

/// Makes `view` a normal tensor or an inference tensor, as `source`, of which
/// it is a view, is one: the mode decides what new tensors are, but views go
/// after their source.
void follow_source(const at::Tensor& view, const at::Tensor& source);

/// Makes a view of a shard count writes with the shard: see Note [Versions].
void share_version(const at::Tensor& local, const ShardedMeta& source);
/// What a view has of the state of its source.
struct InheritedState {
  /// Calls with the view move tensors as calls with the parameter do.
  std::shared_ptr<const ParameterUse> use;
  std::shared_ptr<GatheredMemory> memory;

  explicit operator bool() const { return use || memory; }
};
InheritedState inherited_state(const ShardedMeta& source);
void take_state(const at::Tensor& view, InheritedState state);
/// Adds a dispatch key to a wrapper.
void add_key(const at::Tensor& t, c10::DispatchKey key);

}  // namespace tessera::detail::inline tensor_layer
