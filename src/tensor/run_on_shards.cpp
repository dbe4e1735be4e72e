#include <tensor/strides.h>
#include <tensor/ways.h>

namespace tessera::detail {

namespace {

// Finds the tensor whose layout all others must share: the first that is
// written, else the first that has dims.
const at::Tensor* find_reference(const OpCall& call) {
  const at::Tensor* first = nullptr;
  for (size_t i = 0; i < call.size(); ++i) {
    const c10::IValue& value = call.argument(i);
    if (!value.isTensor() || !is_sharded(value.toTensor())) {
      continue;
    }
    const at::Tensor& t = value.toTensor();
    if (call.writes(i)) {
      return &t;
    }
    if (first == nullptr && t.dim() > 0) {
      first = &t;
    }
  }
  return first;
}

bool is_replicated_scalar(const at::Tensor& t) {
  return t.dim() == 0 && (!is_sharded(t) || spec_of(t).is_replicated());
}

bool shares_layout(
    const OpCall& call, const OpTraits& traits, const DTensorSpec& layout) {
  if (layout.layout().has_partial() && !traits.passes_partial) {
    return false;
  }
  bool has_input = false;  // whose shape the results have
  for (size_t i = 0; i < call.size(); ++i) {
    const c10::IValue& value = call.argument(i);
    if (value.isList() && !value.isIntList() && !value.isDoubleList() &&
        !value.isBoolList()) {
      return false;  // lists of tensors go the other way
    }
    if (!value.isTensor() || !value.toTensor().defined()) {
      continue;
    }
    const at::Tensor& t = value.toTensor();
    if (is_sharded(t) && spec_of(t).shape() == layout.shape() &&
        spec_of(t).placements() == layout.placements()) {
      has_input = has_input || !call.schema().arguments()[i].is_out();
      continue;
    }
    if (!is_replicated_scalar(t)) {
      return false;
    }
  }
  return has_input;
}

c10::MemoryFormat wanted_format(const OpCall& call) {
  const auto& arguments = call.schema().arguments();
  for (size_t i = 0; i < arguments.size(); ++i) {
    if (arguments[i].name() == "memory_format" && !call.argument(i).isNone()) {
      return call.argument(i).toMemoryFormat();
    }
  }
  return c10::MemoryFormat::Preserve;
}

// The strides of the results, from what all ranks know: the arguments' strides
// where they agree, else contiguous.
std::vector<int64_t> result_strides(
    const OpCall& call, const DTensorSpec& layout) {
  bool agree = true;
  call.for_each_argument_tensor([&](const at::Tensor& t) {
    if (is_sharded(t) && t.dim() > 0) {
      agree = agree && spec_of(t).strides() == layout.strides();
    }
  });
  return agree ? strides_in_format(
                     layout.shape(), layout.strides(), wanted_format(call))
               : contiguous_strides(layout.shape());
}

}  // namespace

const at::Tensor* shared_layout(const OpCall& call, const OpTraits& traits) {
  const at::Tensor* reference = find_reference(call);
  const bool shared = reference != nullptr &&
                      !spec_of(*reference).is_replicated() &&
                      shares_layout(call, traits, spec_of(*reference));
  return shared ? reference : nullptr;
}

void run_on_shards(const OpCall& call, const at::Tensor& reference) {
  const at::Tensor kept = reference;  // the stack is about to change
  const DTensorSpec& layout = spec_of(kept);
  const std::vector<int64_t> strides = result_strides(call, layout);
  const std::vector<at::Tensor> written = call.written();
  call.map_argument_tensors(
      [](const at::Tensor& t) { return is_sharded(t) ? fresh_local(t) : t; });
  call.op().callBoxed(call.stack());
  for (const at::Tensor& t : written) {
    after_write(t);
  }
  call.map_results(written, [&](const at::Tensor& t) {
    return wrap(
        t, DTensorSpec::make(
               layout.mesh(), layout.placements(), layout.shape(), strides,
               t.scalar_type()));
  });
}

}  // namespace tessera::detail
