// One call of an operator as the dispatcher hands it over: schema and stack.
#pragma once

#include <string>
#include <vector>

#include <ATen/core/Tensor.h>
#include <ATen/core/dispatch/Dispatcher.h>
#include <ATen/core/stack.h>
#include <tensor/state/spec_fwd.h>

namespace tessera::detail::inline tensor_layer {

/// Calls f(tensor) for every tensor in a value: alone or in a list.
template <class F>
void for_each_tensor(const c10::IValue& value, F f) {
  if (value.isTensor()) {
    f(value.toTensor());
  } else if (value.isTensorList()) {
    for (const at::Tensor& t : value.toTensorVector()) {
      f(t);
    }
  } else if (value.isList()) {
    for (const c10::IValue& element : value.toListRef()) {
      if (element.isTensor()) {
        f(element.toTensor());
      }
    }
  }
}

/// Replaces every element t of a list of tensors by f(t); None is an undefined
/// tensor. The list is replaced whole, since the caller may hold it.
template <class F>
void map_elements(c10::IValue& value, F f) {
  if (value.isTensorList()) {
    c10::List<at::Tensor> mapped;
    for (const c10::IValue& element : value.toListRef()) {
      mapped.push_back(f(element.toTensor()));
    }
    value = std::move(mapped);
  } else if (value.isList()) {
    c10::List<std::optional<at::Tensor>> mapped;
    for (const c10::IValue& element : value.toListRef()) {
      at::Tensor t = f(element.isTensor() ? element.toTensor() : at::Tensor());
      mapped.push_back(
          t.defined() ? std::optional<at::Tensor>(std::move(t)) : std::nullopt);
    }
    value = std::move(mapped);
  }
}

/// Replaces every tensor t in a value by f(t). Lists are replaced whole, since
/// the caller may hold them.
template <class F>
void map_tensors(c10::IValue& value, F f) {
  if (value.isTensor()) {
    value = f(value.toTensor());
  } else if (value.isTensorList()) {
    c10::List<at::Tensor> mapped;
    for (const at::Tensor& t : value.toTensorVector()) {
      mapped.push_back(f(t));
    }
    value = std::move(mapped);
  } else if (
      value.isList() &&
      value.toList().elementType()->kind() == c10::TypeKind::OptionalType) {
    c10::List<std::optional<at::Tensor>> mapped;
    for (const c10::IValue& element : value.toListRef()) {
      if (element.isTensor()) {
        mapped.push_back(f(element.toTensor()));
      } else {
        mapped.push_back(std::nullopt);
      }
    }
    value = std::move(mapped);
  }
}

/// Prints "aten::add.Tensor", "aten::mm".
std::string full_name(const c10::OperatorName& name);

/// A view of the arguments that lie on top of the stack.
class OpCall {
 public:
  OpCall(const c10::OperatorHandle& op, torch::jit::Stack* stack)
      : op_(op),
        stack_(stack),
        count_(op.schema().arguments().size()),
        begin_(stack->size() - count_) {}

  const c10::OperatorHandle& op() const { return op_; }
  const c10::FunctionSchema& schema() const { return op_.schema(); }
  torch::jit::Stack* stack() const { return stack_; }
  size_t size() const { return count_; }
  c10::IValue& argument(size_t i) const { return (*stack_)[begin_ + i]; }
  /// Tells whether the op writes to argument i.
  bool writes(size_t i) const {
    const auto* alias = schema().arguments()[i].alias_info();
    return alias != nullptr && alias->isWrite();
  }

  template <class F>
  void for_each_argument_tensor(F f) const {
    for (size_t i = 0; i < count_; ++i) {
      for_each_tensor(argument(i), f);
    }
  }
  template <class F>
  void map_argument_tensors(F f) const {
    for (size_t i = 0; i < count_; ++i) {
      map_tensors(argument(i), f);
    }
  }

  /// Returns the defined tensors that the op writes, in the order of arguments.
  std::vector<at::Tensor> written() const {
    std::vector<at::Tensor> tensors;
    for (size_t i = 0; i < count_; ++i) {
      if (writes(i)) {
        for_each_tensor(argument(i), [&](const at::Tensor& t) {
          if (t.defined()) {
            tensors.push_back(t);
          }
        });
      }
    }
    return tensors;
  }

  /// Tells whether return i is an argument that the op writes.
  bool returns_written(size_t i) const {
    const auto* alias = schema().returns()[i].alias_info();
    return alias != nullptr && alias->isWrite();
  }
  /// After the call: return i becomes *written(i) where that is not nullptr,
  /// and every other defined result t becomes f(t, i, element).
  template <class W, class F>
  void map_results(W written, F f) const {
    const size_t count = schema().returns().size();
    for (size_t i = 0; i < count; ++i) {
      c10::IValue& result = (*stack_)[stack_->size() - count + i];
      if (const at::Tensor* tensor = written(i)) {
        result = *tensor;
      } else if (result.isTensor()) {
        if (result.toTensor().defined()) {
          result = f(std::move(result).toTensor(), i, 0);
        }
      } else {
        size_t element = 0;
        map_tensors(result, [&](const at::Tensor& t) {
          const size_t e = element++;
          return t.defined() ? f(t, i, e) : t;
        });
      }
    }
  }

  /// Replaces the arguments by one result.
  void finish(c10::IValue result) const {
    torch::jit::drop(*stack_, count_);
    stack_->push_back(std::move(result));
  }

  /// Returns the mesh of the first sharded argument, or nothing.
  const DeviceMesh* mesh() const;
  /// Throws when sharded arguments live on different meshes.
  void check_one_mesh() const;
  /// Throws when the caller mixed plain and sharded tensors. Numbers, 0-dim
  /// tensors and, in calls that work on lists of tensors, tensors of one
  /// element may mix; what ATen mixes itself is replicated by construction.
  void check_no_mix() const;
  /// Prints the call: "aten::mm(f32[4, 8] S(0), f32[8, 2] R) on mesh(4), rank
  /// 1".
  std::string describe() const;

 private:
  const c10::OperatorHandle& op_;
  torch::jit::Stack* stack_;
  size_t count_;
  size_t begin_;
};

}  // namespace tessera::detail::inline tensor_layer
