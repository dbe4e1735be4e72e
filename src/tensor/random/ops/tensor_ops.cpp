// Random operators with tensors as parameters, element by element. They draw in
// the layout of their tensors and combine by plain arithmetic, which gives the
// same bits however the elements are spread.
#include <ATen/ExpandUtils.h>
#include <ATen/ops/add.h>
#include <ATen/ops/clone.h>
#include <ATen/ops/leaky_relu.h>
#include <ATen/ops/mul.h>
#include <ATen/ops/ones_like.h>
#include <ATen/ops/scalar_tensor.h>
#include <ATen/ops/where.h>
#include <tensor/impl/sharded_impl.h>
#include <tensor/impl/wrap.h>
#include <tensor/move/redistribute_shard.h>
#include <tensor/move/view_copies.h>
#include <tensor/random/ops/random_call.h>
#include <tensor/random/ops/table.h>

namespace tessera::detail::inline tensor_layer {

namespace {

using Kind = Distribution::Kind;

// A tensor that has the shape already, else its replicated value in it.
at::Tensor in_shape(const at::Tensor& t, at::IntArrayRef shape) {
  return t.sizes() == shape ? t : t.expand(shape);
}

void finish_pair(
    const RandomCall& call, const at::Tensor& first, const at::Tensor& second) {
  const OpCall& op = call.op_call();
  at::Tensor results[] = {first, second};
  const std::vector<at::Tensor> written = op.written();
  for (size_t i = 0; i < written.size() && i < 2; ++i) {
    write_values(written[i], results[i]);
    results[i] = written[i];
  }
  torch::jit::drop(*op.stack(), op.size());
  op.stack()->emplace_back(results[0]);
  op.stack()->emplace_back(results[1]);
}

bool is_partial_sum(const at::Tensor& t) {
  bool linear = is_sharded(t) && spec_of(t).layout().has_partial();
  if (linear) {
    for (const Placement& p : spec_of(t).placements()) {
      linear = linear && (!p.is_partial() || p.reduce_op() == ReduceOp::kSum ||
                          p.reduce_op() == ReduceOp::kAvg);
    }
  }
  return linear;
}

// input * mask * scale. Partial values of a sum are masked one by one.
at::Tensor masked(
    const at::Tensor& input, const at::Tensor& mask, double scale) {
  if (!is_partial_sum(input)) {
    return at::mul(input, mask).mul_(scale);
  }
  return wrap(
      at::mul(refreshed_shard(input), refreshed_shard(mask)).mul_(scale),
      spec_of(input).contiguous(
          spec_of(input).placements(), input.scalar_type()));
}

// A copy of a tensor in other placements; in its own where none are given.
at::Tensor copy_in(
    const at::Tensor& t, const std::optional<Placements>& placements) {
  if (!placements || !is_sharded(t)) {
    return t.clone();
  }
  const DTensorSpec& spec = spec_of(t);
  return wrap(
      redistribute_shard(refreshed_shard(t), spec, *placements).clone(),
      spec.contiguous(*placements, t.scalar_type()));
}

}  // namespace

std::optional<Placements> placements_of_rrelu(const OpCall& call) {
  const at::Tensor& self = call.argument(0).toTensor();
  const at::Tensor& noise = call.argument(1).toTensor();
  const bool has_partials =
      !is_sharded(self) || spec_of(self).layout().has_partial();
  return has_partials || noise.sizes() != self.sizes()
             ? std::nullopt
             : std::optional<Placements>(spec_of(self).placements());
}

// bernoulli(self), bernoulli(self, p) and their forms, with p a tensor.
void bernoulli_kernel(const OpCall& call) {
  const RandomCall random(call);
  const at::Tensor self = random.tensor("self");
  if (!random.has_tensor("p") && random.find("p") != nullptr) {
    TORCH_INTERNAL_ASSERT(false, "fill_kernel draws with a number");
  }
  const at::Tensor p = random.has_tensor("p") ? random.tensor("p") : self;
  // A word of 32 bits is below p * 2^32 with probability p, to 2^-32.
  const at::Tensor word = draw_like(
      self, at::kLong, {.kind = Kind::kInteger, .range = uint64_t{1} << 32},
      random.key());
  const at::Tensor yes = word.to(at::kDouble).lt(p.to(at::kDouble).mul(0x1p32));
  random.finish(yes.to(self.scalar_type()));
}

// normal(mean, std) with at least one tensor.
void normal_kernel(const OpCall& call) {
  const RandomCall random(call);
  const at::Tensor mean = random.tensor("mean");
  const at::Tensor std = random.tensor("std");
  const bool both = mean.defined() && std.defined();
  at::Tensor like = mean.defined() ? mean : std;
  const at::ScalarType dtype = like.scalar_type();
  if (both) {
    const auto shape = at::infer_size(mean.sizes(), std.sizes());
    like = std.sizes() == at::IntArrayRef(shape) &&
                   mean.sizes() != at::IntArrayRef(shape)
               ? std
               : in_shape(mean, shape);
  }
  at::Tensor values =
      draw_like(like, dtype, {.kind = Kind::kNormal}, random.key());
  values = std.defined() ? at::mul(values, std)
                         : values.mul(random.number("std", 1));
  values = mean.defined() ? at::add(values, mean)
                          : values.add(random.number("mean", 0));
  random.finish(values.to(dtype));
}

void dropout_kernel(const OpCall& call) {
  const RandomCall random(call);
  const bool fused = random.base_name() == "_fused_dropout";  // p is kept
  const at::Tensor input = random.tensor(fused ? "self" : "input");
  const double p = random.number("p", 0.5);
  random.check(p >= 0 && p <= 1, "p must be from 0 to 1; got ", p);
  const double kept = fused ? p : 1 - p;
  const c10::IValue* train = random.find("train");
  if (train != nullptr && !train->toBool()) {
    return finish_pair(
        random, input.clone(),
        at::ones_like(input, input.options().dtype(at::kBool)));
  }
  const at::Tensor mask = draw_like(
      input, fused ? at::kByte : at::kBool,
      {.kind = Kind::kBernoulli, .a = kept}, random.key());
  finish_pair(random, masked(input, mask, kept == 0 ? 0 : 1 / kept), mask);
}

// noise: uniform where self is not positive, 1 elsewhere; result: self * noise.
void rrelu_kernel(const OpCall& call) {
  const RandomCall random(call);
  const at::Tensor self = random.tensor("self");
  const at::Tensor noise = random.tensor("noise");
  const double lower = random.number("lower", 0.125);
  const double upper = random.number("upper", 1.0 / 3);
  random.check(
      lower <= upper, "the range must go upwards; got [", lower, ", ", upper,
      ")");
  const bool training = random.find("training")->toBool();
  at::Tensor drawn, result;
  if (training) {
    const at::Tensor slope = draw_like(
        self, self.scalar_type(),
        {.kind = Kind::kUniform, .a = lower, .b = upper}, random.key());
    drawn =
        at::where(self.le(0), slope, at::scalar_tensor(1, slope.scalar_type()));
    result = at::mul(self, drawn);
  } else {
    result = at::leaky_relu(self, (lower + upper) / 2);
  }
  if (random.base_name() == "rrelu_with_noise_functional") {
    return finish_pair(
        random, result,
        training ? drawn : copy_in(noise, placements_of_rrelu(call)));
  }
  if (training) {
    write_values(noise, drawn);
  }
  random.finish(result);
}

}  // namespace tessera::detail::inline tensor_layer
