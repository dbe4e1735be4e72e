// Runs a cached decision that moves nothing: shards take the place of sharded
// tensors on the stack, the operator runs, results are wrapped.
//
// Precondition: decision.is_direct and CallKey::is_simple(): every sharded
// argument's shard is complete and its own, and has the placements of its plan.
// Effect: no communication. Lifetime: `Kept` holds references to the arguments
// whose shards the kernel may write or show, until the results are wrapped.
//
// Example: at::mul_(x, y), both f32[8] S(0) over 2 ranks. The stack (x, y)
// becomes (f32[4], f32[4]); aten::mul_ runs below our dispatch key; the stack
// becomes (x), whose version counter after_write() has advanced.
#include <tensor/fast/run_cached.h>

#include <c10/util/SmallVector.h>
#include <tensor/call/result_specs.h>
#include <tensor/fast/typed_kernel.h>
#include <tensor/impl/sharded_impl.h>
#include <tensor/impl/wrap.h>
#include <tensor/move/view_copies.h>
#include <tensor/run/run_decision.h>

namespace tessera::detail::inline tensor_layer {

namespace {

// The sharded tensors of the stack that are needed after the call.
struct Kept {
  c10::SmallVector<at::Tensor, 2> written;
  at::Tensor viewed;
};

void take_shard(c10::IValue& value, const ArgumentTraits& traits, Kept& kept) {
  const at::Tensor& t = value.toTensor();
  if (!is_sharded(t)) {
    return;
  }
  if (traits.written) {
    kept.written.push_back(t);
  }
  if (traits.viewed) {
    kept.viewed = t;
  }
  value = at::Tensor(meta_nowait(t).local);
}

void take_shards(const OpCall& call, const OpTraits& traits, Kept& kept) {
  for (size_t i = 0; i < call.size(); ++i) {
    const ArgumentTraits& argument = traits.arguments[i];
    c10::IValue& value = call.argument(i);
    if (argument.kind == ArgumentTraits::Kind::kTensor) {
      if (value.isTensor()) {
        take_shard(value, argument, kept);
      }
    } else if (argument.kind == ArgumentTraits::Kind::kTensors) {
      map_elements(value, [&](const at::Tensor& t) {
        if (!is_sharded(t)) {
          return t;
        }
        if (argument.written) {
          kept.written.push_back(t);
        }
        return at::Tensor(meta_nowait(t).local);
      });
    }
  }
}

// Calls the operator on shards.
void call_on_shards(const OpCall& call, const Decision& decision) {
  LocalKeys keys(decision);
  if (keys.are_unknown()) {
    call.for_each_argument_tensor([&](const at::Tensor& t) { keys.add(t); });
  }
  call.op().redispatchBoxed(keys.get(), call.stack());
}

// Returns false, and leaves the arguments, where the shard's own strides do not
// permit the view.
bool run_view(const OpCall& call, const Decision& decision) {
  auto& stack = *call.stack();
  const size_t below = stack.size() - call.size();
  const c10::SmallVector<c10::IValue, 4> saved(
      stack.begin() + static_cast<std::ptrdiff_t>(below), stack.end());
  try {
    fit_view_strides(call);
    call_on_shards(call, decision);
    return true;
  } catch (const c10::Error&) {
    stack.resize(below);
    stack.insert(stack.end(), saved.begin(), saved.end());
    return false;
  }
}

at::Tensor wrap_one(
    const OpCall& call, const Decision& decision, size_t result, size_t element,
    at::Tensor t, const Kept& kept, const std::shared_ptr<ViewCopy>& copy) {
  const WrapperTemplate& wrapper_template =
      template_of_result(decision, call.op(), result, element, t);
  if (copy) {
    at::Tensor view =
        wrap_view(std::move(t), wrapper_template.spec(), kept.viewed, copy);
    take_offset(view, wrapper_template.start(), kept.viewed);
    return view;
  }
  return kept.viewed.defined()
             ? wrap_view(std::move(t), wrapper_template, kept.viewed)
             : wrap(std::move(t), wrapper_template);
}

}  // namespace

void run_cached(
    const OpCall& call, const OpTraits& traits, const Decision& decision) {
  Kept kept;
  take_shards(call, traits, kept);
  for (const auto& [number, value] : decision.local_arguments) {
    call.argument(number) = value;
  }
  std::shared_ptr<ViewCopy> copy;
  if (decision.kernel != nullptr) {
    decision.kernel({call, decision.layouts, *decision.mesh->coordinate()});
  } else if (decision.views.empty()) {
    call_on_shards(call, decision);
  } else if (!run_view(call, decision)) {
    if (kept.viewed.defined()) {
      copy = copy_of(kept.viewed, spec_of(kept.viewed).placements());
      call.argument(0) = copy->value;
    } else {
      call.argument(0) = call.argument(0).toTensor().contiguous();
    }
    fit_view_strides(call);
    call.op().callBoxed(call.stack());
  }
  for (const at::Tensor& t : kept.written) {
    after_write(t);
  }
  auto& stack = *call.stack();
  const auto& returns = call.schema().returns();
  size_t next = 0;
  for (size_t r = 0; r < returns.size(); ++r) {
    c10::IValue& value = stack[stack.size() - returns.size() + r];
    const auto* alias = returns[r].alias_info();
    if (alias != nullptr && alias->isWrite() && next < kept.written.size()) {
      value = kept.written[next++];
    } else if (value.isTensor()) {
      if (value.toTensor().defined()) {
        value = wrap_one(
            call, decision, r, 0, std::move(value).toTensor(), kept, copy);
      }
    } else if (value.isList()) {
      size_t element = 0;
      map_elements(value, [&](const at::Tensor& t) {
        const size_t e = element++;
        return t.defined() ? wrap_one(call, decision, r, e, t, kept, copy) : t;
      });
    }
  }
}

}  // namespace tessera::detail::inline tensor_layer
