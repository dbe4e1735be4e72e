#include <tensor/inspect/dry_run.h>

#include <exception>
#include <unordered_map>

#include <ATen/ops/empty_like.h>
#include <c10/util/Exception.h>
#include <tensor/call/decomposition.h>
#include <tensor/call/moves.h>
#include <tensor/impl/sharded_impl.h>
#include <tensor/random/ops/table.h>
#include <tensor/run/run_off_mesh.h>
#include <tensor/state/thread_state.h>
#include <tensor/state/torch_compat.h>
#include <tessera/layout/notation.h>
#include <torch/csrc/autograd/functions/utils.h>

namespace tessera::detail::inline tensor_layer {

namespace {

// Thrown where a dry run cannot go on, through ATen's kernels.
struct End : std::exception {
  const char* what() const noexcept override { return "end of a dry run"; }
};

// The history of a tensor that has one; never run.
struct NoHistory final : torch::autograd::Node {
  torch::autograd::variable_list apply(
      torch::autograd::variable_list&&) override {
    return {};
  }
};

at::Tensor without_data(const at::Tensor& t) {
  const ShardedMeta& meta = meta_nowait(t);
  at::Tensor copy =
      wrap_without_data(meta.spec, t.device(), {meta.copy, meta.base});
  copy.unsafeGetTensorImpl()->set_storage_offset(t.storage_offset());
  if (meta.has_state()) {
    meta_ready(copy).change().view_source = meta.state().view_source;
  }
  if (t.requires_grad() && t.is_leaf()) {
    copy.set_requires_grad(true);
  } else if (t.requires_grad()) {
    torch::autograd::set_history(copy, make_node<NoHistory>());
  }
  return copy;
}

std::vector<std::string> results_of(const OpCall& call) {
  const auto& stack = *call.stack();
  std::vector<std::string> results;
  for (size_t i = stack.size() - call.schema().returns().size();
       i < stack.size(); ++i) {
    for_each_tensor(stack[i], [&](const at::Tensor& t) {
      if (is_sharded(t)) {
        results.push_back(
            dtype_name(t.scalar_type()) + shape_to_string(t.sizes().vec()) +
            " " + to_string(spec_of(t).placements()));
      }
    });
    if (!stack[i].isTensor() && !stack[i].isList()) {
      results.emplace_back("a value");
    }
  }
  return results;
}

bool returns_value(const c10::FunctionSchema& schema) {
  for (const auto& result : schema.returns()) {
    if (!result.type()->isSubtypeOf(*c10::TensorType::get()) &&
        !result.type()->isSubtypeOf(*c10::ListType::ofTensors())) {
      return true;
    }
  }
  return false;
}

}  // namespace

DryRun::DryRun() {
  TORCH_INTERNAL_ASSERT(current() == nullptr, "a dry run in a dry run");
  ThreadState::here().observer = this;
}

DryRun::~DryRun() {
  ThreadState::here().observer = nullptr;
}

void DryRun::make(const c10::OperatorHandle& op, torch::jit::Stack& stack) {
  try {
    op.callBoxed(&stack);
  } catch (const End&) {
    TORCH_INTERNAL_ASSERT(!end_.empty());
  }
}

void DryRun::stop(std::string why) {
  end_ = std::move(why);
  throw End();
}

void DryRun::take(const OpCall& call, const OpTraits& traits) {
  DryCall dry{
      .text = call.describe(),
      .schema = &call.schema(),
      .strategy = Strategy::kCustomKernel};
  if (has_custom_kernel(call, traits)) {
    dry.reason = "a kernel of its own";
    dry.moves =
        moves_of(call, traits, Decision{.strategy = Strategy::kCustomKernel});
  } else {
    const DecisionPtr decision = decide(call, traits);
    dry.strategy = decision->strategy;
    dry.reason = decision->reason;
    dry.is_unsharded = decision->runs_unsharded();
    dry.moves = moves_of(call, traits, *decision);
  }
  const Strategy strategy = dry.strategy;
  calls_.push_back(std::move(dry));
  if (strategy == Strategy::kDecomposed) {
    const size_t number = calls_.size() - 1;
    traits.decomposition->run(call);
    calls_[number].results = results_of(call);
    if (returns_value(call.schema())) {
      stop("what follows depends on that value");
    }
    return;
  }
  if (traits.needs_no_data) {
    traits.custom_kernel(call);
  } else if (returns_value(call.schema())) {
    calls_.back().results = {"a value"};
    stop("what follows depends on that value");
  } else {
    try {
      run_for_specs(call, traits);
    } catch (const c10::Error& error) {
      stop(
          std::string("the result is known when it runs: ") +
          error.what_without_backtrace());
    }
  }
  calls_.back().results = results_of(call);
}

void DryRun::stop_at_values(const OpCall& call, const MoveList& moves) {
  calls_.push_back(
      {.text = call.describe(),
       .schema = &call.schema(),
       .strategy = Strategy::kCustomKernel,
       .reason = "ATen reads the values of an argument",
       .moves = moves.moves()});
  stop("what follows depends on those values");
}

void remove_data(const OpCall& call) {
  std::unordered_map<const c10::TensorImpl*, at::Tensor> copies;
  for (size_t i = 0; i < call.size(); ++i) {
    map_tensors(call.argument(i), [&](const at::Tensor& t) -> at::Tensor {
      if (!t.defined() || (!is_sharded(t) && !call.writes(i))) {
        return t;
      }
      auto [it, refreshed] = copies.try_emplace(t.unsafeGetTensorImpl());
      if (refreshed) {
        it->second = is_sharded(t) ? without_data(t) : at::empty_like(t);
      }
      return it->second;
    });
  }
}

}  // namespace tessera::detail::inline tensor_layer
