#include <tensor/call/rule_operands.h>

#include <algorithm>

#include <c10/util/accumulate.h>
#include <tensor/impl/sharded_impl.h>
#include <tensor/state/replicated.h>
#include <tessera/tensor/machine_model.h>

namespace tessera::detail::inline tensor_layer {

namespace {

// Bytes of the operand that one rank would hold were mesh dim `m` not cut.
double bytes_beside(
    const Operand& operand, int64_t m, const std::vector<int64_t>& mesh) {
  auto bytes = static_cast<double>(
      c10::multiply_integers(operand.shape) *
      static_cast<int64_t>(c10::elementSize(operand.dtype)));
  for (size_t other = 0; other < mesh.size(); ++other) {
    if (static_cast<int64_t>(other) != m &&
        (*operand.placements)[other].is_shard()) {
      bytes /= static_cast<double>(mesh[other]);
    }
  }
  return bytes;
}

}  // namespace

MoveCost move_cost(const DeviceMesh& mesh) {
  return [&mesh](
             const Operand& operand, const Placement& from, const Placement& to,
             int64_t m) -> double {
    return transition_cost(
        machine_model(), m, mesh.size(m), from, to,
        bytes_beside(operand, m, mesh.shape()));
  };
}

RuleOperands::RuleOperands(
    const OpCall& call, const OpTraits& traits, const DeviceMesh& mesh)
    : call_(call), traits_(traits), replicated_(replicated(mesh)) {
  for_each_operand(call, traits, [&](const OperandAt& at) {
    const ArgumentTraits& argument =
        traits.arguments[static_cast<size_t>(at.argument)];
    if (argument.out) {
      return;
    }
    Operand operand;
    operand.argument = at.argument;
    operand.element = at.element;
    operand.placements = &replicated_;
    if (at.tensor != nullptr && at.tensor->defined()) {
      operand.defined = true;
      operand.written = argument.written;
      operand.shape = at.tensor->sizes();
      operand.strides = at.tensor->strides();
      operand.dtype = at.tensor->scalar_type();
      if (is_sharded(*at.tensor)) {
        operand.placements = &spec_of(*at.tensor).placements();
      }
    }
    operands_.push_back(operand);
  });
}

RuleCall RuleOperands::call(const std::vector<Operand>& operands) const {
  const auto& stack = *call_.stack();
  return RuleCall(
      call_.schema(),
      c10::ArrayRef<c10::IValue>(
          stack.data() + stack.size() - call_.size(), call_.size()),
      operands);
}

int32_t RuleOperands::list_length() const {
  int32_t length = 0;
  for (const Operand& operand : operands_) {
    const auto& argument =
        traits_.arguments[static_cast<size_t>(operand.argument)];
    if (argument.kind == ArgumentTraits::Kind::kTensors) {
      length = std::max(length, operand.element + 1);
    }
  }
  return length;
}

std::vector<Operand> RuleOperands::element(
    int32_t index, std::vector<size_t>& numbers) const {
  std::vector<Operand> operands;
  for (size_t i = 0; i < operands_.size(); ++i) {
    const Operand& operand = operands_[i];
    const auto& argument =
        traits_.arguments[static_cast<size_t>(operand.argument)];
    const bool shared = argument.kind != ArgumentTraits::Kind::kTensors;
    if (shared || operand.element == index) {
      operands.push_back(operand);
      numbers.push_back(i);
    }
    if (shared) {
      operands.back().shape = {};  // no partner of an element
    }
  }
  return operands;
}

}  // namespace tessera::detail::inline tensor_layer
