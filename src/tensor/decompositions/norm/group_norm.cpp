// Group norm of images whose rows or columns are cut: ranks share the
// statistics of each group by one all_gather, and the two sums of the gradient
// by one all_reduce; the gradients of weight and bias stay partial.
#include <algorithm>

#include <ATen/TensorOperators.h>
#include <ATen/ops/stack.h>
#include <c10/util/accumulate.h>
#include <tensor/decompositions/norm/joint_statistics.h>
#include <tensor/decompositions/table.h>
#include <tensor/state/replicated.h>

namespace tessera::detail::inline tensor_layer {

namespace {

// [n, c, ...] with its groups as a dim of their own: [n, g, c / g, ...].
struct Grouped {
  explicit Grouped(const DecomposedCall& decomposed)
      : input(decomposed.spec(decomposed.tensor("input"))),
        groups(decomposed.argument("group").toInt()),
        spec(spec_of(*input, groups)),
        statistics(reduced(*spec, dims(), sum_type(input->dtype()))) {}

  static SpecPtr spec_of(const DTensorSpec& input, int64_t groups) {
    std::vector<int64_t> shape = input.shape();
    shape[1] /= groups;
    shape.insert(shape.begin() + 1, groups);
    Placements placements = without_partials(input.placements());
    for (Placement& p : placements) {
      p = p.is_shard() && p.dim() > 0 ? p.with_dim(p.dim() + 1) : p;
    }
    return DTensorSpec::make(input.mesh(), placements, shape, input.dtype());
  }
  std::vector<bool> dims() const {
    std::vector<bool> reduced_dims(spec->shape().size(), true);
    reduced_dims[0] = reduced_dims[1] = false;
    return reduced_dims;
  }

  Placements placements() const {
    return without_partials(input->placements());
  }
  // A shard of the input by groups, in the type of sums.
  at::Tensor grouped(const at::Tensor& t) const {
    return t.defined()
               ? t.reshape(spec->local_shape()).to(statistics.kept->dtype())
               : t;
  }
  // A value per channel, [c], as one that broadcasts to what is grouped.
  at::Tensor by_channel(const at::Tensor& t) const {
    std::vector<int64_t> shape(spec->shape().size(), 1);
    shape[1] = groups;
    shape[2] = spec->shape()[2];
    return t.defined() ? t.to(statistics.kept->dtype()).reshape(shape) : t;
  }
  // A value per group, [n, g], the same.
  at::Tensor by_group(const at::Tensor& t) const {
    return t.defined() ? t.to(statistics.kept->dtype())
                             .reshape(statistics.kept->local_shape())
                       : t;
  }
  SpecPtr result() const {
    return in_format_of(
        *input->contiguous(placements(), input->dtype()), *input);
  }

