// Fourier transforms over all dims of a tensor of which one is sharded: the
// others first, then an all_to_all to another dim, then the one that was. The
// last dim of a transform of real numbers comes first, to real numbers last; so
// where it is in the way, shards move twice.
//
// Worked rows, [8, 8] over 4:
//   fft2 of S(0): dim 1 is transformed, S(0) -> S(1), dim 0. The result is
//   S(1). rfft2 of S(1): S(1) -> S(0), dim 1 to [8, 5], S(0) -> S(1), dim 0.
//   irfft2 of S(0): S(0) -> S(1), dim 0, S(1) -> S(0), dim 1.
#include <algorithm>
#include <functional>
#include <optional>

#include <ATen/ops/_fft_c2c.h>
#include <ATen/ops/_fft_c2r.h>
#include <ATen/ops/_fft_r2c.h>
#include <ATen/ops/empty.h>
#include <c10/util/accumulate.h>
#include <tensor/decompositions/decomposed_call.h>
#include <tensor/decompositions/table.h>
#include <tensor/impl/sharded_impl.h>

namespace tessera::detail::inline tensor_layer {

namespace {

using Dims = std::vector<int64_t>;

// A part of a transform: some dims, or shards that go to another dim.
struct Stage {
  enum class Kind : uint8_t { kMove, kComplex, kFromReal, kToReal };
  Kind kind = Kind::kMove;
  Dims dims = {};

  static Stage move(int64_t to) { return {Kind::kMove, {to}}; }
};

// A transform, by its operator and static arguments.
struct Transform {
  explicit Transform(const RuleCall& call) : dims(call.integers("dim")) {
    for (int64_t& d : dims) {
      d = wrap_dim(d, call.self().ndim());
    }
    from_real = call.has_argument("onesided");
    halves = from_real && call.boolean("onesided");
    to_real = call.has_argument("last_dim_size");
    last_size = to_real ? call.integer("last_dim_size") : 0;
    forward = from_real || (!to_real && call.boolean("forward"));
    norm = call.integer("normalization");
  }

  bool has(int64_t d) const {
    return std::find(dims.begin(), dims.end(), d) != dims.end();
  }
  // The dims without some of them, in their order.
  Dims without(const Dims& others) const {
    Dims rest;
    std::copy_if(
        dims.begin(), dims.end(), std::back_inserter(rest), [&](int64_t d) {
          return std::find(others.begin(), others.end(), d) == others.end();
        });
    return rest;
  }
  // The last dim's size after its stage.
  int64_t last_after(int64_t size) const {
    return to_real ? last_size : halves ? size / 2 + 1 : size;
  }

  Dims dims;
  bool from_real = false;
  bool halves = false;
  bool to_real = false;
  int64_t last_size = 0;
  bool forward = false;
  int64_t norm = 0;
};

struct TransformPlan {
  size_t mesh_dim = 0;
  std::vector<Stage> stages;  // none: it is not made of stages
};

bool leaves_empty_shard(int64_t size, int64_t parts) {
  return size - (size + parts - 1) / parts * (parts - 1) <= 0;
}

// Where shards of dim `from` may go: a dim that `wanted` accepts, the last one
// whose sizes before and after the last dim's stage leave no rank without
// elements, else the last one.
struct TakingDims {
  std::optional<int64_t> any;
  std::optional<int64_t> full;

