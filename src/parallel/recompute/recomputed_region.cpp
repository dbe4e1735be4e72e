#include <parallel/recompute/recomputed_region.h>

#include <optional>
#include <utility>

#include <c10/util/Exception.h>
#include <parallel/recompute/packer_scope.h>
#include <tensor/uses/parameter_use.h>
#include <tessera/comm/world.h>
#include <torch/csrc/autograd/engine.h>
#include <torch/csrc/autograd/graph_task.h>

namespace tessera::detail::inline parallel_layer {

namespace {

constexpr int kNoPass = -1;

// Ends a recomputation when all that was saved is there.
struct AllIsThere {};

class KeptLeaf final : public PackedTensor {
 public:
  explicit KeptLeaf(const at::Tensor& tensor)
      : tensor_(tensor), version_(tensor._version()) {}
  at::Tensor unpack() override {
    TORCH_CHECK_VALUE(
        tensor_._version() == version_, "activation_checkpoint, rank ", rank(),
        ": a parameter that fn uses was changed in place after the forward; it "
        "has shape ",
        tensor_.sizes(), ", had version ", version_, " then, and has ",
        tensor_._version(),
        " now; call backward() before the optimizer's step()");
    return tensor_;
  }

 private:
  at::Tensor tensor_;
  int64_t version_;
};

// What a backward pass inside a recomputation asks for.
class KeptValue final : public PackedTensor {
 public:
  explicit KeptValue(at::Tensor tensor) : tensor_(std::move(tensor)) {}
  at::Tensor unpack() override { return tensor_; }

 private:
  at::Tensor tensor_;
};

}  // namespace

// What autograd keeps in the place of a tensor.
class RecomputedRegion::Saved final : public PackedTensor {
 public:
  Saved(std::shared_ptr<RecomputedRegion> region, size_t slot)
      : region_(std::move(region)), slot_(slot) {}
  Saved(const Saved&) = delete;
  Saved& operator=(const Saved&) = delete;
  ~Saved() override { region_->forget(slot_); }
  at::Tensor unpack() override { return region_->unpack(slot_); }

 private:
  std::shared_ptr<RecomputedRegion> region_;
  size_t slot_;
};

// The packer while `fn` runs again.
class RecomputedRegion::Rerun final : public TensorPacker {
 public:
  explicit Rerun(RecomputedRegion& region) : region_(region) {}

  std::shared_ptr<PackedTensor> pack(const at::Tensor& tensor) override {
    const at::Tensor value = tensor.detach();
    if (is_over()) {  // fn went on
      return std::make_shared<KeptValue>(value);
    }
    Slot& slot = region_.slots_[next_];
    if (region_.options_.check) {
      slot.fingerprint.check(
          tensor, region_.state_.draws(), next_, region_.slots_.size());
    }
    if (slot.alive) {
      slot.recomputed = value;
    }
    ++next_;
    if (is_over()) {
      throw AllIsThere();
    }
    return std::make_shared<KeptValue>(value);
  }

  bool is_over() const { return next_ == region_.end_; }
  size_t count() const { return next_; }

