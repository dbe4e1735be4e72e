// Fourier transforms over all dims of a tensor of which one is sharded: the
// others first, then an all_to_all to another dim, then the one that was.
//
// Worked row, fft2 of [8, 8] S(0) over 4: rows are whole on their ranks, so dim
// 1 is transformed; S(0) -> S(1); dim 0 is transformed. The result is S(1).
#include <algorithm>

#include <ATen/ops/_fft_c2c.h>
#include <ATen/ops/_fft_r2c.h>
#include <ATen/ops/empty.h>
#include <tensor/decompositions/decomposed_call.h>
#include <tensor/decompositions/table.h>
#include <tensor/impl/sharded_impl.h>

namespace tessera::detail::inline tensor_layer {

namespace {

// The mesh dim that shards a transformed dim, and where the shards go.
struct TransformPlan {
  int64_t mesh_dim = -1;
  int64_t dim = -1;
  int64_t to = -1;
};

bool leaves_empty_shard(int64_t size, int64_t parts) {
  return size - (size + parts - 1) / parts * (parts - 1) <= 0;
}

// Nothing where a transformed dim is sharded twice or in no way that can move,
// and where a dim that stays as it is could take the shards before.
TransformPlan transform_plan(
    const std::vector<int64_t>& shape, const Placements& placements,
    const std::vector<int64_t>& dims, const MeshShape& mesh) {
  TransformPlan plan;
  const auto transformed = [&](int64_t d) {
    return std::find(dims.begin(), dims.end(), d) != dims.end();
  };
  for (size_t m = 0; m < placements.size(); ++m) {
    const Placement& p = placements[m];
    if (p.is_partial() || (p.is_shard() && transformed(p.dim()) &&
                           (plan.dim >= 0 || p.order() >= 0))) {
      return {};
    }
    if (p.is_shard() && transformed(p.dim())) {
      plan.mesh_dim = static_cast<int64_t>(m);
      plan.dim = p.dim();
    }
  }
  if (plan.dim < 0) {
    return {};
  }
  const int64_t parts = mesh.size(plan.mesh_dim);
  for (int64_t d = 0; d < static_cast<int64_t>(shape.size()); ++d) {
    const bool takes =
        d != plan.dim && mesh_dims_of_shards(placements, d).empty() &&
        !leaves_empty_shard(shape[static_cast<size_t>(d)], parts);
    if (takes && !transformed(d)) {
      return {};  // the rule moves the shards there first
    }
    plan.to = takes ? d : plan.to;
  }
  return plan.to < 0 ? TransformPlan() : plan;
}

std::vector<int64_t> wrapped_dims(std::vector<int64_t> dims, int64_t ndim) {
  for (int64_t& d : dims) {
    d = wrap_dim(d, ndim);
  }
  return dims;
}

// The shape of the result of a transform to or of complex numbers.
std::vector<int64_t> transformed_shape(
    std::vector<int64_t> shape, const std::vector<int64_t>& dims, bool halves) {
  if (halves) {
    int64_t& last = shape[static_cast<size_t>(dims.back())];
    last = last / 2 + 1;
  }
  return shape;
}

bool is_real_transform(const RuleCall& call) {
  return call.has_argument("onesided");
}

bool transform_applies(const RuleCall& call) {
  const Operand& self = call.self();
  const std::vector<int64_t> dims =
      wrapped_dims(call.integers("dim"), self.ndim());
  const bool is_shard = std::any_of(
      self.placements->begin(), self.placements->end(),
      [&](const Placement& p) {
        return p.is_shard() &&
               std::find(dims.begin(), dims.end(), p.dim()) != dims.end();
      });
  // The real dim is the last one, and is transformed first.
  return is_shard && dims.size() > 1 &&
         !(is_real_transform(call) &&
           !mesh_dims_of_shards(*self.placements, dims.back()).empty());
}

bool transform_pays(const RuleCall& call, const MeshShape& mesh) {
  const Operand& self = call.self();
  const std::vector<int64_t> dims =
      wrapped_dims(call.integers("dim"), self.ndim());
  const bool halves = is_real_transform(call) && call.boolean("onesided");
  return transform_plan(
             transformed_shape(self.shape.vec(), dims, halves),
             *self.placements, dims, mesh)
             .dim >= 0;
}

void transform(const OpCall& call) {
  DecomposedCall decomposed(call);
  const at::Tensor self = decomposed.tensor("self");
  const SpecPtr given = decomposed.spec(self);
  const std::vector<int64_t> dims =
      wrapped_dims(decomposed.argument("dim").toIntVector(), self.dim());
  const int64_t norm = decomposed.argument("normalization").toInt();
  const bool is_real = decomposed.has_argument("onesided");
  const bool halves = is_real && decomposed.argument("onesided").toBool();
  const bool forward = is_real || decomposed.argument("forward").toBool();
  const std::vector<int64_t> shape =
      transformed_shape(given->shape(), dims, halves);
  const TransformPlan plan = transform_plan(
      shape, given->placements(), dims, decomposed.mesh().mesh_shape());
  std::vector<int64_t> first;
  std::copy_if(
      dims.begin(), dims.end(), std::back_inserter(first),
      [&](int64_t d) { return d != plan.dim; });
  const c10::ScalarType dtype = c10::toComplexType(given->dtype());
  const SpecPtr between =
      DTensorSpec::make(decomposed.mesh(), given->placements(), shape, dtype);
  at::Tensor x = decomposed.shard("self", self, given->placements());
  if (decomposed.computes()) {
    x = x.numel() == 0
            ? at::empty(between->local_shape(), x.options().dtype(dtype))
        : is_real ? at::_fft_r2c(x, first, norm, halves)
                  : at::_fft_c2c(x, first, norm, forward);
  }
  Placements placements = given->placements();
  placements[static_cast<size_t>(plan.mesh_dim)] = Shard(plan.to);
  const SpecPtr result = between->with_placements(placements);
  x = decomposed.move_part(between, result, x);
  decomposed.finish({decomposed.wrap(
      result, [&] { return at::_fft_c2c(x, {plan.dim}, norm, forward); })});
}

}  // namespace

void add_transform_decompositions(OpRegistry& ops) {
  for (const char* name : {"aten::_fft_c2c", "aten::_fft_r2c"}) {
    ops.at(name).decomposition = {transform_applies, transform, transform_pays};
  }
}

}  // namespace tessera::detail::inline tensor_layer
