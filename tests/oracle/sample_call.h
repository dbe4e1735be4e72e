// A sample call as a rule sees it.
#pragma once

#include <vector>

#include <oracle/samples.h>
#include <tensor/call/op_traits.h>

namespace tessera::oracle {

/// Holds what the RuleCalls of a sample point to. A foreach operator is several
/// calls, one per element of its lists: units.
class SampleCall {
 public:
  SampleCall(const Sample& sample, const detail::FoundRule& found);
  SampleCall(const SampleCall&) = delete;
  SampleCall& operator=(const SampleCall&) = delete;

  const Sample& sample() const { return sample_; }
  const detail::FoundRule& found() const { return found_; }
  /// Returns the rule of every unit.
  const detail::Rule& rule() const { return rule_; }
  const detail::OpTraits& traits() const { return traits_; }
  const c10::FunctionSchema& schema() const { return sample_.op.schema(); }
  /// Returns all operands, and the tensors that they stand for.
  const std::vector<Operand>& operands() const { return operands_; }
  const at::Tensor& tensor(size_t operand) const { return tensors_[operand]; }

  size_t units() const { return units_.size(); }
  /// Returns the numbers of the operands of a unit.
  const std::vector<size_t>& numbers(size_t unit) const {
    return units_[unit].numbers;
  }
  RuleCall call(size_t unit) const { return call(units_[unit].operands); }
  RuleCall call(const std::vector<Operand>& operands) const;
  /// Returns all rows of a unit; none for views.
  c10::ArrayRef<Rows::Row> rows(size_t unit) const {
    return units_[unit].rows.rows();
  }

 private:
  struct Unit {
    std::vector<size_t> numbers;
    std::vector<Operand> operands;
    Rows rows;
  };
  void add_unit(int32_t element);
  bool is_list(const Operand& operand) const;

  const Sample& sample_;
  detail::FoundRule found_;
  detail::Rule rule_;
  const detail::OpTraits& traits_;
  std::vector<Operand> operands_;
  std::vector<at::Tensor> tensors_;
  std::vector<Unit> units_;
};

}  // namespace tessera::oracle
