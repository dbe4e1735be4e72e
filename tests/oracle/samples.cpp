#include <oracle/samples.h>

#include <unordered_map>

#include <ATen/ATen.h>
#include <ATen/core/LegacyTypeDispatch.h>
#include <tensor/call/op_call.h>

namespace tessera::oracle {

namespace {

// Calls the operator as the library calls it on shards: below autograd.
void call_plain(const c10::OperatorHandle& op, torch::jit::Stack& stack) {
  const at::AutoDispatchBelowADInplaceOrView below;
  op.callBoxed(&stack);
}

bool has_out(const c10::FunctionSchema& schema) {
  for (const auto& argument : schema.arguments()) {
    if (argument.is_out()) {
      return true;
    }
  }
  return false;
}

// Does `other` take the same arguments without the out tensors?
bool is_functional_form(
    const c10::FunctionSchema& schema, const c10::FunctionSchema& other) {
  std::vector<std::string> left, right;
  for (const auto& argument : schema.arguments()) {
    if (!argument.is_out()) {
      left.push_back(argument.name() + argument.type()->str());
    }
  }
  for (const auto& argument : other.arguments()) {
    if (argument.is_out() || argument.alias_info() != nullptr) {
      return false;
    }
    const bool option =
        argument.name() == "dtype" || argument.name() == "layout" ||
        argument.name() == "device" || argument.name() == "pin_memory";
    if (right.size() < left.size() || !option) {
      right.push_back(argument.name() + argument.type()->str());
    }
  }
  return left == right;
}

// What the operator returns that fills no out tensors; nothing where none does.
torch::jit::Stack functional_results(
    const c10::FunctionSchema& schema, const torch::jit::Stack& arguments) {
  for (const auto* other : overloads_of(schema.name())) {
    if (!is_functional_form(schema, *other)) {
      continue;
    }
    const auto op = c10::Dispatcher::singleton().findSchema(
        {other->name(), other->overload_name()});
    torch::jit::Stack stack;
    for (size_t i = 0; i < other->arguments().size(); ++i) {
      const bool given =
          i < arguments.size() && !schema.arguments()[i].is_out();
      stack.push_back(
          given
              ? arguments[i]
              : other->arguments()[i].default_value().value_or(c10::IValue()));
    }
    stack = copy_of(stack);
    call_plain(*op, stack);
    return stack;
  }
  return {};
}

at::Tensor empty_like_result(const at::Tensor& t, c10::ScalarType dtype) {
  return at::empty({0}, t.defined() ? t.scalar_type() : dtype);
}

// Gives every out argument new tensors of the dtypes of the results.
void fill_out(
    const c10::FunctionSchema& schema, torch::jit::Stack& stack,
    c10::ScalarType dtype) {
  if (!has_out(schema)) {
    return;
  }
  const torch::jit::Stack results = functional_results(schema, stack);
  size_t next = 0;
  for (size_t i = 0; i < stack.size(); ++i) {
    if (!schema.arguments()[i].is_out()) {
      continue;
    }
    c10::IValue result =
        next < results.size() ? results[next] : c10::IValue(at::Tensor());
    ++next;
    if (result.isTensor()) {
      stack[i] = empty_like_result(result.toTensor(), dtype);
    } else {
      detail::map_tensors(result, [&](const at::Tensor& t) {
        return empty_like_result(t, dtype);
      });
      stack[i] = result;
    }
  }
}

}  // namespace

const char* to_string(SizeClass sizes) {
  static constexpr const char* kNames[] = {"even",    "uneven", "small",
                                           "smaller", "empty",  "empty later"};
  return kNames[static_cast<size_t>(sizes)];
}

torch::jit::Stack copy_of(const torch::jit::Stack& arguments) {
  torch::jit::Stack copy = arguments;
  for (c10::IValue& value : copy) {
    if (value.isTensor() && !value.toTensor().defined()) {
      continue;
    }
    detail::map_tensors(value, [](const at::Tensor& t) {
      return t.defined() ? t.detach().clone() : t;
    });
  }
  return copy;
}

torch::jit::Stack written_arguments(
    const c10::FunctionSchema& schema, const torch::jit::Stack& arguments) {
  torch::jit::Stack written;
  if (!schema.returns().empty()) {
    return written;
  }
  for (size_t i = 0; i < arguments.size(); ++i) {
    const auto* alias = schema.arguments()[i].alias_info();
    if (alias != nullptr && alias->isWrite()) {
      written.push_back(arguments[i]);
    }
  }
  return written;
}

std::vector<const c10::FunctionSchema*> overloads_of(const std::string& name) {
  using Overloads = std::unordered_multimap<std::string, c10::OperatorName>;
  static const auto* all = [] {
    auto* made = new Overloads();
    for (const auto& one : c10::Dispatcher::singleton().getAllOpNames()) {
      made->emplace(one.name, one);
    }
    return made;
  }();
  std::vector<const c10::FunctionSchema*> schemas;
  const auto [begin, end] = all->equal_range(name);
  for (auto it = begin; it != end; ++it) {
    if (const auto op = c10::Dispatcher::singleton().findSchema(it->second)) {
      schemas.push_back(&op->schema());
    }
  }
  return schemas;
}

std::optional<Sample> make_sample(
    const c10::OperatorHandle& op, const std::string& text, SizeClass sizes,
    c10::ScalarType dtype, uint64_t seed, std::string& refusal) {
  if (text.rfind("~ ", 0) == 0 && dtype == at::kBFloat16) {
    refusal = "not in bfloat16";
    return std::nullopt;
  }
  if (text.rfind("+ ", 0) == 0 &&
      (sizes == SizeClass::kEmpty || sizes == SizeClass::kEmptyLater)) {
    refusal = "no size may be 0";
    return std::nullopt;
  }
  try {
    torch::jit::Stack arguments =
        parse_arguments(op.schema(), text, sizes, dtype, seed);
    fill_out(op.schema(), arguments, dtype);
    torch::jit::Stack after = copy_of(arguments);
    torch::jit::Stack results = after;
    call_plain(op, results);
    if (op.schema().returns().empty()) {
      results = written_arguments(op.schema(), after);
    }
    return Sample{
        op,
        std::move(arguments),
        std::move(results),
        std::move(after),
        dtype,
        seed,
        text + " (" + to_string(sizes) + ", " + c10::toString(dtype) +
            ", seed " + std::to_string(seed) + ")"};
  } catch (const c10::Error& error) {
    refusal = error.what_without_backtrace();
  } catch (const std::exception& error) {
    refusal = error.what();
  }
  return std::nullopt;
}

}  // namespace tessera::oracle
