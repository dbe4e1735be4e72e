#include <tensor/move/view_copies.h>

#include <array>

#include <ATen/ops/empty_strided.h>
#include <ATen/ops/zeros.h>
#include <c10/util/Exception.h>
#include <c10/util/accumulate.h>
#include <tensor/impl/sharded_impl.h>
#include <tensor/move/redistribute_shard.h>
#include <tensor/state/replicated.h>
#include <tensor/state/strides.h>

namespace tessera::detail {

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
at::Tensor moved(
    const at::Tensor& local, const DTensorSpec& spec,
    const Placements& target) {
  at::Tensor value = move_shard(local, spec, target);
  const bool own_memory = !value.is_same(local);
  const bool whole = value.sizes() == at::IntArrayRef(spec.shape());
  const std::vector<int64_t> strides =
      whole ? spec.strides()
            : dense_strides(value.sizes(), spec.shape(), spec.strides());
  if (own_memory && value.strides() == at::IntArrayRef(strides)) {
    return value;
  }
  at::Tensor copy = at::empty_strided(value.sizes(), strides, value.options());
  write_once(copy, value);
  return copy;
}

void refresh(Copy& copy) {
  const ShardCell& shard = *copy.shard;
  if (copy.is_stale()) {
    if (shard.of) {
      refresh(*shard.of);
    }
    write_once(
        copy.value, moved(shard.local, *shard.spec, copy.spec->placements()));
    copy.generation = shard.generation();
  }
}

const ShardedMeta& shown_by(const ShardedMeta& meta) {
  return meta.base ? *meta.base : meta;
}

std::shared_ptr<ShardCell> cell_of(const ShardedMeta& meta) {
  if (!meta.cell) {
    std::shared_ptr<uint64_t> writes;
    if (meta.base) {
      writes = cell_of(*meta.base)->writes;
    } else if (meta.copy) {
      writes = meta.copy->shard->writes;
    } else {
      writes = std::make_shared<uint64_t>(0);
    }
    meta.cell = std::make_shared<ShardCell>(ShardCell{
        .local = meta.local,
        .spec = meta.spec,
        .writes = std::move(writes),
        .copies = {},
        .of = meta.copy,
        .base = meta.base});
  }
  return meta.cell;
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

const at::Tensor& fresh_local(const at::Tensor& t) {
  const ShardedMeta& meta = meta_of(t);
  if (meta.copy) {
    refresh(*meta.copy);
  }
  return meta.local;
}

std::shared_ptr<Copy> copy_of(const at::Tensor& t, const Placements& target) {
  fresh_local(t);
  return copy_of(meta_of(t), target);
}

std::shared_ptr<Copy> copy_of(
    const ShardedMeta& meta, const Placements& target) {
  const std::shared_ptr<ShardCell> cell = cell_of(meta);
  // Copies even where a view keeps a copy that is up to date: views may live
  // longer on one rank than on another, and all must communicate alike.
  at::Tensor value = moved(meta.local, *meta.spec, target);
  std::erase_if(
      cell->copies, [](const auto& known) { return known.expired(); });
  for (const auto& known : cell->copies) {
    const std::shared_ptr<Copy> copy = known.lock();
    if (copy && copy->spec->placements() == target) {
      write_once(copy->value, value);
      copy->generation = cell->generation();
      return copy;
    }
  }
  SpecPtr spec = DTensorSpec::make(
      meta.spec->mesh(), target, meta.spec->shape(), meta.spec->strides(),
      meta.spec->dtype());
  auto copy = std::make_shared<Copy>(
      Copy{std::move(value), std::move(spec), cell, cell->generation()});
  cell->copies.push_back(copy);
  return copy;
}

c10::intrusive_ptr<ShardedMeta> root_of(const at::Tensor& t) {
  auto meta = c10::static_intrusive_pointer_cast<ShardedMeta>(
      t.unsafeGetTensorImpl()->get_backend_meta_intrusive_ptr());
  if (!meta->copy) {
    return meta->base ? meta->base : meta;
  }
  std::shared_ptr<ShardCell> cell = meta->copy->shard;
  while (cell->of) {
    cell = cell->of->shard;
  }
  if (cell->base) {
    return cell->base;
  }
  // The tensor's own meta may be gone; its cell is all that others share.
  auto root = c10::make_intrusive<ShardedMeta>(
      cell->local, cell->spec, nullptr, nullptr);
  root->cell = cell;
  return root;
}

void after_write(const at::Tensor& t) {
  const ShardedMeta& meta = meta_of(t);
  if (meta.copy) {
    return after_write(*meta.copy);
  }
  if (const auto& cell = shown_by(meta).cell) {
    ++*cell->writes;
  }
}

void after_write(Copy& copy) {
  ShardCell& shard = *copy.shard;
  shard.local.copy_(
      move_shard(copy.value, *copy.spec, shard.spec->placements()));
  if (shard.of) {
    after_write(*shard.of);
  } else {
    ++*shard.writes;
  }
  copy.generation = shard.generation();
}

void keep_sums(const at::Tensor& t, int64_t dim, at::Tensor sums) {
  const std::shared_ptr<ShardCell> cell = cell_of(meta_of(t));
  cell->sums = KnownSums{dim, std::move(sums), cell->generation()};
}

at::Tensor known_sums(const at::Tensor& t, int64_t dim) {
  const ShardedMeta& meta = meta_of(t);
  const ShardedMeta& root = shown_by(meta);
  const ShardCell* cell = meta.copy ? nullptr : root.cell.get();
  if (cell == nullptr || !cell->sums ||
      cell->sums->generation != cell->generation() ||
      !have_same_rows(root, cell->sums->dim, meta, dim)) {
    return {};
  }
  std::vector<int64_t> shape = meta.local.sizes().vec();
  shape[static_cast<size_t>(dim)] = 1;
  return cell->sums->sums.reshape(shape);
}

at::Tensor replicated_value(const at::Tensor& t) {
  const ShardedMeta& meta = meta_of(t);
  return meta.spec->is_replicated()
             ? fresh_local(t)
             : moved(fresh_local(t), *meta.spec, replicated(meta.spec->mesh()));
}

}  // namespace tessera::detail