  SpecPtr input;
  int64_t groups;
  SpecPtr spec;
  Reduced statistics;
};

// As kernels save statistics: halves with parameters that are more precise in
// the type of those.
c10::ScalarType saved_dtype(const DecomposedCall& decomposed) {
  const at::Tensor weight = decomposed.optional_tensor("weight");
  const c10::ScalarType input = decomposed.tensor("input").scalar_type();
  return weight.defined() && c10::isReducedFloatingType(input)
             ? weight.scalar_type()
             : input;
}

void group_norm(const OpCall& call) {
  DecomposedCall decomposed(call);
  const Grouped by(decomposed);
  const Placements unsharded = replicated(decomposed.mesh());
  const at::Tensor shard =
      decomposed.shard("input", decomposed.tensor("input"), by.placements());
  const at::Tensor w = by.by_channel(decomposed.shard(
      "weight", decomposed.optional_tensor("weight"), unsharded));
  const at::Tensor b = by.by_channel(
      decomposed.shard("bias", decomposed.optional_tensor("bias"), unsharded));
  const at::Tensor x = by.grouped(shard);
  const auto [mean, variance] =
      joint_statistics(decomposed, by.spec->shape(), by.statistics, x);
  at::Tensor y, rstd;
  if (decomposed.computes()) {
    rstd = (variance + decomposed.argument("eps").toDouble()).rsqrt_();
    y = (x - mean).mul_(rstd);
    y = w.defined() ? y.mul_(w) : y;
    y = b.defined() ? y.add_(b) : y;
    y = y.reshape(shard.sizes()).to(shard.scalar_type());
  }
  const SpecPtr saved =
      by.statistics.dropped->with_dtype(saved_dtype(decomposed));
  const auto statistic = [&](const at::Tensor& t) {
    return decomposed.wrap(saved, [&] {
      return t.reshape(saved->local_shape()).to(saved->dtype());
    });
  };
  decomposed.finish(
      {decomposed.wrap(by.result(), [&] { return y; }), statistic(mean),
       statistic(rstd)});
}

// dx = rstd * (gw - mean(gw) - y * mean(gw * y)) with y the normalized input
// and gw the gradient times the weight.
void group_norm_backward(const OpCall& call) {
  DecomposedCall decomposed(call);
  const Grouped by(decomposed);
  const auto mask = decomposed.argument("output_mask").toBoolList();
  const at::Tensor weight = decomposed.optional_tensor("weight");
  const auto shard = [&](const char* name, const at::Tensor& t,
                         const Placements& on) {
    return decomposed.shard(name, t, on);
  };
  const Placements& of_groups = by.statistics.dropped->placements();
  const at::Tensor g = by.grouped(
      shard("grad_out", decomposed.tensor("grad_out"), by.placements()));
  const at::Tensor x =
      by.grouped(shard("input", decomposed.tensor("input"), by.placements()));
  const at::Tensor mean =
      by.by_group(shard("mean", decomposed.tensor("mean"), of_groups));
  const at::Tensor rstd =
      by.by_group(shard("rstd", decomposed.tensor("rstd"), of_groups));
  const at::Tensor w =
      by.by_channel(shard("weight", weight, replicated(decomposed.mesh())));
  at::Tensor y, gw;
  if (decomposed.computes()) {
    y = (x - mean).mul_(rstd);
    gw = w.defined() ? g * w : g;
  }
  std::vector<c10::IValue> results(3, at::Tensor());
  if (mask[0]) {
    const Reduced& r = by.statistics;
    std::vector<int64_t> shape = r.kept->shape();
    shape.push_back(2);
    const at::Tensor sums = decomposed.all_reduce(
        DTensorSpec::make(
            decomposed.mesh(), r.kept->placements(), shape, r.kept->dtype()),
        r.over, ReduceOp::kSum, [&] {
          return at::stack(
              {gw.sum(r.dims, /*keepdim=*/true),
               (gw * y).sum(r.dims, /*keepdim=*/true)},
              -1);
        });
    results[0] = decomposed.wrap(by.result(), [&] {
      const at::Tensor means = sums / static_cast<double>(r.count);
      return (gw - means.select(-1, 0) - y * means.select(-1, 1))
          .mul_(rstd)
          .reshape(by.input->layout().local_shape(decomposed.coordinate()))
          .to(by.input->dtype());
    });
  }
  Placements partial_placements = by.placements();
  for (Placement& p : partial_placements) {
    p = p.is_shard() ? Partial() : p;
  }
  const int64_t channels = by.input->shape()[1];
  const SpecPtr gradient = DTensorSpec::make(
      decomposed.mesh(), partial_placements, {channels},
      weight.defined() ? weight.scalar_type() : by.input->dtype());
  for (const size_t i : {1, 2}) {
    if (mask[i]) {
      results[i] = decomposed.wrap(gradient, [&] {
        std::vector<int64_t> dims{0};
        for (int64_t d = 3; d < g.dim(); ++d) {
          dims.push_back(d);
        }
        return (i == 1 ? g * y : g)
            .sum(dims)
            .reshape({channels})
            .to(gradient->dtype());
      });
    }
  }
  decomposed.finish(std::move(results));
}

// Channels that are cut are a rule's, or gathered.
bool is_sharded_image(const RuleCall& call, const Operand& input) {
  const int64_t groups = call.integer("group");
  bool rows = false;
  for (const Placement& p : *input.placements) {
    if (p.is_shard(1)) {
      return false;
    }
    rows = rows || (p.is_shard() && p.dim() > 1);
  }
  return rows && groups > 0 && input.shape[1] % groups == 0 &&
         c10::isFloatingType(input.dtype) &&
         c10::multiply_integers(input.shape) > 0;
}

bool group_norm_is_sharded(const RuleCall& call) {
  return is_sharded_image(call, call.operand(0));
}
bool group_norm_backward_is_sharded(const RuleCall& call) {
  return is_sharded_image(call, call.operand(1));
}

}  // namespace

void add_group_norm_decompositions(OpRegistry& ops) {
  ops.at("aten::native_group_norm").decomposition = {
      group_norm_is_sharded, group_norm};
  ops.at("aten::native_group_norm_backward").decomposition = {
      group_norm_backward_is_sharded, group_norm_backward};
}

}  // namespace tessera::detail::inline tensor_layer
