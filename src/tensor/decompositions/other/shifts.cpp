// roll, flip and constant_pad_nd along sharded dims: ranks exchange the rows
// that change their place, and the result is sharded as the operand is.
#include <algorithm>

#include <ATen/ops/constant_pad_nd.h>
#include <ATen/ops/flip.h>
#include <ATen/ops/roll.h>
#include <c10/util/accumulate.h>
#include <tensor/decompositions/decomposed_call.h>
#include <tensor/decompositions/other/row_exchange.h>
#include <tensor/decompositions/table.h>
#include <tensor/impl/sharded_impl.h>
#include <tensor/state/strides.h>

namespace tessera::detail::inline tensor_layer {

namespace {

// What happens to one dim.
struct DimShift {
  int64_t dim = 0;
  int64_t before = 0;  // a pad's rows before and after, negative where it drops
  int64_t after = 0;
  int64_t roll = 0;
  bool flips = false;

  int64_t source_of(int64_t i, int64_t size) const {
    if (flips) {
      return size - 1 - i;
    }
    const int64_t source = i - before - roll;
    return roll != 0 ? ((source % size) + size) % size
                     : (source < size ? std::max<int64_t>(source, -1) : -1);
  }
};

using Shifts = std::vector<DimShift>;

DimShift& shift_of(Shifts& shifts, int64_t dim) {
  for (DimShift& shift : shifts) {
    if (shift.dim == dim) {
      return shift;
    }
  }
  shifts.push_back({.dim = dim});
  return shifts.back();
}

Shifts rolls_of(const RuleCall& call) {
  const std::vector<int64_t> by = call.integers("shifts");
  std::vector<int64_t> dims = call.integers("dims");
  if (dims.empty() && call.self().ndim() == 1) {
    dims = {0};
  }
  Shifts shifts;
  for (size_t i = 0; i < dims.size() && by.size() == dims.size(); ++i) {
    shift_of(shifts, wrap_dim(dims[i], call.self().ndim())).roll += by[i];
  }
  return shifts;
}

Shifts flips_of(const RuleCall& call) {
  Shifts shifts;
  for (const int64_t dim : call.integers("dims")) {
    shift_of(shifts, wrap_dim(dim, call.self().ndim())).flips = true;
  }
  return shifts;
}

Shifts pads_of(const RuleCall& call) {
  const std::vector<int64_t> pad = call.integers("pad");
  Shifts shifts;
  for (size_t i = 0; i + 1 < pad.size(); i += 2) {
    const int64_t dim = call.self().ndim() - 1 - static_cast<int64_t>(i / 2);
    if (pad[i] != 0 || pad[i + 1] != 0) {
      shifts.push_back({.dim = dim, .before = pad[i], .after = pad[i + 1]});
    }
  }
  return shifts;
}

Shifts shifts_of(const RuleCall& call) {
  const std::string& name = call.schema().name();
  return name == "aten::roll"   ? rolls_of(call)
         : name == "aten::flip" ? flips_of(call)
                                : pads_of(call);
}

bool has_partial(const Operand& operand) {
  return std::any_of(
      operand.placements->begin(), operand.placements->end(),
      [](const Placement& p) { return p.is_partial(); });
}

// Every shifted dim that is sharded must be so by one mesh dim, in runs.
bool shift_applies(const RuleCall& call) {
  const Operand& self = call.self();
  if (self.ndim() == 0 || has_partial(self)) {
    return false;
  }
  bool any = false;
  for (const DimShift& shift : shifts_of(call)) {
    if (shift.dim < 0) {
      return false;
    }
    const int64_t size = self.shape[static_cast<size_t>(shift.dim)];
    const MeshDims by = mesh_dims_of_shards(*self.placements, shift.dim);
    if (by.empty()) {
      continue;
    }
    if (by.size() > 1 || size == 0 || size + shift.before + shift.after < 0 ||
        !(*self.placements)[static_cast<size_t>(by[0])].is_contiguous()) {
      return false;
    }
    any = true;
  }
  return any;
}

std::vector<Run> runs_of(const DTensorSpec& spec, int64_t dim, int64_t m) {
  std::vector<Run> all;
  int64_t begin = 0;
  for (const int64_t length : lengths_along(spec.layout(), dim, m)) {
    all.push_back({begin, begin + length});
    begin += length;
  }
  return all;
}

SpecPtr shifted_spec(
    const DTensorSpec& spec, const DimShift& shift, int64_t m) {
  std::vector<int64_t> shape = spec.shape();
  const int64_t grown = shift.before + shift.after;
  shape[static_cast<size_t>(shift.dim)] += grown;
  Placements placements = spec.placements();
  if (m >= 0 && grown != 0) {
    placements[static_cast<size_t>(m)] = Shard(shift.dim);
  }
  return DTensorSpec::make(spec.mesh(), placements, shape, spec.dtype());
}

// One dim of this rank's shard.
at::Tensor shifted_locally(const at::Tensor& x, const DimShift& shift) {
  if (shift.flips) {
    return at::flip(x, {shift.dim});
  }
  if (shift.roll != 0) {
    return at::roll(x, {shift.roll}, {shift.dim});
  }
  return x;
}

at::Tensor padded_locally(
    const at::Tensor& x, const DimShift& shift, const at::Scalar& fill) {
  std::vector<int64_t> pad(static_cast<size_t>(2 * (x.dim() - shift.dim)), 0);
  pad[pad.size() - 2] = shift.before;
  pad[pad.size() - 1] = shift.after;
  return at::constant_pad_nd(x, pad, fill);
}

void run_shift(const OpCall& call) {
  DecomposedCall decomposed(call);
  const at::Tensor self = decomposed.tensor("self");
  const torch::jit::Stack& stack = *call.stack();
  const Operand operand{
      .shape = self.sizes(), .strides = self.strides(), .defined = true};
  const RuleCall rule_call(
      call.schema(),
      c10::ArrayRef<c10::IValue>(
          stack.data() + stack.size() - call.size(), call.size()),
      operand);
  const at::Scalar fill = decomposed.has_argument("value")
                              ? decomposed.argument("value").toScalar()
                              : at::Scalar(0);
  SpecPtr spec = decomposed.spec(self);
  const SpecPtr given = spec;
  at::Tensor x = decomposed.shard("self", self, spec->placements());
  for (const DimShift& shift : shifts_of(rule_call)) {
    const int64_t size = spec->shape()[static_cast<size_t>(shift.dim)];
    const MeshDims by = mesh_dims_of_shards(spec->placements(), shift.dim);
    const int64_t m = by.empty() ? -1 : by[0];
    const SpecPtr next = shifted_spec(*spec, shift, m);
    if (m < 0) {
      if (decomposed.computes()) {
        x = shift.before != 0 || shift.after != 0
                ? padded_locally(x, shift, fill)
                : shifted_locally(x, shift);
      }
      spec = next;
      continue;
    }
    const std::vector<Run> held = runs_of(*spec, shift.dim, m);
    const std::vector<Run> results = runs_of(*next, shift.dim, m);
    const auto exchange_at = [&](const std::vector<int64_t>& coordinate) {
      return RowExchange(
          held, results, [&](int64_t i) { return shift.source_of(i, size); },
          coordinate[static_cast<size_t>(m)]);
    };
    decomposed.announce_exchange(
        "self", spec, {m}, [&](const std::vector<int64_t>& coordinate) {
          std::vector<int64_t> shape = spec->layout().local_shape(coordinate);
          shape[static_cast<size_t>(shift.dim)] = 1;
          return exchange_at(coordinate).rows_moved() *
                 c10::multiply_integers(shape) *
                 static_cast<int64_t>(c10::elementSize(spec->dtype()));
        });
    if (decomposed.computes()) {
      x = exchange_at(decomposed.coordinate())(
          x, shift.dim, fill, decomposed.mesh().communicator(m));
    }
    spec = next;
  }
  const bool keeps_strides = !decomposed.has_argument("value");
  decomposed.finish({decomposed.wrap(
      keeps_strides
          ? spec->with_shape(
                spec->shape(),
                dense_strides(given->shape(), given->shape(), given->strides()))
          : in_format_of(*spec, *given),
      [&] { return x; })});
}

}  // namespace

void add_shift_decompositions(OpRegistry& ops) {
  for (const char* name :
       {"aten::roll", "aten::flip", "aten::constant_pad_nd"}) {
    ops.at(name).decomposition = {shift_applies, run_shift};
  }
}

}  // namespace tessera::detail::inline tensor_layer
