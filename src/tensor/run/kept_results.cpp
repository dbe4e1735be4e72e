#include <tensor/run/kept_results.h>

#include <fnmatch.h>

#include <algorithm>
#include <utility>

#include <c10/util/Exception.h>
#include <tensor/move/kept_moves.h>
#include <tensor/state/dispatch_keys.h>
#include <tensor/state/late_operators.h>
#include <tessera/comm/world.h>

namespace tessera::detail::inline tensor_layer {

namespace {

thread_local KeptResults::Run* current_run = nullptr;

bool names_operator(const std::string& glob, const c10::OperatorName& op) {
  return ::fnmatch(glob.c_str(), op.name.c_str(), 0) == 0 ||
         ::fnmatch(glob.c_str(), c10::toString(op).c_str(), 0) == 0;
}

// Views and writes are no results, and lists have no place.
bool makes_tensors(const c10::FunctionSchema& schema) {
  const auto& returns = schema.returns();
  return !schema.is_mutable() && !returns.empty() &&
         std::all_of(returns.begin(), returns.end(), [](const auto& result) {
           return result.type()->kind() == c10::TypeKind::TensorType &&
                  result.alias_info() == nullptr;
         });
}

// The same memory and version counter, without history.
at::Tensor alias_of(const at::Tensor& t) {
  return t.defined()
             ? at::Tensor(t.unsafeGetTensorImpl()->shallow_copy_and_detach(
                   t.unsafeGetTensorImpl()->version_counter(),
                   /*allow_tensor_metadata_change=*/true))
             : t;
}

}  // namespace

KeptResults::KeptResults(std::vector<std::string> names)
    : names_(std::move(names)) {
  ensure_registered();
  const auto all = names_.empty()
                       ? std::vector<c10::OperatorName>()
                       : c10::Dispatcher::singleton().getAllOpNames();
  for (const std::string& name : names_) {
    TORCH_CHECK_VALUE(
        std::any_of(
            all.begin(), all.end(),
            [&](const auto& op) { return names_operator(name, op); }),
        "activation_checkpoint, rank ", rank(),
        ": .keep names operators, with globs, as \"aten::mm\"; no operator is ",
        "called \"", name, "\"; tessera ops lists them");
  }
}

bool KeptResults::keeps(const c10::OperatorHandle& op) {
  const auto [found, is_new] = kept_.try_emplace(op.operator_name(), false);
  if (is_new) {
    found->second =
        makes_tensors(op.schema()) &&
        std::any_of(names_.begin(), names_.end(), [&](const auto& name) {
          return names_operator(name, op.operator_name());
        });
  }
  return found->second;
}

bool KeptResults::One::is_unwritten() const {
  for (size_t i = 0; i < results.size(); ++i) {
    if (results[i].defined() && results[i]._version() != versions[i]) {
      return false;
    }
  }
  return !results.empty();
}

KeptResults::Run::Run(KeptResults* results, How how)
    : results_(
          results != nullptr && !results->names_.empty() ? results : nullptr),
      how_(how),
      outer_(std::exchange(current_run, this)),
      include_(
          results_ != nullptr ? c10::DispatchKeySet(kUnshardedRandomKey)
                              : c10::DispatchKeySet()) {}

KeptResults::Run::~Run() {
  current_run = outer_;
}

void KeptResults::Run::keep(
    const c10::OperatorHandle& op, const torch::jit::Stack& stack) {
  One one{op.operator_name(), {}, {}};
  const size_t count = op.schema().returns().size();
  for (size_t i = stack.size() - count; i < stack.size(); ++i) {
    one.results.push_back(alias_of(stack[i].toTensor()));
    one.versions.push_back(
        one.results.back().defined() ? one.results.back()._version() : 0);
  }
  results_->all_.push_back(std::move(one));
}

bool KeptResults::Run::take(
    const c10::OperatorHandle& op, torch::jit::Stack* stack) {
  const bool is_there = taken_ < results_->all_.size() &&
                        results_->all_[taken_].op == op.operator_name();
  TORCH_CHECK_VALUE(
      is_there, "activation_checkpoint, rank ", rank(),
      ": fn must call the same operators each time it runs; kept call ",
      taken_ + 1, " is ", op.operator_name(), " in the recomputation, and was ",
      taken_ < results_->all_.size() ? c10::toString(results_->all_[taken_].op)
                                     : "none",
      " in the forward");
  One& one = results_->all_[taken_++];
  if (!one.is_unwritten()) {
    return false;
  }
  torch::jit::drop(*stack, op.schema().arguments().size());
  for (at::Tensor& result : one.results) {
    stack->emplace_back(
        how_ == How::kTakeOnce ? std::exchange(result, {}) : alias_of(result));
  }
  if (how_ == How::kTakeOnce) {
    one.results.clear();
  }
  return true;
}

void KeptResults::Run::call(
    const c10::OperatorHandle& op, c10::DispatchKeySet below,
    torch::jit::Stack* stack) {
  Run* run = current_run;
  if (run == nullptr || run->results_ == nullptr) {
    op.redispatchBoxed(below, stack);
    return;
  }
  const Run inside(nullptr, How::kKeep);
  if (!run->results_->keeps(op)) {
    op.redispatchBoxed(below, stack);
    return;
  }
  if (run->how_ != How::kKeep && run->take(op, stack)) {
    return;
  }
  {
    const KeptMoves::Suspend moves;
    op.redispatchBoxed(below, stack);
  }
  if (run->how_ == How::kKeep) {
    run->keep(op, *stack);
  }
}

void kept_results_fallback(
    const c10::OperatorHandle& op, c10::DispatchKeySet keys,
    torch::jit::Stack* stack) {
  KeptResults::Run::call(
      op,
      keys & c10::DispatchKeySet(
                 c10::DispatchKeySet::FULL_AFTER, kUnshardedRandomKey),
      stack);
}

}  // namespace tessera::detail::inline tensor_layer