 private:
  RecomputedRegion& region_;
  size_t next_ = 0;
};

RecomputedRegion::RecomputedRegion(
    CheckpointFn fn, const std::vector<at::Tensor>& inputs,
    ActivationCheckpointOptions options)
    : fn_(std::move(fn)),
      options_(std::move(options)),
      state_(inputs),
      results_(options_.keep) {
  for (const at::Tensor& input : inputs) {
    inputs_.emplace_back(input, /*is_output=*/false);
    input_needs_grad_.push_back(input.defined() && input.requires_grad());
  }
}

std::vector<at::Tensor> RecomputedRegion::forward(
    const std::vector<at::Tensor>& inputs) {
  const PackerScope scope(shared_from_this());
  std::optional<KeptMoves::Keep> keep;
  if (options_.keep_moved) {
    keep.emplace(moves_);
  }
  const KeptResults::Run kept(&results_, KeptResults::Run::How::kKeep);
  forget_last_move();  // as it is when fn runs again
  std::vector<at::Tensor> results = fn_(inputs);
  forget_last_move();
  state_.warn_of_shared_generator();
  return results;
}

std::shared_ptr<PackedTensor> RecomputedRegion::pack(const at::Tensor& tensor) {
  const std::lock_guard<std::recursive_mutex> lock(mutex_);
  slots_.push_back({.fingerprint = SavedFingerprint(tensor, state_.draws())});
  if (tensor.is_leaf() && tensor.requires_grad()) {
    slots_.back().alive = false;
    return std::make_shared<KeptLeaf>(tensor);
  }
  end_ = slots_.size();
  return std::make_shared<Saved>(shared_from_this(), slots_.size() - 1);
}

void RecomputedRegion::forget(size_t slot) {
  const std::lock_guard<std::recursive_mutex> lock(mutex_);
  slots_[slot].alive = false;
  slots_[slot].recomputed.reset();
}

at::Tensor RecomputedRegion::unpack(size_t slot) {
  const std::lock_guard<std::recursive_mutex> lock(mutex_);
  const int pass = torch::autograd::get_current_graph_task_id();
  if (pass != pass_ || !slots_[slot].recomputed.defined()) {
    drop_values();
    pass_ = pass;
    recompute();
  }
  at::Tensor& value = slots_[slot].recomputed;
  if (pass == kNoPass) {
    at::Tensor asked = value;
    drop_values();
    return asked;
  }
  return torch::autograd::get_current_graph_task_keep_graph()
             ? value
             : std::exchange(value, {});
}

std::vector<at::Tensor> RecomputedRegion::inputs_again() {
  std::vector<at::Tensor> inputs;
  for (size_t i = 0; i < inputs_.size(); ++i) {
    const at::Tensor input = inputs_[i].unpack();
    inputs.push_back(input.defined() ? input.detach() : input);
    if (input.defined()) {
      keep_use(input, inputs.back());
      inputs.back().requires_grad_(input_needs_grad_[i]);
    }
  }
  return inputs;
}

void RecomputedRegion::recompute() {
  const bool once =
      pass_ != kNoPass && !torch::autograd::get_current_graph_task_keep_graph();
  drop_values_after_pass();
  const auto rerun = std::make_shared<Rerun>(*this);
  try {
    const std::vector<at::Tensor> inputs = inputs_again();
    const ForwardState::Restore restore(state_);
    const PackerScope scope(rerun);
    const KeptMoves::Take take(options_.keep_moved ? &moves_ : nullptr, once);
    using How = KeptResults::Run::How;
    const KeptResults::Run kept(&results_, once ? How::kTakeOnce : How::kTake);
    forget_last_move();
    fn_(inputs);
  } catch (...) {
    if (!rerun->is_over()) {
      forget_last_move();
      drop_values();
      throw;
    }
  }
  forget_last_move();
  TORCH_CHECK_VALUE(
      rerun->is_over(), "activation_checkpoint, rank ", rank(),
      ": fn must compute the same tensors each time it runs; autograd saved ",
      slots_.size(), " in the forward, and ", rerun->count(),
      " in the recomputation; let fn depend on its inputs alone");
}

void RecomputedRegion::drop_values() {
  for (Slot& slot : slots_) {
    slot.recomputed.reset();
  }
  pass_ = kNoPass;
}

void RecomputedRegion::drop_values_after_pass() {
  if (pass_ == kNoPass) {
    return;
  }
  torch::autograd::Engine::get_default_engine().queue_callback(
      [region = weak_from_this(), pass = pass_] {
        if (const auto alive = region.lock()) {
          const std::lock_guard<std::recursive_mutex> lock(alive->mutex_);
          if (alive->pass_ == pass) {
            alive->drop_values();
          }
        }
      });
}

}  // namespace tessera::detail::inline parallel_layer
