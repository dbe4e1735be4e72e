// Operators on lists that a row per element cannot serve: an empty shard has no
// maximum, and a flag that all elements share is wanted on all ranks.
#include <algorithm>

#include <ATen/ops/_amp_foreach_non_finite_check_and_unscale.h>
#include <ATen/ops/_foreach_max.h>
#include <ATen/ops/full.h>
#include <c10/util/accumulate.h>
#include <tensor/decompositions/decomposed_call.h>
#include <tensor/decompositions/table.h>
#include <tensor/impl/sharded_impl.h>
#include <tensor/move/view_copies.h>
#include <tensor/state/replicated.h>
#include <tensor/state/value_limits.h>

namespace tessera::detail::inline tensor_layer {

namespace {

bool shards_an_operand(const RuleCall& call) {
  return std::any_of(
      call.operands().begin(), call.operands().end(),
      [](const Operand& t) { return t.defined && shards_any(*t.placements); });
}

bool is_maximum(const Placement& p) {
  return p.is_partial() && p.reduce_op() == ReduceOp::kMax;
}

// Candidates for the maximum stay such.
Placements without_other_partials(const Placements& placements) {
  Placements result = placements;
  for (Placement& p : result) {
    p = p.is_partial() && !is_maximum(p) ? Replicate() : p;
  }
  return result;
}

// The largest elements of the shards of a list; an empty one loses to all.
std::vector<at::Tensor> local_maxima(const std::vector<at::Tensor>& shards) {
  std::vector<at::Tensor> filled, results;
  for (const at::Tensor& x : shards) {
    if (x.numel() > 0) {
      filled.push_back(x);
    }
  }
  const std::vector<at::Tensor> maxima =
      filled.empty() ? filled : at::_foreach_max(filled);
  size_t next = 0;
  for (const at::Tensor& x : shards) {
    results.push_back(
        x.numel() > 0
            ? maxima[next++]
            : at::full({}, smallest_value(x.scalar_type()), x.options()));
  }
  return results;
}

void foreach_max(const OpCall& call) {
  DecomposedCall decomposed(call);
  const std::vector<at::Tensor> list =
      decomposed.argument("self").toTensorVector();
  std::vector<at::Tensor> shards, results;
  std::vector<SpecPtr> specs;
  for (const at::Tensor& t : list) {
    Placements placements =
        without_other_partials(decomposed.spec(t)->placements());
    shards.push_back(decomposed.shard("self", t, placements));
    for (Placement& p : placements) {
      p = p.is_shard() ? Partial(ReduceOp::kMax) : p;
    }
    specs.push_back(DTensorSpec::make(
        decomposed.mesh(), placements, std::vector<int64_t>(),
        t.scalar_type()));
  }
  const std::vector<at::Tensor> maxima =
      decomposed.computes() ? local_maxima(shards) : shards;
  for (size_t i = 0; i < list.size(); ++i) {
    results.push_back(decomposed.wrap(specs[i], [&] { return maxima[i]; }));
  }
  decomposed.finish({c10::List<at::Tensor>(results)});
}

bool has_maxima(const RuleCall& call) {
  const bool any_empty = std::any_of(
      call.operands().begin(), call.operands().end(),
      [](const Operand& t) { return c10::multiply_integers(t.shape) == 0; });
  return shards_an_operand(call) && !any_empty;
}

// Gives a tensor a value that all ranks hold.
void write_replicated(
    DecomposedCall& decomposed, const at::Tensor& t, const at::Tensor& value) {
  const SpecPtr unsharded = decomposed.spec(t)->contiguous(
      replicated(decomposed.mesh()), t.scalar_type());
  if (decomposed.spec(t)->placements() != unsharded->placements()) {
    t.copy_(decomposed.wrap(unsharded, [&] { return value; }));
  } else if (decomposed.computes() && is_sharded(t)) {
    refreshed_shard(t).copy_(value);
    after_write(t);
  } else if (decomposed.computes()) {
    t.copy_(value);
  }
}

// A tensor of the list, and its local argument: partial values are
// scaled when they are summed up, since a sum may be infinite.
struct Scaled {
  at::Tensor tensor;
  at::Tensor local;
  bool was_summed;
};

std::vector<Scaled> shards_to_scale(
    DecomposedCall& decomposed, MeshDims& over) {
  std::vector<Scaled> list;
  std::vector<bool> sharded_mesh_dims(
      static_cast<size_t>(decomposed.mesh().ndim()), false);
  for (const at::Tensor& t : decomposed.argument("self").toTensorVector()) {
    const Placements& placements = decomposed.spec(t)->placements();
    const Placements summed = without_partials(placements);
    at::Tensor local = decomposed.shard("self", t, summed);
    const bool was_summed = summed != placements;
    list.push_back(
        {t, was_summed && local.defined() ? local.clone() : local, was_summed});
    for (size_t m = 0; m < summed.size(); ++m) {
      sharded_mesh_dims[m] = sharded_mesh_dims[m] || summed[m].is_shard();
    }
  }
  for (size_t m = 0; m < sharded_mesh_dims.size(); ++m) {
    if (sharded_mesh_dims[m]) {
      over.push_back(static_cast<int64_t>(m));
    }
  }
  return list;
}

// Gives the tensors of the list back what was done to their shards.
void write_scaled(DecomposedCall& decomposed, const std::vector<Scaled>& list) {
  for (const Scaled& one : list) {
    if (one.was_summed) {
      const SpecPtr spec = decomposed.spec(one.tensor);
      one.tensor.copy_(decomposed.wrap(
          spec->contiguous(without_partials(spec->placements()), spec->dtype()),
          [&] { return one.local; }));
    } else if (decomposed.computes() && is_sharded(one.tensor)) {
      after_write(one.tensor);
    }
  }
}

// Each rank scales its shards; whether any rank met an infinity or a NaN is the
// maximum of their flags.
void unscale(const OpCall& call) {
  DecomposedCall decomposed(call);
  const at::Tensor found = decomposed.tensor("found_inf");
  const Placements unsharded = replicated(decomposed.mesh());
  MeshDims over;
  const std::vector<Scaled> list = shards_to_scale(decomposed, over);
  const at::Tensor flag = decomposed.shard("found_inf", found, unsharded);
  const at::Tensor inverse =
      decomposed.shard("inv_scale", decomposed.tensor("inv_scale"), unsharded);
  const SpecPtr spec =
      decomposed.spec(found)->contiguous(unsharded, found.scalar_type());
  const at::Tensor met = decomposed.all_reduce(spec, over, ReduceOp::kMax, [&] {
    std::vector<at::Tensor> shards;
    for (const Scaled& one : list) {
      shards.push_back(one.local);
    }
    at::Tensor mine = flag.clone();
    at::_amp_foreach_non_finite_check_and_unscale_(shards, mine, inverse);
    return mine;
  });
  write_scaled(decomposed, list);
  write_replicated(decomposed, found, met);
  decomposed.finish({});
}

}  // namespace

void add_foreach_decompositions(OpRegistry& ops) {
  ops.at("aten::_foreach_max").decomposition = {has_maxima, foreach_max};
  ops.at("aten::_amp_foreach_non_finite_check_and_unscale_").decomposition = {
      shards_an_operand, unscale};
}

}  // namespace tessera::detail::inline tensor_layer
