// Random operators by rejection, which the host computes for every device.
#include <algorithm>
#include <vector>

#include <ATen/ExpandUtils.h>
#include <ATen/Parallel.h>
#include <ATen/ops/empty.h>
#include <tensor/impl/sharded_impl.h>
#include <tensor/impl/wrap.h>
#include <tensor/move/redistribute_shard.h>
#include <tensor/move/view_copies.h>
#include <tensor/random/ops/random_call.h>
#include <tensor/random/ops/table.h>
#include <tensor/random/philox/reject.h>

namespace tessera::detail::inline tensor_layer {

namespace {

// The spec in which values of `like` are drawn, Partial resolved; none for a
// plain tensor.
SpecPtr drawn_spec(const at::Tensor& like, at::ScalarType dtype) {
  if (!is_sharded(like)) {
    return nullptr;
  }
  const DTensorSpec& spec = spec_of(like);
  return spec.contiguous(summed_placements(spec), dtype);
}

// This rank's elements of a parameter, in the layout of `spec`, as f64 on the
// host.
at::Tensor local_parameter(
    const at::Tensor& t, at::IntArrayRef shape, const SpecPtr& spec) {
  at::Tensor local = t;
  if (is_sharded(t) && t.sizes() == shape) {
    local =
        redistribute_shard(refreshed_shard(t), spec_of(t), spec->placements());
  } else {
    const at::Tensor unsharded = is_sharded(t) ? replicated_value(t) : t;
    local = spec ? slice_shard(unsharded.expand(shape), *spec)
                 : unsharded.expand(shape);
  }
  return local.to(at::kCPU, at::kDouble).contiguous();
}

// Calls f(parameters of one element, its words) for every element of `like`.
// Returns the values in its layout.
template <class F>
at::Tensor map_elements(
    const RandomCall& call, const at::Tensor& like, at::ScalarType dtype,
    const std::vector<at::Tensor>& parameters, F f) {
  const SpecPtr spec = drawn_spec(like, dtype);
  const GlobalIndexRanges ranges =
      spec ? GlobalIndexRanges(*spec) : GlobalIndexRanges(like.sizes());
  std::vector<at::Tensor> held;
  std::vector<const double*> data;
  for (const at::Tensor& t : parameters) {
    held.push_back(local_parameter(t, like.sizes(), spec));
    data.push_back(held.back().const_data_ptr<double>());
  }
  const at::Tensor values = at::empty(ranges.shape(), at::kDouble);
  double* out = values.mutable_data_ptr<double>();
  constexpr int64_t kSampleGrain = 2048;
  ranges.for_each_range([&](const IndexRange& range) {
    at::parallel_for(
        0, range.count, kSampleGrain, [&](int64_t begin, int64_t end) {
          for (int64_t i = begin; i < end; ++i) {
            ElementWords words(call.key(), 0, range.begin + i);
            out[range.stored + i] = f(data, range.stored + i, words);
          }
        });
  });
  const c10::Device device =
      is_sharded(like) ? meta_ready(like).local.device() : like.device();
  const at::Tensor local = values.to(device, dtype);
  return spec ? wrap(local, spec) : local;
}

using Data = std::vector<const double*>;

at::Tensor gammas(
    const RandomCall& call, const at::Tensor& self, at::ScalarType dtype) {
  return map_elements(
      call, self, dtype, {self},
      [](const Data& data, int64_t i, ElementWords& words) {
        return draw_gamma(data[0][i], words);
      });
}

// Rows of the last dim, scaled to sum 1. Summed in order, so that a row has the
// same bits wherever it lies.
void normalise_rows(const at::Tensor& rows) {
  const int64_t length = rows.size(-1);
  double* row = rows.mutable_data_ptr<double>();
  for (int64_t r = 0; length > 0 && r < rows.numel() / length; ++r) {
    double sum = 0;
    for (int64_t i = 0; i < length; ++i) {
      sum += row[i];
    }
    for (int64_t i = 0; i < length; ++i) {
      // All of them may round to 0; a NaN stays one.
      row[i] = sum == 0 ? 1.0 / static_cast<double>(length) : row[i] / sum;
    }
    row += length;
  }
}

}  // namespace

void gamma_kernel(const OpCall& call) {
  const RandomCall random(call);
  const at::Tensor self = random.tensor("self");
  random.finish(gammas(random, self, self.scalar_type()));
}

void poisson_kernel(const OpCall& call) {
  const RandomCall random(call);
  const at::Tensor self = random.tensor("self");
  random.finish(map_elements(
      random, self, self.scalar_type(), {self},
      [](const Data& data, int64_t i, ElementWords& words) {
        return draw_poisson(data[0][i], words);
      }));
}

const at::Tensor* tensor_drawn_like(
    const std::vector<const at::Tensor*>& parameters, at::IntArrayRef shape) {
  for (const at::Tensor* t : parameters) {
    if (is_sharded(*t) && t->sizes() == shape) {
      return t;
    }
  }
  return nullptr;
}

void binomial_kernel(const OpCall& call) {
  const RandomCall random(call);
  const at::Tensor count = random.tensor("count");
  const at::Tensor p = random.tensor("prob");
  const auto shape = at::infer_size(count.sizes(), p.sizes());
  const at::Tensor* given = tensor_drawn_like({&count, &p}, shape);
  const at::Tensor like =
      given != nullptr ? *given : (is_sharded(count) ? count : p).expand(shape);
  random.finish(map_elements(
      random, like, count.scalar_type(), {count, p},
      [](const Data& data, int64_t i, ElementWords& words) {
        return draw_binomial(data[0][i], data[1][i], words);
      }));
}

void dirichlet_kernel(const OpCall& call) {
  const RandomCall random(call);
  const at::Tensor self = random.tensor("self");
  random.check(self.dim() > 0, "self must have a dim; it is a single number");
  const SpecPtr spec = drawn_spec(self, self.scalar_type());
  const bool rows_are_unsharded =
      spec == nullptr || spec->layout().cuts(self.dim() - 1).empty();
  const at::Tensor drawn = gammas(
      random, rows_are_unsharded ? self : replicated_value(self), at::kDouble);
  const c10::Device device =
      is_sharded(self) ? meta_ready(self).local.device() : self.device();
  const at::Tensor rows = (is_sharded(drawn) ? refreshed_shard(drawn) : drawn)
                              .to(at::kCPU)
                              .contiguous();
  normalise_rows(rows);
  const at::Tensor plain = rows.to(device, self.scalar_type());
  if (spec == nullptr) {
    return random.finish(plain);
  }
  random.finish(
      wrap(rows_are_unsharded ? plain : slice_shard(plain, *spec), spec));
}

}  // namespace tessera::detail::inline tensor_layer
