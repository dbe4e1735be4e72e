// Running recorded calls: the values of a deferred tensor.
#pragma once

#include <functional>
#include <vector>

#include <c10/core/impl/LocalDispatchKeySet.h>
#include <tensor/deferred/tape.h>
#include <tensor/random/ops/plain_draws.h>
#include <tensor/state/draws.h>
#include <torch/csrc/autograd/grad_mode.h>

namespace tessera::detail::inline tensor_layer {

/// While it lives, calls of this thread run on values: none is recorded, and
/// plain tensors draw as under a ReplicatedRandom.
class Replaying {
 public:
  Replaying();
  Replaying(const Replaying&) = delete;
  Replaying& operator=(const Replaying&) = delete;

 private:
  c10::impl::ExcludeDispatchKeyGuard off_;
  UnshardedRandom draws_;
  at::NoGradGuard no_grad_;
};

/// Returns the tensor that takes the place of an argument: of one that was
/// deferred, or of this one, which was not.
using SubstituteFn =
    std::function<at::Tensor(const RecordedArgument&, const at::Tensor&)>;

/// Runs a call with its draws as recorded; returns its results. They lie on
/// `device` where the call says on which, and none is given.
torch::jit::Stack run_recorded(
    const RecordedCall& call, const SubstituteFn& substitute,
    std::optional<c10::Device> device = std::nullopt);

/// Returns plain values of a version of a storage, seen as a tensor: runs the
/// calls that they depend on, in the order in which they were recorded, and
/// keeps each tensor no longer than until its last use. Needs a Replaying.
at::Tensor replay(const VersionPtr& version, const Geometry& geometry);

/// Returns a tensor of this geometry over the storage of another.
at::Tensor tensor_over(const at::Tensor& storage, const Geometry& geometry);
/// Returns new memory of this geometry.
at::Tensor empty_like_geometry(
    const Geometry& geometry, const c10::Device& device);

/// Tells whether a call writes one value, or numbers of its own, everywhere.
bool is_fill(const RecordedCall& call);
bool is_draw(const RecordedCall& call);
/// Tells whether a call overwrites all elements of the storage of its written
/// argument, whatever they were.
bool is_overwrite(const RecordedCall& call);

}  // namespace tessera::detail::inline tensor_layer
