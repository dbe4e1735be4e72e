// The negative log-likelihood over cut scores. Each rank picks the scores of
// the targets whose class it holds; what it picks, and the weight of it, are
// partial values. No score is sent.
//
// Scores are [C], [N, C] or [N, C, H, W], targets the same without C.
#include <ATen/TensorOperators.h>
#include <ATen/ops/full.h>
#include <ATen/ops/stack.h>
#include <ATen/ops/where.h>
#include <ATen/ops/zeros.h>
#include <ATen/ops/zeros_like.h>
#include <c10/util/Exception.h>
#include <tensor/decompositions/decomposed_call.h>
#include <tensor/decompositions/table.h>
#include <tensor/impl/sharded_impl.h>
#include <tensor/move/view_copies.h>
#include <tensor/state/replicated.h>

namespace tessera::detail::inline tensor_layer {

namespace {

enum class LossReduction : int64_t { kNone = 0, kMean = 1, kSum = 2 };

int64_t class_dim(size_t ndim) {
  return ndim == 1 ? 0 : 1;
}

// Scores, targets and weights of this rank, and where the targets are.
struct Picks {
  explicit Picks(DecomposedCall& decomposed)
      : self(decomposed.tensor("self")),
        dim(class_dim(static_cast<size_t>(self.dim()))),
        reduction(static_cast<LossReduction>(
            decomposed.argument("reduction").toInt())) {
    const SpecPtr given = decomposed.spec(self);
    std::vector<bool> classes(given->shape().size(), false);
    classes[static_cast<size_t>(dim)] = true;
    r = reduced(*given, classes, sum_type(given->dtype()));
    scores = given->contiguous(r.operand, given->dtype());
    Placements of_weight = r.operand;
    for (size_t m = 0; m < of_weight.size(); ++m) {
      of_weight[m] =
          of_weight[m].is_shard(dim) ? of_weight[m].with_dim(0) : Replicate();
      if (r.operand[m].is_shard()) {
        over.push_back(static_cast<int64_t>(m));
      }
    }
    x = decomposed.shard("self", self, r.operand);
    t = decomposed.shard(
        "target", decomposed.tensor("target"), r.dropped->placements());
    w = decomposed.shard(
        "weight", decomposed.optional_tensor("weight"), of_weight);
    if (decomposed.computes()) {
      find(decomposed);
    }
  }

  // Picks one value per target from a tensor of classes; 0 where the class is
  // not here.
  at::Tensor weights() const {
    if (x.size(dim) == 0) {
      return at::zeros(t.sizes(), x.options().dtype(r.kept->dtype()));
    }
    const at::Tensor picked =
        w.defined()
            ? w.to(r.kept->dtype())
                  .index_select(0, target_index.reshape({-1}))
                  .reshape(t.sizes())
            : at::full(t.sizes(), 1, x.options().dtype(r.kept->dtype()));
    return at::where(here, picked, 0);
  }

  // The weight of each target, whichever rank has its class; 0 where it does
  // not count. `unsharded` are the weights of all classes.
  at::Tensor weights_anywhere(const at::Tensor& unsharded) const {
    const c10::ScalarType dtype = r.kept->dtype();
    const at::Tensor picked =
        unsharded.defined()
            ? unsharded.to(dtype)
                  .index_select(
                      0, at::where(counts, t, 0).to(at::kLong).reshape({-1}))
                  .reshape(t.sizes())
            : at::full(t.sizes(), 1, x.options().dtype(dtype));
    return at::where(counts, picked, 0);
  }

  // The term of each target, before the sign: weight * score.
  at::Tensor terms(const at::Tensor& weight) const {
    if (x.size(dim) == 0) {
      return weight;
    }
    const at::Tensor picked = x.gather(dim, target_index.unsqueeze(dim))
                                  .squeeze(dim)
                                  .to(r.kept->dtype());
    return at::where(here, picked * weight, 0);
  }