  std::optional<int64_t> best() const { return full ? full : any; }
};
TakingDims dims_to_take(
    const Operand& self, const Transform& t, int64_t parts, int64_t from,
    const std::function<bool(int64_t)>& wanted) {
  TakingDims found;
  for (int64_t d = 0; d < self.ndim(); ++d) {
    const int64_t size = self.shape[static_cast<size_t>(d)];
    const int64_t after = d == t.dims.back() ? t.last_after(size) : size;
    if (d == from || !wanted(d) || size == 0 ||
        !mesh_dims_of_shards(*self.placements, d).empty()) {
      continue;
    }
    found.any = d;
    found.full = leaves_empty_shard(std::min(size, after), parts)
                     ? found.full
                     : std::optional(d);
  }
  return found;
}

std::vector<Stage> stages_of(
    const Operand& self, const Transform& t, int64_t parts, int64_t sharded) {
  using Kind = Stage::Kind;
  const int64_t last = t.dims.back();
  const auto take = [&](const std::function<bool(int64_t)>& wanted) {
    return dims_to_take(self, t, parts, sharded, wanted);
  };
  if (take([&](int64_t d) { return !t.has(d); }).full) {
    return {};  // the rule moves the shards there first
  }
  const auto any = take([](int64_t) { return true; }).best();
  if (!any) {
    return {};
  }
  if (t.to_real && sharded != last) {
    const auto beside = take([&](int64_t d) { return d != last; }).best();
    const int64_t to = beside.value_or(*any);
    std::vector<Stage> stages{
        {Kind::kComplex, t.without({sharded, last})},
        Stage::move(to),
        {Kind::kComplex, {sharded}}};
    if (!beside) {
      stages.push_back(Stage::move(sharded));
    }
    stages.push_back({Kind::kToReal, {last}});
    return stages;
  }
  if (t.to_real) {
    return {
        {Kind::kComplex, t.without({last})},
        Stage::move(*any),
        {Kind::kToReal, {last}}};
  }
  const Kind first = t.from_real ? Kind::kFromReal : Kind::kComplex;
  if (!t.from_real || sharded != last) {
    return {
        {first, t.without({sharded})},
        Stage::move(*any),
        {Kind::kComplex, {sharded}}};
  }
  return {
      Stage::move(*any),
      {first, t.without({*any})},
      Stage::move(last),
      {Kind::kComplex, {*any}}};
}

// Nothing where a transformed dim is sharded twice or in no way that can move.
TransformPlan transform_plan(
    const Operand& self, const Transform& t, const MeshShape& mesh) {
  TransformPlan plan;
  int64_t sharded = -1;
  for (size_t m = 0; m < self.placements->size(); ++m) {
    const Placement& p = (*self.placements)[m];
    if (p.is_partial() ||
        (p.is_shard() && t.has(p.dim()) && (sharded >= 0 || p.order() >= 0))) {
      return {};
    }
    if (p.is_shard() && t.has(p.dim())) {
      plan.mesh_dim = m;
      sharded = p.dim();
    }
  }
  if (sharded >= 0) {
    plan.stages = stages_of(
        self, t, mesh.size(static_cast<int64_t>(plan.mesh_dim)), sharded);
  }
  return plan;
}

bool transform_applies(const RuleCall& call) {
  const Transform t(call);
  return t.dims.size() > 1 && c10::multiply_integers(call.self().shape) > 0 &&
         std::any_of(
             call.self().placements->begin(), call.self().placements->end(),
             [&](const Placement& p) {
               return p.is_shard() && t.has(p.dim());
             });
}

bool transform_pays(const RuleCall& call, const MeshShape& mesh) {
  return !transform_plan(call.self(), Transform(call), mesh).stages.empty();
}

// A value on its way through the stages.
struct Staged {
  SpecPtr spec;
  at::Tensor x;
};

void run_stage(
    DecomposedCall& decomposed, const Transform& t, const Stage& stage,
    size_t mesh_dim, Staged& at) {
  using Kind = Stage::Kind;
  if (stage.kind == Kind::kMove) {
    Placements placements = at.spec->placements();
    placements[mesh_dim] = Shard(stage.dims[0]);
    const SpecPtr next = at.spec->contiguous(placements, at.spec->dtype());
    at.x = decomposed.move_part(at.spec, next, at.x);
    at.spec = next;
    return;
  }
  if (stage.dims.empty()) {
    return;
  }
  std::vector<int64_t> shape = at.spec->shape();
  if (stage.kind != Kind::kComplex) {
    int64_t& last = shape[static_cast<size_t>(stage.dims.back())];
    last = t.last_after(last);
  }
  const c10::ScalarType dtype = stage.kind == Kind::kToReal
                                    ? c10::toRealValueType(at.spec->dtype())
                                    : c10::toComplexType(at.spec->dtype());
  at.spec =
      DTensorSpec::make(decomposed.mesh(), at.spec->placements(), shape, dtype);
  if (!decomposed.computes()) {
    return;
  }
  if (at.x.numel() == 0) {
    at.x = at::empty(at.spec->local_shape(), at.x.options().dtype(dtype));
  } else if (stage.kind == Kind::kFromReal) {
    at.x = at::_fft_r2c(at.x, stage.dims, t.norm, t.halves);
  } else if (stage.kind == Kind::kToReal) {
    at.x = at::_fft_c2r(at.x, stage.dims, t.norm, t.last_size);
  } else {
    at.x = at::_fft_c2c(at.x, stage.dims, t.norm, t.forward);
  }
}

void transform(const OpCall& call) {
  DecomposedCall decomposed(call);
  const at::Tensor self = decomposed.tensor("self");
  const SpecPtr given = decomposed.spec(self);
  const Operand operand{
      .shape = self.sizes(),
      .strides = self.strides(),
      .dtype = given->dtype(),
      .defined = true,
      .placements = &given->placements()};
  const torch::jit::Stack& stack = *call.stack();
  const Transform t(RuleCall(
      call.schema(),
      c10::ArrayRef<c10::IValue>(
          stack.data() + stack.size() - call.size(), call.size()),
      operand));
  const TransformPlan plan =
      transform_plan(operand, t, decomposed.mesh().mesh_shape());
  Staged at{
      given->contiguous(given->placements(), given->dtype()),
      decomposed.shard("self", self, given->placements())};
  for (const Stage& stage : plan.stages) {
    run_stage(decomposed, t, stage, plan.mesh_dim, at);
  }
  decomposed.finish({decomposed.wrap(at.spec, [&] { return at.x; })});
}

}  // namespace

void add_transform_decompositions(OpRegistry& ops) {
  for (const char* name :
       {"aten::_fft_c2c", "aten::_fft_r2c", "aten::_fft_c2r"}) {
    ops.at(name).decomposition = {transform_applies, transform, transform_pays};
  }
}

}  // namespace tessera::detail::inline tensor_layer
