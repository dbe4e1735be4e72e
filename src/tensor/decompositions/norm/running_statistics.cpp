#include <tensor/decompositions/norm/running_statistics.h>

#include <ATen/ops/stack.h>
#include <tensor/impl/sharded_impl.h>
#include <tensor/move/view_copies.h>

namespace tessera::detail::inline tensor_layer {

namespace {

// The placements of several values in one tensor, with a new dim in front.
Placements raised(const Placements& placements) {
  Placements result = placements;
  for (Placement& p : result) {
    p = p.is_shard() ? p.with_dim(p.dim() + 1) : p;
  }
  return result;
}

void overwrite(const at::Tensor& t, const at::Tensor& shard) {
  if (!is_sharded(t)) {
    t.copy_(shard);
    return;
  }
  refreshed_shard(t).copy_(shard);
  after_write(t);
}

}  // namespace

RunningStatistics::RunningStatistics(
    DecomposedCall& decomposed, const Placements& channels)
    : decomposed_(decomposed), channels_(channels) {
  for (One& one : both_) {
    one.tensor = decomposed.optional_tensor(one.name);
    if (!one.tensor.defined()) {
      continue;
    }
    one.spec = decomposed.spec(one.tensor);
    one.in_place = one.spec->placements() == channels;
    one.local = decomposed.shard(one.name, one.tensor, channels);
    if (one.local.defined() && !one.in_place) {
      one.local = one.local.clone();  // a cut may show the tensor's memory
    }
  }
}

bool RunningStatistics::lie_alike() const {
  const One& mean = both_[0];
  const One& variance = both_[1];
  return !mean.in_place && !variance.in_place &&
         mean.spec->dtype() == variance.spec->dtype() &&
         mean.spec->placements() == variance.spec->placements();
}

void RunningStatistics::write_back() {
  if (lie_alike()) {
    return gather({&both_[0], &both_[1]});
  }
  for (const One& one : both_) {
    if (!one.in_place) {
      gather({&one});
    } else if (one.local.defined() && is_sharded(one.tensor)) {
      after_write(one.tensor);
    }
  }
}

void RunningStatistics::gather(const std::vector<const One*>& some) {
  const DTensorSpec& spec = *some[0]->spec;
  const SpecPtr sharded_alike = DTensorSpec::make(
      decomposed_.mesh(), raised(channels_),
      {static_cast<int64_t>(some.size()), spec.shape()[0]}, spec.dtype());
  const at::Tensor parts = decomposed_.wrap(sharded_alike, [&] {
    std::vector<at::Tensor> locals;
    for (const One* one : some) {
      locals.push_back(one->local);
    }
    return at::stack(locals);
  });
  const at::Tensor unsharded =
      decomposed_.shard(some[0]->name, parts, raised(spec.placements()));
  for (size_t i = 0; i < some.size() && decomposed_.computes(); ++i) {
    overwrite(some[i]->tensor, unsharded.select(0, static_cast<int64_t>(i)));
  }
}

}  // namespace tessera::detail::inline tensor_layer