  at::Tensor self;
  int64_t dim;
  LossReduction reduction;
  Reduced r;       // of the class dim
  SpecPtr scores;  // of `self`, no Partial
  MeshDims over;   // all mesh dims that cut the scores
  at::Tensor x, t, w;
  at::Tensor counts;        // the target is not to be ignored
  at::Tensor here;          // the class of the target is on this rank,
  at::Tensor target_index;  // at this index; 0 where it is not

 private:
  void find(const DecomposedCall& decomposed) {
    const int64_t ignored = decomposed.argument("ignore_index").toInt();
    const int64_t classes = scores->shape()[static_cast<size_t>(dim)];
    counts = t.ne(ignored);
    check_targets(classes);
    here = at::zeros(t.sizes(), t.options().dtype(at::kBool));
    target_index = at::zeros(t.sizes(), t.options().dtype(at::kLong));
    int64_t before = 0;
    for (const Run& run : scores->layout().runs(dim, decomposed.coordinate())) {
      const at::Tensor in_run =
          t.ge(run.begin).logical_and_(t.lt(run.end)).logical_and_(counts);
      target_index = at::where(
          in_run, t.to(at::kLong) + (before - run.begin), target_index);
      here.logical_or_(in_run);
      before += run.length();
    }
  }

  // Reading values back from a device would stall it.
  void check_targets(int64_t classes) const {
    if (!t.device().is_cpu()) {
      return;
    }
    const at::Tensor outside =
        t.lt(0).logical_or_(t.ge(classes)).logical_and_(counts);
    TORCH_CHECK_INDEX(
        !outside.any().item<bool>(), "nll_loss: targets must be in [0, ",
        classes, "); got ", t.masked_select(outside)[0].item());
  }
};

SpecPtr number_spec(
    const DecomposedCall& decomposed, const Placements& placements,
    c10::ScalarType dtype) {
  return DTensorSpec::make(decomposed.mesh(), placements, {}, dtype);
}

// One loss per target: partial values along the mesh dims that cut the classes.
void finish_terms(
    DecomposedCall& decomposed, const Picks& picks, const at::Tensor& terms) {
  const c10::ScalarType dtype = picks.self.scalar_type();
  Placements placements = picks.r.dropped->placements();
  for (const int64_t m : picks.r.over) {
    placements[static_cast<size_t>(m)] = Partial();
  }
  const Placements unsharded = replicated(decomposed.mesh());
  decomposed.finish(
      {decomposed.wrap(
           picks.r.dropped->contiguous(placements, dtype),
           [&] { return terms.neg().to(dtype); }),
       decomposed.wrap(number_spec(decomposed, unsharded, dtype), [&] {
         return at::zeros({}, picks.x.options());
       })});
}

void nll_forward(const OpCall& call) {
  DecomposedCall decomposed(call);
  const Picks picks(decomposed);
  const c10::ScalarType dtype = picks.self.scalar_type();
  at::Tensor weight, terms;
  if (decomposed.computes()) {
    weight = picks.weights();
    terms = picks.terms(weight);
  }
  if (picks.reduction == LossReduction::kNone && picks.self.dim() > 1) {
    return finish_terms(decomposed, picks, terms);
  }
  const auto both = [&] {
    return at::stack({terms.sum().neg(), weight.sum()});
  };
  if (picks.reduction != LossReduction::kMean) {
    Placements partial_placements = replicated(decomposed.mesh());
    for (const int64_t m : picks.over) {
      partial_placements[static_cast<size_t>(m)] = Partial();
    }
    const at::Tensor sums = decomposed.computes() ? both() : at::Tensor();
    const auto result = [&](int64_t i) {
      return decomposed.wrap(
          number_spec(decomposed, partial_placements, dtype),
          [&] { return sums.select(0, i).to(dtype).clone(); });
    };
    return decomposed.finish({result(0), result(1)});
  }
  // The mean divides by the weight of all, which the backward pass needs
  // replicated: the loss travels with it.
  const Placements unsharded = replicated(decomposed.mesh());
  const at::Tensor sums = decomposed.all_reduce(
      DTensorSpec::make(
          decomposed.mesh(), unsharded, {2}, picks.r.kept->dtype()),
      picks.over, ReduceOp::kSum, both);
  decomposed.finish(
      {decomposed.wrap(
           number_spec(decomposed, unsharded, dtype),
           [&] { return sums.select(0, 0).div(sums.select(0, 1)).to(dtype); }),
       decomposed.wrap(number_spec(decomposed, unsharded, dtype), [&] {
         return sums.select(0, 1).to(dtype).clone();
       })});
}

// This rank has the weights of all classes, as it has the targets.
bool knows_all_weights(const DecomposedCall& decomposed, const Picks& picks) {
  const at::Tensor weight = decomposed.optional_tensor("weight");
  return picks.scores->shape()[static_cast<size_t>(picks.dim)] > 0 &&
         (!weight.defined() || decomposed.spec(weight)->is_replicated());
}

at::Tensor replicated_weight(const DecomposedCall& decomposed) {
  const at::Tensor weight = decomposed.optional_tensor("weight");
  return weight.defined() && is_sharded(weight) ? refreshed_shard(weight)
                                                : weight;
}

// One element per row of the gradient is not 0, and every rank knows it: the
// derivative of a logarithm of softmax, which asks for the sum of rows, need
// not ask others.
void nll_backward(const OpCall& call) {
  DecomposedCall decomposed(call);
  const Picks picks(decomposed);
  const bool per_target =
      picks.reduction == LossReduction::kNone && picks.self.dim() > 1;
  const Placements unsharded = replicated(decomposed.mesh());
  const at::Tensor g = decomposed.shard(
      "grad_output", decomposed.tensor("grad_output"),
      per_target ? picks.r.dropped->placements() : unsharded);
  const at::Tensor total =
      picks.reduction == LossReduction::kMean
          ? decomposed.shard(
                "total_weight", decomposed.tensor("total_weight"), unsharded)
          : at::Tensor();
  const c10::ScalarType computed = picks.r.kept->dtype();
  const c10::ScalarType dtype = picks.scores->dtype();
  // The derivative by the score of a target, given the target's weight.
  const auto derivative = [&](const at::Tensor& weight) {
    const at::Tensor value = weight.mul(g.to(computed)).neg_();
    return (total.defined() ? value.div(total.to(computed)) : value).to(dtype);
  };
  const at::Tensor result = decomposed.wrap(picks.scores, [&] {
    at::Tensor gradient = at::zeros_like(picks.x);
    if (picks.x.numel() == 0) {
      return gradient;
    }
    return gradient.scatter_(
        picks.dim, picks.target_index.unsqueeze(picks.dim),
        at::where(picks.here, derivative(picks.weights()), 0)
            .unsqueeze(picks.dim));
  });
  if (decomposed.computes() && knows_all_weights(decomposed, picks)) {
    const at::Tensor value =
        derivative(picks.weights_anywhere(replicated_weight(decomposed)));
    keep_sums(
        result, picks.dim,
        at::where(picks.counts, value, 0).to(computed).unsqueeze(picks.dim));
  }
  decomposed.finish({result});
}

bool shards_classes(const Operand& scores) {
  const int64_t dim = class_dim(static_cast<size_t>(scores.ndim()));
  return scores.ndim() > 0 &&
         !mesh_dims_of_shards(*scores.placements, dim).empty();
}

bool nll_forward_applies(const RuleCall& call) {
  const bool mean =
      call.integer("reduction") == static_cast<int64_t>(LossReduction::kMean);
  return shards_classes(call.operand(0)) ||
         (mean && shards_any(*call.operand(0).placements));
}

bool nll_backward_applies(const RuleCall& call) {
  return shards_classes(call.operand(1));
}

}  // namespace

void add_nll_decompositions(OpRegistry& ops) {
  ops.at("aten::nll_loss_forward").decomposition = {
      nll_forward_applies, nll_forward};
  ops.at("aten::nll_loss2d_forward").decomposition = {
      nll_forward_applies, nll_forward};
  ops.at("aten::nll_loss_backward").decomposition = {
      nll_backward_applies, nll_backward};
  ops.at("aten::nll_loss2d_backward").decomposition = {
      nll_backward_applies, nll_backward};
}

}  // namespace tessera::detail::inline tensor_layer
