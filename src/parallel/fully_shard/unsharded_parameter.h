// The gathered memory of one member of a group.
#pragma once

#include <functional>

#include <ATen/core/Tensor.h>
#include <tensor/impl/sharded_impl.h>

namespace tessera::detail::inline parallel_layer {

/// What a UnshardedParameter asks of its group.
struct UnshardedParameterOwner {
  virtual ~UnshardedParameterOwner() = default;
  /// Gathers a group whose memory was given back.
  virtual void fill(size_t group) = 0;
  /// Says that a backward pass computes with gathered parameters.
  virtual void note_backward() = 0;
};

/// A tensor of the gathered parameter, without memory at first. Its storage
/// stays when the memory goes, so tensors that autograd saved, and views of
/// them, see the memory that comes later. It counts writes with the shard:
/// autograd notices that a parameter was written between forward and backward.
class UnshardedParameter final : public GatheredMemory {
 public:
  /// Where the parameter lies whole, and where it belongs.
  struct Place {
    SpecPtr unsharded;
    SpecPtr sharded;
    size_t group = 0;
    bool casts_inputs = false;
    std::weak_ptr<UnshardedParameterOwner> owner = {};
  };
  UnshardedParameter(const at::Tensor& shard, Place place);

  void fill() override;
  void write_back() override;
  void hand_out() override { handed_out_ = true; }
  void note_backward() override;
  bool casts_inputs() const override { return place_.casts_inputs; }

  const SpecPtr& spec() const { return place_.unsharded; }
  const at::Tensor& local() const { return local_; }
  int64_t bytes() const;
  bool is_handed_out() const { return handed_out_; }

  /// Takes note that values of the shard as it is now are on their way.
  void begin_fill() { coming_ = shard_version(); }
  /// Makes memory for them.
  void make_room();
  /// Says that the values are there.
  void end_fill() { set_filled(coming_); }
  /// Gives the memory back, or says that its values no longer count.
  void release();

 private:
  Place place_;
  at::Tensor local_;
  uint32_t coming_ = 0;  // the version of the shard that is gathered
  bool handed_out_ = false;
};

}  // namespace tessera::detail::inline parallel_layer
