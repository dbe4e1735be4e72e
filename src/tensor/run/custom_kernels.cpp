// Operators that neither a rule nor a decomposition serves: those that share or
// replace a shard, fill it from a whole value, or change only sizes and
// strides.
#include <algorithm>
#include <string_view>

#include <ATen/ops/empty.h>
#include <c10/util/Exception.h>
#include <tensor/call/decision.h>
#include <tensor/call/moves.h>
#include <tensor/impl/sharded_impl.h>
#include <tensor/impl/wrap.h>
#include <tensor/move/redistribute_shard.h>
#include <tensor/move/view_copies.h>
#include <tensor/run/custom_kernels.h>
#include <tensor/run/run_decision.h>
#include <tensor/run/strided_views.h>
#include <tensor/state/strides.h>

namespace tessera::detail::inline tensor_layer {

namespace {

void detach_kernel(const OpCall& call) {
  call.finish(wrap_shared(call.argument(0).toTensor()));
}

// detach_: autograd has forgotten the history, and nothing else changes.
void same_kernel(const OpCall& call) {
  call.finish(call.argument(0).toTensor());
}

// Whether a source overlaps what it is written to differs between ranks, and
// LibTorch's copy_() refuses it; so no rank's does.
at::Tensor apart_from(const at::Tensor& local, const at::Tensor& source) {
  return source.defined() && source.is_alias_of(local) ? source.clone()
                                                       : source;
}

// Writes `value`, a plain tensor with the global value or a sharded one of any
// placements, into a shard.
void copy_into(const at::Tensor& self, const at::Tensor& value) {
  const DTensorSpec& spec = spec_of(self);
  const at::Tensor local = refreshed_shard(self);
  const bool same_shape = value.sizes() == self.sizes();
  if (is_sharded(value) && same_shape) {
    const DTensorSpec& from = spec_of(value);
    const bool averages = std::any_of(
        spec.placements().begin(), spec.placements().end(),
        [](const Placement& p) {
          return p.is_partial() && p.reduce_op() == ReduceOp::kAvg;
        });
    // Integers have no averages, so they become floating before they move.
    const bool converts =
        averages && c10::isIntegralType(from.dtype(), /*includeBool=*/true);
    const SpecPtr source =
        converts ? from.with_dtype(spec.dtype()) : meta_nowait(value).spec;
    const at::Tensor shard = converts ? refreshed_shard(value).to(spec.dtype())
                                      : refreshed_shard(value);
    local.copy_(apart_from(
        local, redistribute_shard(shard, *source, spec.placements())));
  } else {
    const at::Tensor unsharded =
        is_sharded(value) ? replicated_value(value) : value;
    local.copy_(
        apart_from(local, slice_shard(unsharded.expand(self.sizes()), spec)));
  }
  after_write(self);
}

// A plain source of the global shape is legal: loading does that.
void copy_kernel(const OpCall& call) {
  const at::Tensor self = call.argument(0).toTensor();
  const at::Tensor source = call.argument(1).toTensor();
  if (is_sharded(self)) {
    copy_into(self, source);
  } else {
    self.copy_(replicated_value(source));
  }
  call.finish(self);
}

// torch::load() sets storages; for a shard that means: take over the values.
void set_kernel(const OpCall& call) {
  const at::Tensor self = call.argument(0).toTensor();
  const at::Tensor source = call.argument(1).toTensor();
  TORCH_CHECK_VALUE(
      is_sharded(self), call.describe(),
      ": a plain tensor cannot take the storage of a sharded one; use "
      "full_tensor() of the source");
  TORCH_CHECK_VALUE(
      source.sizes() == self.sizes(), call.describe(),
      ": the source must have the global shape; got ", source.sizes(), " and ",
      self.sizes());
  copy_into(self, source);
  call.finish(self);
}

void is_same_size_kernel(const OpCall& call) {
  call.finish(
      call.argument(0).toTensor().sizes() ==
      call.argument(1).toTensor().sizes());
}

// cuDNN's recurrent nets read the pointers of their weights; without it ATen
// decomposes them.
void cudnn_kernel(const OpCall& call) {
  call.finish(false);
}

// new_zeros(self, size, ...): nothing of self is read but its options. A result
// of self's shape gets self's layout, a Partial one only where it is not
// filled.
void new_kernel(const OpCall& call) {
  const at::Tensor self = call.argument(0).toTensor();
  const DTensorSpec& spec = spec_of(self);
  const auto size = call.argument(1).toDimVector();
  const bool filled = !traits_of(call.op()).keeps_partial;
  bool same = at::IntArrayRef(size) == self.sizes() &&
              !(filled && spec.layout().has_partial()) && !spec.is_replicated();
  std::vector<int64_t> strides =
      contiguous_strides(at::IntArrayRef(size.data(), size.size()));
  const bool has_strides = call.schema().arguments()[2].name() == "stride";
  if (has_strides) {
    const auto given = call.argument(2).toDimVector();
    strides.assign(given.begin(), given.end());
  }
  call.argument(0) = refreshed_shard(self);
  same = same && is_non_overlapping(self.sizes(), strides);
  if (same) {
    call.argument(1) = spec.local_shape();
    if (has_strides) {
      call.argument(2) =
          shard_strides(spec.local_shape(), spec.shape(), strides);
    }
  }
  call.op().callBoxed(call.stack());
  c10::IValue& result = call.stack()->back();
  const at::Tensor made = result.toTensor();
  result = same ? wrap(
                      made, DTensorSpec::make(
                                spec.mesh(), spec.placements(), spec.shape(),
                                strides, made.scalar_type()))
                : wrap_replicated(made, spec.mesh());
}

// Where each dim of the result comes from: an old dim, or -1 for a new one.
using DimMap = std::vector<int64_t>;

DimMap identity_map(int64_t ndim) {
  DimMap map(static_cast<size_t>(ndim));
  for (size_t d = 0; d < map.size(); ++d) {
    map[d] = static_cast<int64_t>(d);
  }
  return map;
}

DimMap swapped(int64_t ndim, int64_t a, int64_t b) {
  DimMap map = identity_map(ndim);
  if (ndim > 0) {
    std::swap(
        map[static_cast<size_t>(wrap_dim(a, ndim))],
        map[static_cast<size_t>(wrap_dim(b, ndim))]);
  }
  return map;
}

DimMap squeezed(const at::Tensor& self, const std::vector<int64_t>& dims) {
  DimMap map;
  for (int64_t d = 0; d < self.dim(); ++d) {
    const bool named = std::any_of(dims.begin(), dims.end(), [&](int64_t n) {
      return wrap_dim(n, self.dim()) == d;
    });
    if (!named || self.size(d) != 1) {
      map.push_back(d);
    }
  }
  return map;
}

DimMap dim_map(const OpCall& call, const at::Tensor& self) {
  const std::string_view name = call.op().operator_name().name;
  if (name == "aten::t_") {
    TORCH_CHECK_VALUE(
        self.dim() <= 2, call.describe(),
        ": self must have at most 2 dims; use transpose_()");
    return self.dim() < 2 ? identity_map(self.dim()) : swapped(2, 0, 1);
  }
  if (name == "aten::transpose_") {
    return swapped(
        self.dim(), call.argument(1).toInt(), call.argument(2).toInt());
  }
  if (name == "aten::unsqueeze_") {
    DimMap map = identity_map(self.dim());
    map.insert(
        map.begin() + wrap_dim(call.argument(1).toInt(), self.dim() + 1), -1);
    return map;
  }
  if (call.size() == 1) {
    return squeezed(self, identity_map(self.dim()));
  }
  const c10::IValue& dims = call.argument(1);
  return squeezed(
      self,
      dims.isInt() ? std::vector<int64_t>{dims.toInt()} : dims.toIntVector());
}

at::Tensor rearranged(const at::Tensor& local, const DimMap& map) {
  std::vector<int64_t> shape, strides;
  for (const int64_t from : map) {
    shape.push_back(from < 0 ? 1 : local.size(from));
    strides.push_back(from < 0 ? 1 : local.stride(from));
  }
  return local.as_strided(shape, strides);
}

// t_, transpose_, squeeze_, unsqueeze_: the shard keeps its memory, and its
// placements follow the dims.
void metadata_kernel(const OpCall& call) {
  const at::Tensor self = call.argument(0).toTensor();
  const DTensorSpec& old = spec_of(self);
  TORCH_CHECK_VALUE(
      !meta_ready(self).copy && !meta_ready(self).base, call.describe(),
      ": self is a view of a sharded tensor, whose shape cannot change in "
      "place; use the operator without the underscore");
  const DimMap map = dim_map(call, self);
  std::vector<int64_t> shape, strides;
  std::vector<int64_t> moved_to(static_cast<size_t>(self.dim()), -1);
  for (size_t d = 0; d < map.size(); ++d) {
    const int64_t from = map[d];
    shape.push_back(from < 0 ? 1 : self.size(from));
    strides.push_back(from < 0 ? 1 : self.stride(from));
    if (from >= 0) {
      moved_to[static_cast<size_t>(from)] = static_cast<int64_t>(d);
    }
  }
  Placements placements = old.placements();
  for (Placement& p : placements) {
    if (!p.is_shard()) {
      continue;
    }
    const int64_t to = moved_to[static_cast<size_t>(p.dim())];
    TORCH_CHECK_VALUE(
        to >= 0, call.describe(), ": dim ", p.dim(),
        " would vanish, and it is sharded; redistribute() it to Replicate "
        "first");
    p = p.with_dim(to);
  }
  const SpecPtr spec =
      DTensorSpec::make(old.mesh(), placements, shape, strides, old.dtype());
  const at::Tensor& local = refreshed_shard(self);
  install(self, old.has_shard() ? rearranged(local, map) : local, spec);
  call.finish(self);
}

bool is_replicated(const at::Tensor& t) {
  return is_sharded(t) && spec_of(t).is_replicated();
}

// set_, as_strided_ on a cut tensor would need a new shard.
void refuse_or_run_kernel(const OpCall& call) {
  TORCH_CHECK_VALUE(
      is_replicated(call.argument(0).toTensor()), call.describe(),
      ": a sharded tensor cannot change its memory in place; make a new one, "
      "or redistribute() to Replicate first");
  run_general(call, traits_of(call.op()));
}

bool keeps_shape(const OpCall& call, const at::Tensor& self) {
  return !is_replicated(self) &&
         at::IntArrayRef(call.argument(1).toDimVector()) == self.sizes();
}

// The first elements in memory stay, so the replicated value must lie in memory
// as its elements are counted.
void resize_kernel(const OpCall& call) {
  const at::Tensor self = call.argument(0).toTensor();
  if (keeps_shape(call, self)) {
    call.finish(self);
    return;
  }
  TORCH_CHECK_VALUE(
      is_replicated(self) || self.is_contiguous(), call.describe(),
      ": only a contiguous sharded tensor can be resized; got strides ",
      self.strides(), "; call contiguous() first");
  run_general(call, traits_of(call.op()));
}

}  // namespace

namespace {

void copy_moves(const OpCall& call, MoveList& list) {
  const at::Tensor& self = call.argument(0).toTensor();
  const at::Tensor& source = call.argument(1).toTensor();
  list.refreshed(0, self);
  if (is_sharded(self) && is_sharded(source) &&
      source.sizes() == self.sizes()) {
    list.shard(1, source, spec_of(self).placements());
  } else {
    list.value(1, source);
  }
}

void self_moves(const OpCall& call, MoveList& list) {
  list.refreshed(0, call.argument(0).toTensor());
}

void resize_moves(const OpCall& call, MoveList& list) {
  const at::Tensor& self = call.argument(0).toTensor();
  keeps_shape(call, self) ? list.refreshed(0, self) : list.value(0, self);
}

struct Entry {
  std::string_view name;
  CustomKernel kernel;
  CustomKernelMoves moves = nullptr;
  bool needs_no_data = false;
  CustomKernel off_mesh = nullptr;
};

constexpr Entry kTable[] = {
    {"aten::detach", detach_kernel, nullptr, true},
    {"aten::alias", detach_kernel, nullptr, true},
    {"aten::detach_", same_kernel, nullptr, true},
    {"aten::copy_", copy_kernel, copy_moves},
    {"aten::set_.source_Tensor", set_kernel, copy_moves},
    {"aten::is_same_size", is_same_size_kernel, nullptr, true},
    {"aten::is_set_to", is_set_to_kernel, nullptr, true},
    {"aten::as_strided", as_strided_kernel, as_strided_moves, false,
     as_strided_off_mesh},
    {"aten::as_strided_copy", as_strided_copy_kernel, as_strided_moves, false,
     as_strided_off_mesh},
    {"aten::cudnn_is_acceptable", cudnn_kernel, nullptr, true},
    {"aten::new_empty", new_kernel, self_moves},
    {"aten::new_zeros", new_kernel, self_moves},
    {"aten::new_ones", new_kernel, self_moves},
    {"aten::new_full", new_kernel, self_moves},
    {"aten::new_empty_strided", new_kernel, self_moves},
    {"aten::t_", metadata_kernel, nullptr, true},
    {"aten::transpose_", metadata_kernel, nullptr, true},
    {"aten::squeeze_", metadata_kernel, nullptr, true},
    {"aten::squeeze_.dim", metadata_kernel, nullptr, true},
    {"aten::squeeze_.dims", metadata_kernel, nullptr, true},
    {"aten::unsqueeze_", metadata_kernel, nullptr, true},
    {"aten::resize_", resize_kernel, resize_moves},
    {"aten::as_strided_", refuse_or_run_kernel, self_moves},
    {"aten::set_", refuse_or_run_kernel, self_moves},
    {"aten::set_.source_Storage", refuse_or_run_kernel, self_moves},
    {"aten::set_.source_Storage_storage_offset", refuse_or_run_kernel,
     self_moves},
};

}  // namespace

void add_custom_kernels(OpRegistry& ops) {
  for (const Entry& entry : kTable) {
    OpEntry& op = ops.at(entry.name);
    op.custom_kernel = entry.kernel;
    op.custom_kernel_moves = entry.moves;
    op.needs_no_data = entry.needs_no_data;
    op.custom_kernel_off_mesh = entry.off_mesh;
    op.shares_shard = entry.kernel == detach_kernel;
    // Of the first argument's shape: loading copies plain tensors.
    op.takes_plain_source = entry.moves == copy_moves;
  }
  for (const char* name : {"aten::is_same_size", "aten::is_set_to"}) {
    ops.at(name).reads_metadata_only = true;
  }
  for (const char* name : {"aten::new_empty", "aten::new_empty_strided"}) {
    ops.at(name).keeps_partial = true;
  }
}

}  // namespace tessera::detail::inline tensor_layer
