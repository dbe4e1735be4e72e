#include <tensor/random/ops/random_call.h>

#include <ATen/ops/empty_like.h>
#include <tensor/impl/sharded_impl.h>
#include <tensor/impl/wrap.h>
#include <tensor/move/view_copies.h>
#include <tensor/random/ops/plain_draws.h>
#include <tensor/state/draws.h>
#include <tensor/state/thread_state.h>

namespace tessera::detail::inline tensor_layer {

namespace {

std::string_view base_of(std::string_view name) {
  name.remove_prefix(name.find("::") + 2);
  if (name.back() == '_') {
    name.remove_suffix(1);
  }
  return name;
}

}  // namespace

RandomOffset next_offset(const OpCall& call) {
  if (Draws* const draws = ThreadState::here().draws;
      draws != nullptr && !draws->is_recording) [[unlikely]] {
    TORCH_INTERNAL_ASSERT(
        draws->next < draws->offsets.size(), call.describe(),
        ": draws more often than when it was recorded");
    return draws->offsets[draws->next++];
  }
  const DeviceMesh* mesh = call.mesh();
  RandomCounters& counters = mesh != nullptr ? *mesh->world().random_counters()
                                             : *UnshardedRandom::current();
  for (size_t i = 0; i < call.size(); ++i) {
    if (call.argument(i).isGenerator() &&
        call.argument(i).toGenerator().defined()) {
      return counters.next(call.argument(i).toGenerator());
    }
  }
  return counters.next();
}

RandomCall::RandomCall(const OpCall& call)
    : call_(call),
      key_(key_of(next_offset(call))),
      base_name_(base_of(call.op().operator_name().name)),
      in_place_(call.op().operator_name().name.back() == '_') {}

const c10::IValue* RandomCall::find(std::string_view name) const {
  const auto& arguments = call_.schema().arguments();
  for (size_t i = 0; i < arguments.size(); ++i) {
    if (arguments[i].name() == name && !call_.argument(i).isNone()) {
      return &call_.argument(i);
    }
  }
  return nullptr;
}

bool RandomCall::has_tensor(std::string_view name) const {
  const c10::IValue* value = find(name);
  return value != nullptr && value->isTensor();
}

at::Tensor RandomCall::tensor(std::string_view name) const {
  const c10::IValue* value = find(name);
  return value != nullptr && value->isTensor() ? value->toTensor()
                                               : at::Tensor();
}

double RandomCall::number(std::string_view name, double otherwise) const {
  const c10::IValue* value = find(name);
  return value != nullptr ? value->toScalar().to<double>() : otherwise;
}

std::optional<int64_t> RandomCall::integer(std::string_view name) const {
  const c10::IValue* value = find(name);
  if (value == nullptr) {
    return std::nullopt;
  }
  if (value->isTensor()) {
    const at::Tensor& t = value->toTensor();
    return (is_sharded(t) ? replicated_value(t) : t).item<int64_t>();
  }
  return value->toInt();
}

at::Tensor RandomCall::out() const {
  const auto& arguments = call_.schema().arguments();
  for (size_t i = 0; i < arguments.size(); ++i) {
    if (arguments[i].is_out()) {
      return call_.argument(i).toTensor();
    }
  }
  return {};
}

at::Tensor RandomCall::target() const {
  if (in_place_) {
    return tensor("self");
  }
  const at::Tensor self = tensor("self");
  if (const at::Tensor to = out(); to.defined()) {
    const c10::IValue* size = find("size");
    const auto wanted =
        size != nullptr ? size->toDimVector() : at::DimVector(self.sizes());
    if (to.sizes() != at::IntArrayRef(wanted)) {
      to.resize_(wanted);
    }
    return to;
  }
  std::optional<at::ScalarType> dtype;
  std::optional<at::MemoryFormat> format;
  if (const c10::IValue* value = find("dtype")) {
    dtype = value->toScalarType();
  }
  if (const c10::IValue* value = find("memory_format")) {
    format = value->toMemoryFormat();
  }
  return at::empty_like(
      self, self.options().dtype(dtype.value_or(self.scalar_type())), format);
}

void RandomCall::finish(const at::Tensor& values) const {
  if (in_place_) {
    const at::Tensor self = tensor("self");
    self.copy_(values);
    return call_.finish(self);
  }
  const at::Tensor to = out();
  if (to.defined()) {
    write_values(to, values);
  }
  call_.finish(to.defined() ? to : values);
}

Placements summed_placements(const DTensorSpec& spec) {
  Placements placements = spec.placements();
  for (Placement& p : placements) {
    p = p.is_partial() ? Replicate() : p;
  }
  return placements;
}

at::Tensor draw_like(
    const at::Tensor& like, at::ScalarType dtype,
    const Distribution& distribution, PhiloxKey key, uint32_t part) {
  if (!is_sharded(like)) {
    return draw_values(
        GlobalIndexRanges(like.sizes()), dtype, like.device(), distribution,
        key, part);
  }
  const DTensorSpec& spec = spec_of(like);
  const SpecPtr drawn = spec.contiguous(summed_placements(spec), dtype);
  return wrap(
      draw_values(
          GlobalIndexRanges(*drawn), dtype, meta_ready(like).local.device(),
          distribution, key, part),
      drawn);
}

void write_values(const at::Tensor& to, const at::Tensor& values) {
  if (to.sizes() == values.sizes()) {
    to.copy_(values);
  } else if (is_sharded(to) && is_sharded(values)) {
    install(
        to, refreshed_shard(values).to(to.scalar_type()),
        spec_of(values).with_dtype(to.scalar_type()));
  } else {
    to.resize_(values.sizes()).copy_(values);
  }
}

RandomOperation::RandomOperation(const OpCall& call, bool counts)
    : counters_(call.mesh()->world().random_counters()), unsharded_(counters_) {
  counters_->push_scope(counts ? next_offset(call) : RandomOffset{});
}
RandomOperation::~RandomOperation() {
  counters_->pop();
}

}  // namespace tessera::detail::inline tensor_layer
