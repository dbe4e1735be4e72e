#include <tensor/move/view_copies.h>

#include <array>

#include <ATen/ops/empty_strided.h>
#include <ATen/ops/zeros.h>
#include <c10/util/Exception.h>
#include <c10/util/accumulate.h>
#include <tensor/impl/sharded_impl.h>
#include <tensor/move/kept_moves.h>
#include <tensor/move/redistribute_shard.h>
#include <tensor/state/replicated.h>
#include <tensor/state/strides.h>

namespace tessera::detail::inline tensor_layer {

namespace {

// Writes elements that share memory, as those of an expanded tensor do, once:
// they are equal.
void write_once(const at::Tensor& to, const at::Tensor& value) {
  at::Tensor target = to;
  at::Tensor source = value;
  for (int64_t d = 0; d < to.dim(); ++d) {
    if (to.stride(d) == 0 && to.size(d) > 1) {
      target = target.narrow(d, 0, 1);
      source = source.narrow(d, 0, 1);
    }
  }
  target.copy_(source);
}

// Views compute with strides, so a copy of a whole tensor has the tensor's, and
// one of a part is dense in the same order of dims.
at::Tensor redistribute_value(
    const at::Tensor& local, const DTensorSpec& spec,
    const Placements& target) {
  const KeptMoves::Suspend suspend;
  at::Tensor value = redistribute_shard(local, spec, target);
  const bool own_memory = !value.is_same(local);
  const bool unsharded = value.sizes() == at::IntArrayRef(spec.shape());
  const std::vector<int64_t> strides =
      unsharded ? spec.strides()
                : dense_strides(value.sizes(), spec.shape(), spec.strides());
  if (own_memory && value.strides() == at::IntArrayRef(strides)) {
    return value;
  }
  at::Tensor copy = at::empty_strided(value.sizes(), strides, value.options());
  write_once(copy, value);
  return copy;
}

void bring(const ViewSource& source) {
  if (source.memory && !source.memory->is_filled()) {
    source.memory->fill();
  }
}

void refresh(ViewCopy& copy) {
  const ViewSource& shard = *copy.shard;
  if (copy.is_stale()) {
    if (shard.of) {
      refresh(*shard.of);
    }
    bring(shard);
    write_once(
        copy.value,
        redistribute_value(shard.local, *shard.spec, copy.spec->placements()));
    copy.generation = shard.generation();
  }
}

const ShardedMeta& shown_by(const ShardedMeta& meta) {
  return meta.base ? *meta.base : meta;
}

std::shared_ptr<ViewSource> view_source_of(const ShardedMeta& meta) {
  if (!meta.state().view_source) {
    std::shared_ptr<uint64_t> writes;
    if (meta.base) {
      writes = view_source_of(*meta.base)->writes;
    } else if (meta.copy) {
      writes = meta.copy->shard->writes;
    } else {
      writes = std::make_shared<uint64_t>(0);
    }
    meta.change().view_source = std::make_shared<ViewSource>(ViewSource{
        .local = meta.local,
        .spec = meta.spec,
        .writes = std::move(writes),
        .copies = {},
        .of = meta.copy,
        .base = meta.base,
        .memory = meta.copy ? nullptr : meta.state().memory});
  }
  return meta.state().view_source;
}

// How many rows lie before a dim of a tensor, how long they are, how many
// after.
std::array<int64_t, 3> around(at::IntArrayRef sizes, int64_t dim) {
  const auto at = static_cast<size_t>(dim);
  return {
      c10::multiply_integers(sizes.slice(0, at)), sizes[at],
      c10::multiply_integers(sizes.slice(at + 1))};
}

// By the global strides, which all ranks know: a shard of one row or of none is
// row-major on its rank alone.
bool is_row_major(const DTensorSpec& spec) {
  return spec.strides() == contiguous_strides(spec.shape());
}

// A tensor and a view of it are the same elements in the same order, with the
// same rows along a dim of each: [2, 5, 1, 3] and [2, 5, 3], both along dim 1.
// All ranks must say the same, since they communicate where it is not so.
bool have_same_rows(
    const ShardedMeta& a, int64_t of_a, const ShardedMeta& b, int64_t of_b) {
  return a.spec->placements() == b.spec->placements() &&
         around(a.spec->shape(), of_a) == around(b.spec->shape(), of_b) &&
         around(a.local.sizes(), of_a) == around(b.local.sizes(), of_b) &&
         is_row_major(*a.spec) && is_row_major(*b.spec);
}

}  // namespace

const at::Tensor& refreshed_shard(const at::Tensor& t) {
  const ShardedMeta& meta = meta_ready(t);
  if (meta.copy) {
    refresh(*meta.copy);
  }
  return meta.local;
}

std::shared_ptr<ViewCopy> copy_of(
    const at::Tensor& t, const Placements& target) {
  refreshed_shard(t);
  return copy_of(meta_ready(t), target);
}

std::shared_ptr<ViewCopy> copy_of(
    const ShardedMeta& meta, const Placements& target) {
  const std::shared_ptr<ViewSource> view_source = view_source_of(meta);
  // Copies even where a view keeps a copy that is up to date: views may live
  // longer on one rank than on another, and all must communicate alike.
  at::Tensor value = redistribute_value(meta.local, *meta.spec, target);
  std::erase_if(
      view_source->copies, [](const auto& known) { return known.expired(); });
  for (const auto& known : view_source->copies) {
    const std::shared_ptr<ViewCopy> copy = known.lock();
    if (copy && copy->spec->placements() == target) {
      write_once(copy->value, value);
      copy->generation = view_source->generation();
      return copy;
    }
  }
  SpecPtr spec = meta.spec->with_placements(target);
  auto copy = std::make_shared<ViewCopy>(ViewCopy{
      std::move(value), std::move(spec), view_source,
      view_source->generation()});
  view_source->copies.push_back(copy);
  return copy;
}

c10::intrusive_ptr<ShardedMeta> root_of(const at::Tensor& t) {
  auto meta = c10::static_intrusive_pointer_cast<ShardedMeta>(
      t.unsafeGetTensorImpl()->get_backend_meta_intrusive_ptr());
  if (!meta->copy) {
    return meta->base ? meta->base : meta;
  }
  std::shared_ptr<ViewSource> view_source = meta->copy->shard;
  while (view_source->of) {
    view_source = view_source->of->shard;
  }
  if (view_source->base) {
    return view_source->base;
  }
  // The tensor's own meta may be gone; its cell is all that others share.
  auto root = c10::make_intrusive<ShardedMeta>(
      view_source->local, view_source->spec, nullptr, nullptr);
  root->change().view_source = view_source;
  return root;
}

void after_write(const at::Tensor& t) {
  const ShardedMeta& meta = meta_ready(t);
  if (meta.copy) {
    return after_write(*meta.copy);
  }
  const ShardedMeta& root = shown_by(meta);
  if (root.has_state()) [[unlikely]] {
    if (const auto& memory = root.state().memory) {
      memory->write_back();
    }
    if (const ViewSource* view_source = root.view_source()) {
      ++*view_source->writes;
    }
  }
}

void after_write(ViewCopy& copy) {
  ViewSource& shard = *copy.shard;
  const KeptMoves::Suspend suspend;
  bring(shard);
  shard.local.copy_(
      redistribute_shard(copy.value, *copy.spec, shard.spec->placements()));
  if (shard.memory) {
    shard.memory->write_back();
  }
  if (shard.of) {
    after_write(*shard.of);
  } else {
    ++*shard.writes;
  }
  copy.generation = shard.generation();
}

void keep_sums(const at::Tensor& t, int64_t dim, at::Tensor sums) {
  const std::shared_ptr<ViewSource> view_source = view_source_of(meta_ready(t));
  view_source->sums =
      KnownSums{dim, std::move(sums), view_source->generation()};
}

at::Tensor known_sums(const at::Tensor& t, int64_t dim) {
  const ShardedMeta& meta = meta_ready(t);
  const ShardedMeta& root = shown_by(meta);
  const ViewSource* view_source = meta.copy ? nullptr : root.view_source();
  if (view_source == nullptr || !view_source->sums ||
      view_source->sums->generation != view_source->generation() ||
      !have_same_rows(root, view_source->sums->dim, meta, dim)) {
    return {};
  }
  std::vector<int64_t> shape = meta.local.sizes().vec();
  shape[static_cast<size_t>(dim)] = 1;
  return view_source->sums->sums.reshape(shape);
}

at::Tensor replicated_value(const at::Tensor& t) {
  const ShardedMeta& meta = meta_ready(t);
  return meta.spec->is_replicated() ? refreshed_shard(t)
                                    : redistribute_value(
                                          refreshed_shard(t), *meta.spec,
                                          replicated(meta.spec->mesh()));
}

}  // namespace tessera::detail::inline tensor_layer
