#include <oracle/sample_call.h>

#include <algorithm>

#include <tensor/call/rule_operands.h>

namespace tessera::oracle {

using detail::ArgumentTraits;

SampleCall::SampleCall(const Sample& sample, const detail::FoundRule& found)
    : sample_(sample),
      found_(found),
      rule_(
          found.per_element ? detail::rule_of_element(*found.rule)
                            : *found.rule),
      traits_(detail::traits_of(sample.op)) {
  auto& stack = const_cast<torch::jit::Stack&>(sample.arguments);
  int32_t length = 0;
  detail::for_each_operand(
      detail::OpCall(sample.op, &stack), traits_,
      [&](const detail::OperandAt& at) {
        const auto& argument =
            traits_.arguments[static_cast<size_t>(at.argument)];
        if (argument.out) {
          return;
        }
        Operand operand;
        operand.argument = at.argument;
        operand.element = at.element;
        tensors_.push_back(at.tensor == nullptr ? at::Tensor() : *at.tensor);
        if (const at::Tensor& t = tensors_.back(); t.defined()) {
          operand.defined = true;
          operand.written = argument.written;
          operand.shape = t.sizes();
          operand.strides = t.strides();
          operand.dtype = t.scalar_type();
        }
        operands_.push_back(operand);
        length = std::max(length, is_list(operand) ? at.element + 1 : 0);
      });
  for (int32_t e = 0; e < (found.per_element ? length : 1); ++e) {
    add_unit(found.per_element ? e : -1);
  }
}

bool SampleCall::is_list(const Operand& operand) const {
  return traits_.arguments[static_cast<size_t>(operand.argument)].kind ==
         ArgumentTraits::Kind::kTensors;
}

// As RuleOperands::element(): what stands in no list is no partner of an
// element.
void SampleCall::add_unit(int32_t element) {
  Unit unit;
  for (size_t i = 0; i < operands_.size(); ++i) {
    const bool shared = !is_list(operands_[i]);
    if (element < 0 || shared || operands_[i].element == element) {
      unit.operands.push_back(operands_[i]);
      unit.numbers.push_back(i);
      if (element >= 0 && shared) {
        unit.operands.back().shape = {};
      }
    }
  }
  if (!found_.rule->view) {
    detail::add_rows(rule_, call(unit.operands), unit.rows);
  }
  units_.push_back(std::move(unit));
}

RuleCall SampleCall::call(const std::vector<Operand>& operands) const {
  return RuleCall(schema(), sample_.arguments, operands);
}

}  // namespace tessera::oracle
