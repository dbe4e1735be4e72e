#include <tensor/run/local_call.h>

#include <ATen/TensorUtils.h>
#include <c10/util/Exception.h>
#include <tensor/call/result_specs.h>
#include <tensor/move/view_copies.h>

namespace tessera::detail::inline tensor_layer {

namespace {

// Replaces the strides that _reshape_alias was called with, which are global,
// by those that the memory of the shard permits. Example: a shard [4, 3] of
// strides (6, 1) permits no view [12].
void fit_view_strides(const OpCall& call) {
  if (call.size() != 3 || call.schema().arguments()[2].name() != "stride") {
    return;
  }
  const at::Tensor shard = call.argument(0).toTensor();
  const auto strides = at::detail::computeStride(
      shard.sizes(), shard.strides(),
      at::IntArrayRef(call.argument(1).toIntVector()));
  TORCH_CHECK_VALUE(
      strides, call.schema().name(), ": the shard's memory permits no view");
  call.argument(2) = *strides;
}

}  // namespace

void LocalCall::run(bool keys_known) {
  for (const auto& [number, value] : decision.local_arguments) {
    call.argument(number) = value;
  }
  if (decision.kernel != nullptr) {
    return decision.kernel(
        {call, decision.layouts, *decision.mesh->coordinate()});
  }
  if (decision.views.empty()) {
    return run_operator(keys_known);
  }
  const bool shows_shard = !copy && (!viewed.defined() || is_sharded(viewed));
  if (shows_shard) {
    if (try_view(keys_known)) {
      return;
    }
    if (viewed.defined()) {
      copy = copy_of(viewed, spec_of(viewed).placements());
      call.argument(0) = copy->value;
    } else {
      call.argument(0) = call.argument(0).toTensor().contiguous();
    }
  }
  fit_view_strides(call);
  run_operator(/*keys_known=*/false);
}

void LocalCall::run_operator(bool keys_known) const {
  if (!keys_known) {
    return call.op().callBoxed(call.stack());
  }
  LocalKeys keys(decision);
  if (keys.are_unknown()) {
    call.for_each_argument_tensor([&](const at::Tensor& t) { keys.add(t); });
  }
  call.op().redispatchBoxed(keys.get(), call.stack());
}

// A shard need not lie in memory as the global strides say. Returns false, and
// leaves the arguments, where its own strides do not permit the view.
bool LocalCall::try_view(bool keys_known) const {
  auto& stack = *call.stack();
  const size_t below = stack.size() - call.size();
  const c10::SmallVector<c10::IValue, 4> saved(
      stack.begin() + static_cast<std::ptrdiff_t>(below), stack.end());
  try {
    fit_view_strides(call);
    run_operator(keys_known);
    return true;
  } catch (const c10::Error&) {
    stack.resize(below);
    stack.insert(stack.end(), saved.begin(), saved.end());
    return false;
  }
}

void LocalCall::wrap_results() const {
  const auto& returns = call.schema().returns();
  const bool shows = viewed.defined() && is_sharded(viewed);
  call.map_results(
      [&](size_t result) { return written_as(result); },
      [&](at::Tensor t, size_t result, size_t element) {
        const bool is_view = shows && returns[result].alias_info() != nullptr;
        const ResultWrapper wrapper{
            decision, call.op(), is_view ? &viewed : nullptr, &copy};
        return wrapper.wrap_result(std::move(t), result, element);
      });
}

const at::Tensor* LocalCall::written_as(size_t result) const {
  for (const Written& w : written) {
    if (w.plan->result == static_cast<int32_t>(result)) {
      return &w.tensor;
    }
  }
  return nullptr;
}

}  // namespace tessera::detail::inline tensor_layer
