// Random operators whose results depend on whole rows of their tensor.
#include <optional>
#include <vector>

#include <ATen/ops/argsort.h>
#include <ATen/ops/cumsum.h>
#include <ATen/ops/div.h>
#include <ATen/ops/full.h>
#include <ATen/ops/minimum.h>
#include <ATen/ops/searchsorted.h>
#include <ATen/ops/topk.h>
#include <tensor/impl/sharded_impl.h>
#include <tensor/impl/wrap.h>
#include <tensor/move/redistribute_shard.h>
#include <tensor/move/view_copies.h>
#include <tensor/random/ops/random_call.h>
#include <tensor/random/ops/table.h>
#include <tensor/state/replicated.h>

namespace tessera::detail::inline tensor_layer {

namespace {

using Kind = Distribution::Kind;

at::Tensor plain_value(const at::Tensor& t) {
  return is_sharded(t) ? replicated_value(t) : t;
}

// A plain result that all ranks hold, as the call's tensors are.
at::Tensor replicated_result(const OpCall& call, const at::Tensor& value) {
  const DeviceMesh* mesh = call.mesh();
  return mesh != nullptr ? wrap_replicated(value, *mesh) : value;
}

// With replacement: the first place at which the running sum exceeds a uniform.
// `drawn` are the samples that this rank makes.
at::Tensor sample_with_replacement(
    const at::Tensor& weights, const GlobalIndexRanges& drawn, PhiloxKey key) {
  const at::Tensor sums = weights.cumsum(-1);
  const at::Tensor u = draw_values(
      drawn, at::kDouble, weights.device(), {.kind = Kind::kUniform}, key);
  const at::Tensor total = sums.narrow(-1, weights.size(-1) - 1, 1);
  const at::Tensor found =
      at::searchsorted(sums, u.mul(total), /*out_int32=*/false, /*right=*/true);
  // A product that rounds up to the total means the last weight that counts.
  const at::Tensor last =
      at::searchsorted(sums, total.contiguous(), false, /*right=*/false);
  return at::minimum(found, last);
}

// Without: the places of the largest weight / exponential. `drawn` are the
// weights that this rank has.
at::Tensor sample_without_replacement(
    const at::Tensor& weights, const GlobalIndexRanges& drawn, int64_t samples,
    PhiloxKey key) {
  const at::Tensor q = draw_values(
      drawn, at::kDouble, weights.device(),
      {.kind = Kind::kExponential, .a = 1}, key);
  return std::get<1>(at::topk(at::div(weights, q), samples, -1));
}

void check_samples(
    const RandomCall& call, const at::Tensor& weights, int64_t samples,
    bool replacement) {
  call.check(
      weights.dim() == 1 || weights.dim() == 2,
      "the weights must have 1 or 2 dims; got ", weights.dim());
  call.check(samples > 0, "num_samples must be positive; got ", samples);
  call.check(
      replacement || samples <= weights.size(-1),
      "without replacement there can be at most ", weights.size(-1),
      " samples; got ", samples);
}

// What is wrong with weights; of two things the larger one is told.
enum Fault : int64_t { kNone, kNoSum, kNoWeight };

int64_t fault_of(const at::Tensor& weights) {
  if (weights.is_meta() || weights.numel() == 0) {
    return kNone;
  }
  if (!weights.isfinite().all().item<bool>() ||
      !weights.ge(0).all().item<bool>()) {
    return kNoWeight;
  }
  return weights.sum(-1).gt(0).all().item<bool>() ? kNone : kNoSum;
}

void check_fault(const RandomCall& call, int64_t fault) {
  call.check(fault != kNoWeight, "the weights must be finite and not negative");
  call.check(fault != kNoSum, "a row of weights must have a positive sum");
}

// One sample after the other from this rank's rows; a fault of one rank is
// thrown on all.
at::Tensor sample_rows(
    const RandomCall& call, const at::Tensor& self, const Placements& rows,
    int64_t samples, bool replacement) {
  const DTensorSpec& spec = spec_of(self);
  const at::Tensor weights =
      redistribute_shard(refreshed_shard(self), spec, rows)
          .to(at::kDouble)
          .contiguous();
  const SpecPtr fault = fault_spec(spec.mesh(), rows);
  check_fault(
      call, redistribute_shard(
                at::full({1}, fault_of(weights), at::kLong), *fault,
                replicated(spec.mesh()))
                .item<int64_t>());
  const SpecPtr drawn = DTensorSpec::make(
      spec.mesh(), rows, {spec.shape()[0], samples}, at::kLong);
  const SpecPtr unsharded_rows = spec.contiguous(rows, at::kDouble);
  return wrap(
      replacement ? sample_with_replacement(
                        weights, GlobalIndexRanges(*drawn), call.key())
                  : sample_without_replacement(
                        weights, GlobalIndexRanges(*unsharded_rows), samples,
                        call.key()),
      drawn);
}

}  // namespace

// On a device sums of a row may depend on how many rows there are, and with
// them, in the last bit, on the mesh.
std::optional<Placements> placements_of_rows(const at::Tensor& weights) {
  if (!is_sharded(weights) || weights.dim() != 2 ||
      spec_of(weights).mesh().device_type() != at::kCPU) {
    return std::nullopt;
  }
  const Placements rows = summed_placements(spec_of(weights));
  bool sharded = false;
  for (const Placement& p : rows) {
    if (p.is_shard(1)) {
      return std::nullopt;
    }
    sharded = sharded || p.is_shard();
  }
  return sharded ? std::optional<Placements>(rows) : std::nullopt;
}

SpecPtr fault_spec(const DeviceMesh& mesh, const Placements& rows) {
  Placements placements = rows;
  for (Placement& p : placements) {
    p = p.is_shard() ? Partial(ReduceOp::kMax) : p;
  }
  return DTensorSpec::make(
      mesh, placements, std::vector<int64_t>{1}, at::kLong);
}

void multinomial_kernel(const OpCall& call) {
  const RandomCall random(call);
  const at::Tensor self = random.tensor("self");
  const int64_t samples = *random.integer("num_samples");
  const bool replacement = random.find("replacement")->toBool();
  check_samples(random, self, samples, replacement);
  if (const auto rows = placements_of_rows(self)) {
    return random.finish(
        sample_rows(random, self, *rows, samples, replacement));
  }
  const at::Tensor weights = plain_value(self).to(at::kDouble).contiguous();
  check_fault(random, fault_of(weights));
  std::vector<int64_t> shape = weights.sizes().vec();
  shape.back() = samples;
  random.finish(replicated_result(
      call, replacement ? sample_with_replacement(
                              weights, GlobalIndexRanges(shape), random.key())
                        : sample_without_replacement(
                              weights, GlobalIndexRanges(weights.sizes()),
                              samples, random.key())));
}

// randperm(n, out): the order of n random words.
void randperm_kernel(const OpCall& call) {
  const RandomCall random(call);
  const int64_t n = *random.integer("n");
  random.check(n >= 0, "n must not be negative; got ", n);
  const at::Tensor out = random.tensor("out");
  const c10::Device device =
      is_sharded(out) ? meta_ready(out).local.device() : out.device();
  const at::Tensor order =
      draw_permutation(n, random.key()).to(device, out.scalar_type());
  random.finish(replicated_result(call, order));
}

at::Tensor draw_permutation(int64_t n, PhiloxKey key) {
  const at::Tensor words = draw_values(
      GlobalIndexRanges(at::IntArrayRef(n)), at::kLong, at::kCPU,
      {.kind = Kind::kInteger, .range = 0}, key);
  return at::argsort(words, /*stable=*/true, /*dim=*/0);
}

}  // namespace tessera::detail::inline tensor_layer
