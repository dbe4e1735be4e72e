// A user's spec: a square matrix cut into side x side equal squares.
#pragma once

#include <string>
#include <utility>
#include <vector>

#include <c10/util/Exception.h>
#include <tessera/sharded_tensor/sharding_spec.h>

namespace tessera::sharded_tensor {

class GridSpec : public ShardingSpec {
 public:
  GridSpec(int64_t side, std::vector<RemoteDevice> placements)
      : side_(side), placements_(std::move(placements)) {}

  ShardedTensorMetadata build_metadata(
      const std::vector<int64_t>& sizes,
      const TensorProperties& properties) const override {
    TORCH_CHECK_VALUE(
        sizes.size() == 2 && sizes[0] == sizes[1] && sizes[0] % side_ == 0,
        "GridSpec: a square matrix is needed");
    const int64_t length = sizes[0] / side_;
    ShardedTensorMetadata metadata{
        .size = sizes, .tensor_properties = properties};
    for (int64_t i = 0; i < side_ * side_; ++i) {
      metadata.shards_metadata.emplace_back(
          std::vector{i / side_ * length, i % side_ * length},
          std::vector{length, length}, placements_[static_cast<size_t>(i)]);
    }
    return metadata;
  }
  ShardingSpecPtr clone() const override {
    return std::make_shared<GridSpec>(*this);
  }
  bool equals(const ShardingSpec& other) const override {
    const auto* that = dynamic_cast<const GridSpec*>(&other);
    return that != nullptr && side_ == that->side_ &&
           placements_ == that->placements_;
  }
  std::string encode() const override { return std::to_string(side_); }
  std::string name() const override { return "GridSpec"; }

  /// Makes what encode() wrote, on ranks 0, 1, ...
  static ShardingSpecPtr decode(const std::string& text) {
    const int64_t side = std::stoll(text);
    TORCH_CHECK_INDEX(side > 0 && side < 100, "GridSpec: a side of ", side);
    std::vector<RemoteDevice> placements;
    for (int64_t rank = 0; rank < side * side; ++rank) {
      placements.emplace_back(rank, c10::Device(c10::kCPU));
    }
    return std::make_shared<GridSpec>(side, std::move(placements));
  }

 private:
  int64_t side_;
  std::vector<RemoteDevice> placements_;
};

}  // namespace tessera::sharded_tensor
