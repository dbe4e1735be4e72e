// A decided call on this rank's shards, from the stack: local tensors take the
// place of tensors, the operator runs on them, and its results are wrapped.
//
// run_decision() and run_cached() differ in what takes the place of a tensor,
// and in how what was written gets back. fast/typed_kernel.h runs without a
// stack, and uses LocalKeys and ResultWrapper (call/result_specs.h) too.
#pragma once

#include <memory>
#include <utility>

#include <c10/util/SmallVector.h>
#include <tensor/call/decision.h>
#include <tensor/impl/sharded_impl.h>

namespace tessera::detail::inline tensor_layer {

/// The dispatch keys of the operator's call on shards: those of the first such
/// call, so that the dispatcher need not ask every argument again. For calls
/// whose key is_simple(): the shards have no marks of their own.
class LocalKeys {
 public:
  explicit LocalKeys(const Decision& decision) : decision_(decision) {}
  bool are_unknown() const { return decision_.local_keys.empty(); }
  void add(const at::Tensor& shard) {
    if (shard.defined()) {
      shards_ = shards_ | shard.key_set();
    }
  }
  c10::DispatchKeySet get() {
    if (are_unknown()) {
      decision_.local_keys = shards_ & c10::after_ADInplaceOrView_keyset;
    }
    return decision_.local_keys;
  }

 private:
  const Decision& decision_;
  c10::DispatchKeySet shards_;
};

/// A tensor that a call writes, and what took its place.
struct Written {
  at::Tensor tensor;
  at::Tensor value;
  const OperandPlan* plan = nullptr;
  bool moved = false;  // the value does not share the tensor's memory
};

/// Precondition: this rank is in the mesh of the decision, which is of strategy
/// kByRule or kReplicated.
struct LocalCall {
  const OpCall& call;
  const OpTraits& traits;
  const Decision& decision;
  c10::SmallVector<Written, 2> written = {};
  at::Tensor viewed = {};                    // what results are views of
  std::shared_ptr<ViewCopy> copy = nullptr;  // of `viewed`, which they show

  /// Replaces every tensor t of the arguments by f(t, its plan).
  template <class F>
  void map_operands(F f);
  /// Runs the operator, or the rule's local kernel. Where the strides of a
  /// shard do not permit a view, `copy` is made, and the view shows that.
  /// `keys_known`: the decision's local_keys may be used and kept.
  void run(bool keys_known);
  /// Wraps the results; tensors that were written are returned themselves.
  void wrap_results() const;

 private:
  void run_operator(bool keys_known) const;
  bool try_view(bool keys_known) const;
  const at::Tensor* written_as(size_t result) const;
};

template <class F>
void LocalCall::map_operands(F f) {
  size_t next = 0;
  for (size_t i = 0; i < call.size(); ++i) {
    c10::IValue& value = call.argument(i);
    if (traits.arguments[i].kind == ArgumentTraits::Kind::kTensor) {
      const OperandPlan& plan = decision.operands[next++];
      if (plan.defined) {
        value = f(value.toTensor(), plan);
      }
    } else if (traits.arguments[i].kind == ArgumentTraits::Kind::kTensors) {
      map_elements(value, [&](const at::Tensor& t) {
        const OperandPlan& plan = decision.operands[next++];
        return plan.defined ? f(t, plan) : t;
      });
    }
  }
}

}  // namespace tessera::detail::inline tensor_layer
