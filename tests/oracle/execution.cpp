#include <oracle/execution.h>

#include <ATen/ATen.h>
#include <ATen/core/LegacyTypeDispatch.h>
#include <tessera/layout/notation.h>

namespace tessera::oracle {

namespace {

std::vector<at::Tensor> tensors_in(const c10::IValue& value) {
  std::vector<at::Tensor> tensors;
  detail::for_each_tensor(
      value, [&](const at::Tensor& t) { tensors.push_back(t); });
  return tensors;
}

// The contents of new memory are nobody's business.
bool has_no_values(const c10::FunctionSchema& schema) {
  return schema.name().find("empty") != std::string::npos;
}

bool returns_written(const c10::FunctionSchema& schema) {
  for (const auto& result : schema.returns()) {
    if (result.alias_info() != nullptr && result.alias_info()->isWrite()) {
      return true;
    }
  }
  return false;
}

}  // namespace

Execution::Execution(
    const SampleCall& call, const MeshShape& mesh,
    const std::vector<Placements>& operands)
    : call_(call),
      mesh_(mesh),
      coordinates_(coordinates_of(mesh)),
      placements_(operands) {
  for (size_t i = 0; i < operands.size(); ++i) {
    const at::Tensor& whole = call.tensor(i);
    if (!whole.defined()) {
      parts_.emplace_back(coordinates_.size());
      continue;
    }
    parts_.push_back(
        cut(whole, Layout(whole.sizes().vec(), mesh, operands[i]),
            call.sample().seed * 31 + i));
  }
}

torch::jit::Stack Execution::local_arguments(size_t rank) const {
  torch::jit::Stack stack = call_.sample().arguments;
  size_t next = 0;
  for (size_t a = 0; a < stack.size(); ++a) {
    const auto& traits = call_.traits().arguments[a];
    if (traits.kind == detail::ArgumentTraits::Kind::kStatic) {
      continue;
    }
    if (traits.out) {
      detail::map_tensors(stack[a], [](const at::Tensor& t) {
        return at::empty({0}, t.options());
      });
    } else if (traits.kind == detail::ArgumentTraits::Kind::kTensor) {
      const at::Tensor& part = parts_[next++][rank];
      if (part.defined()) {
        stack[a] = part;
      }
    } else if (!stack[a].isNone()) {
      detail::map_elements(
          stack[a], [&](const at::Tensor&) { return parts_[next++][rank]; });
    }
  }
  return stack;
}

void Execution::run(const Prepare& prepare) {
  const at::AutoDispatchBelowADInplaceOrView below;
  for (size_t r = 0; r < coordinates_.size(); ++r) {
    detail::Decision decision;
    prepare(coordinates_[r], decision);
    torch::jit::Stack stack = local_arguments(r);
    torch::jit::Stack written = written_arguments(call_.schema(), stack);
    const detail::OpCall call(call_.sample().op, &stack);
    for (const auto& [number, value] : decision.local_arguments) {
      call.argument(number) = value;
    }
    if (decision.kernel != nullptr) {
      decision.kernel({call, decision.layouts, coordinates_[r]});
    } else {
      call_.sample().op.callBoxed(&stack);
    }
    torch::jit::Stack& left = written.empty() ? stack : written;
    TORCH_CHECK(
        left.size() == call_.sample().results.size(), call_.schema().name(),
        ": rank ", r, " leaves ", left.size(), " results, plain ",
        call_.sample().results.size());
    results_.push_back(std::move(left));
  }
}

size_t Execution::elements(size_t result) const {
  return tensors_in(call_.sample().results[result]).size();
}

std::vector<at::Tensor> Execution::returned(
    size_t result, size_t element) const {
  std::vector<at::Tensor> parts;
  for (const torch::jit::Stack& stack : results_) {
    const std::vector<at::Tensor> tensors = tensors_in(stack[result]);
    parts.push_back(element < tensors.size() ? tensors[element] : at::Tensor());
  }
  return parts;
}

at::Tensor Execution::expected(size_t result, size_t element) const {
  return tensors_in(call_.sample().results[result])[element];
}

std::vector<at::Tensor> Execution::operand_after(size_t operand) const {
  return parts_[operand];
}

std::string Execution::difference_of(
    const std::vector<at::Tensor>& parts, const at::Tensor& want,
    const Placements& placements) const {
  for (const at::Tensor& part : parts) {
    if (part.defined() != want.defined()) {
      return want.defined() ? "a rank returns no tensor"
                            : "a rank returns a tensor";
    }
    if (want.defined() && part.scalar_type() != want.scalar_type()) {
      return std::string("a rank returns dtype ") +
             c10::toString(part.scalar_type()) + " instead of " +
             c10::toString(want.scalar_type());
    }
  }
  if (!want.defined()) {
    return "";
  }
  const Layout layout(want.sizes().vec(), mesh_, placements);
  std::string problem;
  if (has_no_values(call_.schema())) {
    std::vector<at::Tensor> zeros;
    for (const at::Tensor& part : parts) {
      zeros.push_back(at::zeros_like(part));
    }
    assemble(zeros, layout, problem);
    return problem;
  }
  const at::Tensor got = assemble(parts, layout, problem);
  return problem.empty() ? difference(got, want, layout.has_partial())
                         : problem;
}

std::string Execution::difference_of_result(
    size_t result, size_t element, Placements placements) const {
  const at::Tensor want = expected(result, element);
  for (Placement& p : placements) {
    if (want.defined() && p.is_shard() && p.dim() < 0) {
      p = p.with_dim(p.dim() + want.dim());
    }
  }
  const std::string text =
      difference_of(returned(result, element), want, placements);
  return text.empty()
             ? ""
             : "result " + std::to_string(result) +
                   (elements(result) > 1 ? " [" + std::to_string(element) + "]"
                                         : "") +
                   ": " + text;
}

std::string Execution::difference_of_written() const {
  if (call_.schema().returns().empty() || returns_written(call_.schema())) {
    return "";
  }
  for (size_t i = 0; i < parts_.size(); ++i) {
    const Operand& operand = call_.operands()[i];
    if (!operand.defined || !operand.written) {
      continue;
    }
    const std::vector<at::Tensor> after = tensors_in(
        call_.sample().arguments_after[static_cast<size_t>(operand.argument)]);
    const std::string text = difference_of(
        parts_[i], after[static_cast<size_t>(operand.element)], placements_[i]);
    if (!text.empty()) {
      return "operand " + std::to_string(i) + ", which it writes: " + text;
    }
  }
  return "";
}

}  // namespace tessera::oracle
