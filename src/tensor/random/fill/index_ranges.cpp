#include <tensor/random/fill/index_ranges.h>

#include <ATen/ops/arange.h>
#include <ATen/ops/cat.h>
#include <ATen/ops/empty.h>
#include <ATen/ops/zeros.h>
#include <c10/util/accumulate.h>
#include <tessera/tensor/dtensor_spec.h>

namespace tessera::detail::inline tensor_layer {

namespace {

bool covers_dim(const Runs& runs, int64_t size) {
  return runs.size() == 1 && runs[0].begin == 0 && runs[0].end == size;
}

}  // namespace

GlobalIndexRanges::GlobalIndexRanges(at::IntArrayRef shape)
    : global_shape_(shape.vec()) {
  region_ = region_of(whole(global_shape_));
  finish();
}

GlobalIndexRanges::GlobalIndexRanges(
    const std::vector<int64_t>& shape, const Box& box)
    : global_shape_(shape), region_(region_of(box)) {
  finish();
}

GlobalIndexRanges::GlobalIndexRanges(const DTensorSpec& spec)
    : global_shape_(spec.shape()) {
  if (spec.has_shard()) {
    region_ = region_of(spec.layout(), *spec.mesh().coordinate());
  } else {
    global_shape_ = {0};
    region_ = {{}};
  }
  finish();
}

GlobalIndexRanges GlobalIndexRanges::with_inner(int64_t size) const {
  GlobalIndexRanges ranges;
  if (!local_shape_.empty()) {  // else a single element
    ranges.global_shape_ = global_shape_;
    ranges.region_ = region_;
  }
  ranges.global_shape_.push_back(size);
  ranges.region_.push_back({{0, size}});
  ranges.finish();
  return ranges;
}

void GlobalIndexRanges::finish() {
  local_shape_.clear();
  for (const Runs& runs : region_) {
    local_shape_.push_back(total_length(runs));
  }
  numel_ = c10::multiply_integers(local_shape_);
  if (region_.empty()) {  // a single element, at place 0
    global_shape_ = {1};
    region_ = {{{0, 1}}};
  }
  strides_.assign(global_shape_.size(), 1);
  for (size_t d = strides_.size() - 1; d > 0; --d) {
    strides_[d - 1] = strides_[d] * global_shape_[d];
  }
  sharded_dims_ = region_.size();
  while (sharded_dims_ > 1 &&
         covers_dim(
             region_[sharded_dims_ - 1], global_shape_[sharded_dims_ - 1])) {
    --sharded_dims_;
  }
}

int64_t GlobalIndexRanges::range_count() const {
  if (numel_ == 0) {
    return 0;
  }
  auto count = static_cast<int64_t>(region_[sharded_dims_ - 1].size());
  for (size_t d = 0; d + 1 < sharded_dims_; ++d) {
    count *= total_length(region_[d]);
  }
  return count;
}

at::Tensor GlobalIndexRanges::linear_indices(c10::Device device) const {
  const auto options = at::TensorOptions(at::kLong).device(device);
  at::Tensor linear_indices = at::zeros({}, options);
  for (size_t d = 0; d < region_.size(); ++d) {
    std::vector<at::Tensor> runs = {at::empty({0}, options)};
    for (const Run& run : region_[d]) {
      runs.push_back(at::arange(run.begin, run.end, options));
    }
    linear_indices =
        linear_indices.unsqueeze(-1).add(at::cat(runs).mul(strides_[d]));
  }
  return linear_indices.reshape({-1});
}

}  // namespace tessera::detail::inline tensor_layer
