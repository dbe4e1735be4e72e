#include <tensor/run/strided_views.h>

#include <ATen/ops/clone.h>
#include <ATen/ops/empty.h>
#include <c10/util/Exception.h>
#include <tensor/call/moves.h>
#include <tensor/checks/strict_mode.h>
#include <tensor/impl/sharded_impl.h>
#include <tensor/impl/wrap.h>
#include <tensor/move/view_copies.h>
#include <tensor/run/run_off_mesh.h>
#include <tensor/state/replicated.h>
#include <tessera/layout/notation.h>

namespace tessera::detail::inline tensor_layer {

namespace {

// What as_strided is asked to show, counted in the memory of the root.
struct Window {
  std::vector<int64_t> sizes;
  std::vector<int64_t> strides;
  int64_t offset;
};

Window window_of(const OpCall& call) {
  const at::Tensor& self = call.argument(0).toTensor();
  const c10::IValue& offset = call.argument(3);
  return {
      call.argument(1).toIntVector(), call.argument(2).toIntVector(),
      offset.isNone() ? self.storage_offset() : offset.toInt()};
}

bool is_window(const at::Tensor& t, const Window& window) {
  return t.sizes() == at::IntArrayRef(window.sizes) &&
         t.strides() == at::IntArrayRef(window.strides) &&
         t.storage_offset() == window.offset;
}

// How many elements of memory come before the end of what is shown: [2, 3]
// with strides [4, 1] at 5 -> 12.
int64_t end_of(at::IntArrayRef sizes, at::IntArrayRef strides, int64_t offset) {
  int64_t last = offset;
  for (size_t d = 0; d < sizes.size(); ++d) {
    if (sizes[d] == 0) {
      return 0;
    }
    last += (sizes[d] - 1) * strides[d];
  }
  return last + 1;
}

// Tells whether this rank holds all of a tensor's memory in its shard.
bool is_unsharded(const ShardedMeta& root) {
  return root.spec->is_replicated() && root.spec->has_shard();
}

int64_t width_of(const DTensorSpec& spec) {
  return static_cast<int64_t>(c10::elementSize(spec.dtype()));
}

// Every rank finds out before data move. What lies around a whole shard, the
// operator on the shard knows.
void check_window(
    const OpCall& call, const Window& window, const ShardedMeta& root) {
  const DTensorSpec& self = spec_of(call.argument(0).toTensor());
  // Lengths that differ, and numbers below 0.
  at::empty({0}, at::TensorOptions(self.dtype()).device(at::kMeta))
      .as_strided(window.sizes, window.strides, window.offset);
  const int64_t wanted =
      end_of(window.sizes, window.strides, window.offset) * width_of(self);
  const int64_t held = end_of(root.spec->shape(), root.spec->strides(), 0) *
                       width_of(*root.spec);
  TORCH_CHECK(
      is_unsharded(root) || wanted <= held, call.describe(),
      ": the window is out of bounds; it ends at byte ", wanted,
      ", and the memory of ", shape_to_string(root.spec->shape()),
      " with strides ", shape_to_string(root.spec->strides()), " at byte ",
      held, "; ask for a part of that");
}

// Tells whether a view lies in a copy that shows all memory of its root.
bool lies_in_replicated_copy(const ShardedMeta& meta) {
  return meta.copy && meta.copy->spec->is_replicated() &&
         !meta.copy->shard->of && !meta.copy->shard->base;
}

// A copy holds values; of a conjugate or a negative it is no memory any more.
void check_marks(const OpCall& call, const ShardedMeta& meta) {
  for (const ViewCopy* copy = meta.copy.get(); copy != nullptr;
       copy = copy->shard->of.get()) {
    const at::Tensor& of = copy->shard->local;
    TORCH_CHECK_NOT_IMPLEMENTED(
        of.is_conj() == copy->value.is_conj() &&
            of.is_neg() == copy->value.is_neg(),
        call.describe(),
        ": self is a view of a conjugate or negative view, whose memory is not "
        "at hand; call resolve_conj() or resolve_neg() on that first");
  }
}

// Tells whether the root's own shard can be shown.
bool lies_in_unsharded_shard(const ShardedMeta& meta, const ShardedMeta& root) {
  return !meta.copy && is_unsharded(root);
}

// The memory of a tensor as elements of another dtype, as under view_as_real().
at::Tensor as_elements(const at::Tensor& memory, at::ScalarType dtype) {
  if (memory.scalar_type() == dtype) {
    return memory;
  }
  at::Tensor flat = at::empty({0}, memory.options().dtype(dtype));
  const auto count =
      static_cast<int64_t>(memory.storage().nbytes() / flat.element_size());
  return flat.set_(memory.storage(), 0, {count}, {1});
}

// Shows a window of the memory of `root`, which `memory` holds.
at::Tensor window_in(
    const at::Tensor& memory, const Window& window, const at::Tensor& self,
    const ShardedMeta& root) {
  const at::Tensor elements = as_elements(memory, self.scalar_type());
  const int64_t root_offset =
      is_unsharded(root) ? root.local.storage_offset() : 0;
  const int64_t moved = (memory.storage_offset() - root_offset) *
                        static_cast<int64_t>(memory.element_size()) /
                        static_cast<int64_t>(self.element_size());
  at::Tensor shown =
      elements.as_strided(window.sizes, window.strides, window.offset + moved);
  // The marks of a view are relative to what its root has.
  if (self.is_complex()) {
    shown._set_conj(
        elements.is_conj() != (self.is_conj() != root.local.is_conj()));
  }
  shown._set_neg(elements.is_neg() != (self.is_neg() != root.local.is_neg()));
  return shown;
}

SpecPtr spec_of_window(const DTensorSpec& self, const Window& window) {
  return DTensorSpec::make(
      self.mesh(), replicated(self.mesh()), window.sizes, window.strides,
      self.dtype());
}

// The window on this rank, and the copy that it lies in, if any.
struct ShownWindow {
  at::Tensor local;
  std::shared_ptr<ViewCopy> copy;
};

ShownWindow show(const OpCall& call, const Window& window) {
  const at::Tensor& self = call.argument(0).toTensor();
  const ShardedMeta& meta = meta_ready(self);
  const auto root = root_of(self);
  check_window(call, window, *root);
  check_marks(call, meta);
  if (lies_in_unsharded_shard(meta, *root)) {
    return {window_in(root->local, window, self, *root), nullptr};
  }
  std::shared_ptr<ViewCopy> copy = meta.copy;
  if (lies_in_replicated_copy(meta)) {
    refreshed_shard(self);
  } else {
    count_fallback(call);
    copy = copy_of(*root, replicated(meta.spec->mesh()));
  }
  return {window_in(copy->value, window, self, *root), copy};
}

at::Tensor with_offset(at::Tensor view, const Window& window) {
  view.unsafeGetTensorImpl()->set_storage_offset(window.offset);
  return view;
}

bool is_copy(const OpCall& call) {
  return call.op().operator_name().name == "aten::as_strided_copy";
}

// Two tensors without a view of one another may share a shard: from_local()
// takes what it is given.
bool show_same_memory(const at::Tensor& a, const at::Tensor& b) {
  if (!is_sharded(a) || !is_sharded(b) || a.sizes() != b.sizes() ||
      a.strides() != b.strides() || a.storage_offset() != b.storage_offset()) {
    return false;
  }
  const auto first = root_of(a);
  const auto second = root_of(b);
  return first->spec->placements() == second->spec->placements() &&
         first->local.is_set_to(second->local);
}

}  // namespace

bool shows_itself(const OpCall& call) {
  return is_window(call.argument(0).toTensor(), window_of(call));
}

void as_strided_kernel(const OpCall& call) {
  const at::Tensor self = call.argument(0).toTensor();
  const Window window = window_of(call);
  if (is_window(self, window)) {
    return call.finish(wrap_shared(self));
  }
  ShownWindow shown = show(call, window);
  call.finish(with_offset(
      wrap_view(
          std::move(shown.local), spec_of_window(spec_of(self), window), self,
          std::move(shown.copy)),
      window));
}

void as_strided_copy_kernel(const OpCall& call) {
  const at::Tensor self = call.argument(0).toTensor();
  const Window window = window_of(call);
  if (is_window(self, window)) {
    return call.finish(at::clone(self, at::MemoryFormat::Contiguous));
  }
  call.finish(wrap_replicated(
      show(call, window).local.clone(at::MemoryFormat::Contiguous),
      spec_of(self).mesh()));
}

void as_strided_moves(const OpCall& call, MoveList& list) {
  const at::Tensor& self = call.argument(0).toTensor();
  const ShardedMeta& meta = meta_nowait(self);
  const auto root = root_of(self);
  const bool same = shows_itself(call);
  if (same && !is_copy(call)) {
    return;
  }
  if (same || lies_in_replicated_copy(meta)) {
    list.refreshed(0, self);
  } else if (!lies_in_unsharded_shard(meta, *root)) {
    list.copy(0, *root, replicated(meta.spec->mesh()));
  }
}

void as_strided_off_mesh(const OpCall& call) {
  const at::Tensor self = call.argument(0).toTensor();
  const DTensorSpec& spec = spec_of(self);
  const Window window = window_of(call);
  const bool same = is_window(self, window);
  if (!same) {
    check_window(call, window, *root_of(self));
  }
  if (is_copy(call)) {
    return call.finish(wrap_without_data(
        DTensorSpec::make(
            spec.mesh(), same ? spec.placements() : replicated(spec.mesh()),
            window.sizes, spec.dtype()),
        self.device()));
  }
  call.finish(
      same ? wrap_shared(self)
           : with_offset(
                 view_without_data(
                     spec_of_window(spec, window), self.device(), self),
                 window));
}

void is_set_to_kernel(const OpCall& call) {
  call.finish(show_same_memory(
      call.argument(0).toTensor(), call.argument(1).toTensor()));
}

}  // namespace tessera::detail::inline tensor_layer
