// A call of the dispatcher as a rule sees it.
#pragma once

#include <optional>
#include <vector>

#include <rules/choose.h>
#include <tensor/call/op_traits.h>
#include <tensor/impl/sharded_impl.h>

namespace tessera::detail::inline tensor_layer {

/// A tensor argument on the stack; `tensor` is nullptr for None.
struct OperandAt {
  int32_t argument;
  int32_t element;
  const at::Tensor* tensor;
};

/// Calls f(OperandAt) for every tensor argument, element by element of lists,
/// in the order of the schema: the numbering of rules. Out tensors come last.
template <class F>
void for_each_operand(const OpCall& call, const OpTraits& traits, F f) {
  for (size_t i = 0; i < call.size(); ++i) {
    const auto number = static_cast<int32_t>(i);
    const c10::IValue& value = call.argument(i);
    switch (traits.arguments[i].kind) {
      case ArgumentTraits::Kind::kStatic:
        break;
      case ArgumentTraits::Kind::kTensor:
        f(OperandAt{number, 0, value.isTensor() ? &value.toTensor() : nullptr});
        break;
      case ArgumentTraits::Kind::kTensors:
        if (value.isNone()) {
          break;
        }
        int32_t element = 0;
        for (const c10::IValue& one : value.toListRef()) {
          f(OperandAt{
              number, element++, one.isTensor() ? &one.toTensor() : nullptr});
        }
        break;
    }
  }
}

/// The price of moves along mesh dims of `mesh`, by this thread's machine
/// model.
MoveCost move_cost(const DeviceMesh& mesh);

/// Holds what a RuleCall points to.
class RuleOperands {
 public:
  RuleOperands(
      const OpCall& call, const OpTraits& traits, const DeviceMesh& mesh);
  RuleOperands(const RuleOperands&) = delete;
  RuleOperands& operator=(const RuleOperands&) = delete;

  /// Returns the call with all its operands.
  RuleCall call() const { return call(operands_); }
  RuleCall call(const std::vector<Operand>& operands) const;

  /// Returns the length of the lists of a foreach call.
  int32_t list_length() const;
  /// Returns the operands of one index, in the order of the schema, and their
  /// numbers; those outside lists belong to every index, as numbers do.
  std::vector<Operand> element(
      int32_t index, std::vector<size_t>& numbers) const;

 private:
  const OpCall& call_;
  const OpTraits& traits_;
  const Placements replicated_;
  std::vector<Operand> operands_;
};

}  // namespace tessera::detail::inline tensor_layer
