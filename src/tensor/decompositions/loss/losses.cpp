// Means of elementwise losses over cut tensors: the sum over a shard, divided
// by the number of all elements, is a partial value of the mean. Nothing is
// sent.
//
// Worked row, mse_loss: terms (1 4 | 9) -> 5 / 3 and 9 / 3 -> 14 / 3.
#include <optional>

#include <ATen/ExpandUtils.h>
#include <c10/util/accumulate.h>
#include <tensor/decompositions/decomposed_call.h>
#include <tensor/decompositions/table.h>
#include <tensor/state/replicated.h>

namespace tessera::detail::inline tensor_layer {

namespace {

constexpr int64_t kMeanReduction = 1;  // of at::Reduction
constexpr int64_t kSumReduction = 2;

// The layout of a tensor that broadcasts to the terms, cut as they are.
Placements sharded_like_terms(
    const DTensorSpec& terms, c10::IntArrayRef shape) {
  Placements placements = without_partials(terms.placements());
  const auto missing = static_cast<int64_t>(terms.shape().size()) -
                       static_cast<int64_t>(shape.size());
  for (Placement& p : placements) {
    if (!p.is_shard()) {
      continue;
    }
    const int64_t d = p.dim() - missing;
    const int64_t size = terms.shape()[static_cast<size_t>(p.dim())];
    p = d >= 0 && shape[static_cast<size_t>(d)] == size ? p.with_dim(d)
                                                        : Replicate();
  }
  return placements;
}

// The number of the operand that says how the terms are cut: the first that is
// cut and not broadcast. `first` is the first operand with terms.
std::optional<size_t> leader_of(c10::ArrayRef<Operand> operands, size_t first) {
  std::vector<int64_t> shape;
  for (size_t i = first; i < operands.size(); ++i) {
    if (operands[i].defined) {
      shape = at::infer_size(shape, operands[i].shape);
    }
  }
  for (size_t i = first; i < operands.size(); ++i) {
    if (operands[i].defined && operands[i].shape == c10::IntArrayRef(shape) &&
        shards_any(*operands[i].placements)) {
      return i;
    }
  }
  return std::nullopt;
}

bool mean_is_sharded(const RuleCall& call, size_t first) {
  return call.integer("reduction") == kMeanReduction &&
         c10::isFloatingType(call.operand(first).dtype) &&
         leader_of(call.operands(), first).has_value();
}

bool mean_loss_applies(const RuleCall& call) {
  return mean_is_sharded(call, 0);
}
bool mean_loss_backward_applies(const RuleCall& call) {
  return mean_is_sharded(call, 1);
}

// The call on this rank's shards, as a sum.
struct LocalLoss {
  SpecPtr terms;
  double count = 1;
  std::vector<c10::IValue> arguments;
};

// Tensor arguments from number `first` on are cut like the terms; shards of f16
// and bf16 are widened, since sums of many terms are taken.
LocalLoss local_loss(
    DecomposedCall& decomposed, const OpCall& call, size_t first) {
  std::vector<Operand> operands;
  std::vector<SpecPtr> specs(call.size());
  for (size_t i = 0; i < call.size(); ++i) {
    const c10::IValue& value = call.argument(i);
    if (value.isTensor() && value.toTensor().defined()) {
      specs[i] = decomposed.spec(value.toTensor());
      operands.push_back(
          {.shape = specs[i]->shape(),
           .strides = specs[i]->strides(),
           .defined = true,
           .argument = static_cast<int32_t>(i),
           .placements = &specs[i]->placements()});
    }
  }
  LocalLoss loss;
  loss.terms = specs[static_cast<size_t>(
      operands[*leader_of(operands, first)].argument)];
  loss.count = static_cast<double>(c10::multiply_integers(loss.terms->shape()));
  for (size_t i = 0; i < call.size(); ++i) {
    const std::string& name = call.schema().arguments()[i].name();
    loss.arguments.push_back(call.argument(i));
    if (name == "reduction") {
      loss.arguments[i] = kSumReduction;
    } else if (specs[i]) {
      const Placements target =
          i < first ? replicated(decomposed.mesh())
                    : sharded_like_terms(*loss.terms, specs[i]->shape());
      const at::Tensor t =
          decomposed.shard(name, call.argument(i).toTensor(), target);
      loss.arguments[i] = t.defined() && t.is_floating_point()
                              ? t.to(sum_type(t.scalar_type()))
                              : t;
    }
  }
  return loss;
}

at::Tensor run_local(const OpCall& call, const LocalLoss& loss) {
  torch::jit::Stack stack = loss.arguments;
  call.op().callBoxed(stack);
  return stack.back().toTensor();
}

void mean_loss(const OpCall& call) {
  DecomposedCall decomposed(call);
  const LocalLoss loss = local_loss(decomposed, call, 0);
  const c10::ScalarType dtype = decomposed.tensor("self").scalar_type();
  Placements placements = without_partials(loss.terms->placements());
  for (Placement& p : placements) {
    p = p.is_shard() ? Partial() : p;
  }
  decomposed.finish({decomposed.wrap(
      DTensorSpec::make(decomposed.mesh(), placements, {}, dtype),
      [&] { return run_local(call, loss).div(loss.count).to(dtype); })});
}

void mean_loss_backward(const OpCall& call) {
  DecomposedCall decomposed(call);
  LocalLoss loss = local_loss(decomposed, call, 1);
  const c10::ScalarType dtype = decomposed.tensor("self").scalar_type();
  decomposed.finish({decomposed.wrap(
      loss.terms->contiguous(without_partials(loss.terms->placements()), dtype),
      [&] {
        loss.arguments[0] = loss.arguments[0].toTensor().div(loss.count);
        return run_local(call, loss).to(dtype);
      })});
}

}  // namespace

void add_loss_decompositions(OpRegistry& ops) {
  for (const char* name :
       {"aten::mse_loss", "aten::smooth_l1_loss", "aten::huber_loss",
        "aten::soft_margin_loss", "aten::binary_cross_entropy",
        "aten::binary_cross_entropy_with_logits"}) {
    ops.at(name).decomposition = {mean_loss_applies, mean_loss};
  }
  for (const char* name :
       {"aten::mse_loss_backward", "aten::smooth_l1_loss_backward",
        "aten::huber_loss_backward", "aten::soft_margin_loss_backward",
        "aten::binary_cross_entropy_backward"}) {
    ops.at(name).decomposition = {
        mean_loss_backward_applies, mean_loss_backward};
  }
}

}  // namespace tessera::detail::inline tensor_layer
