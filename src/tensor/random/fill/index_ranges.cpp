#include <tensor/random/fill/index_ranges.h>

#include <ATen/ops/arange.h>
#include <ATen/ops/cat.h>
#include <ATen/ops/empty.h>
#include <ATen/ops/zeros.h>
#include <c10/util/accumulate.h>
#include <tessera/tensor/dtensor_spec.h>

namespace tessera::detail {

namespace {

bool is_whole(const Runs& runs, int64_t size) {
  return runs.size() == 1 && runs[0].begin == 0 && runs[0].end == size;
}

}  // namespace

Extent::Extent(at::IntArrayRef shape) : global_shape_(shape.vec()) {
  region_ = region_of(whole(global_shape_));
  finish();
}

Extent::Extent(const std::vector<int64_t>& shape, const Box& box)
    : global_shape_(shape), region_(region_of(box)) {
  finish();
}

Extent::Extent(const DTensorSpec& spec) : global_shape_(spec.shape()) {
  if (spec.has_shard()) {
    region_ = region_of(spec.layout(), *spec.mesh().coordinate());
  } else {
    global_shape_ = {0};
    region_ = {{}};
  }
  finish();
}

Extent Extent::with_inner(int64_t size) const {
  Extent extent;
  if (!local_shape_.empty()) {  // else a single element
    extent.global_shape_ = global_shape_;
    extent.region_ = region_;
  }
  extent.global_shape_.push_back(size);
  extent.region_.push_back({{0, size}});
  extent.finish();
  return extent;
}

void Extent::finish() {
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
  cut_dims_ = region_.size();
  while (cut_dims_ > 1 &&
         is_whole(region_[cut_dims_ - 1], global_shape_[cut_dims_ - 1])) {
    --cut_dims_;
  }
}

int64_t Extent::range_count() const {
  if (numel_ == 0) {
    return 0;
  }
  auto count = static_cast<int64_t>(region_[cut_dims_ - 1].size());
  for (size_t d = 0; d + 1 < cut_dims_; ++d) {
    count *= total_length(region_[d]);
  }
  return count;
}

at::Tensor Extent::places(c10::Device device) const {
  const auto options = at::TensorOptions(at::kLong).device(device);
  at::Tensor places = at::zeros({}, options);
  for (size_t d = 0; d < region_.size(); ++d) {
    std::vector<at::Tensor> runs = {at::empty({0}, options)};
    for (const Run& run : region_[d]) {
      runs.push_back(at::arange(run.begin, run.end, options));
    }
    places = places.unsqueeze(-1).add(at::cat(runs).mul(strides_[d]));
  }
  return places.reshape({-1});
}

}  // namespace tessera::detail
