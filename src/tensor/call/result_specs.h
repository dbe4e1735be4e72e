// What the results of a decided call look like.
#pragma once

#include <cstddef>
#include <cstdint>
#include <memory>
#include <vector>

#include <tensor/call/decision.h>
#include <tensor/impl/wrap.h>

namespace tessera::detail::inline tensor_layer {

/// Makes sharded tensors of what a decided call returned on this rank: the one
/// place that knows how a local result is wrapped.
struct ResultWrapper {
  const Decision& decision;
  const c10::OperatorHandle& op;
  /// The sharded tensor that results are views of; nullptr where they are not.
  const at::Tensor* viewed = nullptr;
  /// The copy of it that they show; nullptr, or empty, where they show its
  /// shard.
  const std::shared_ptr<ViewCopy>* copy = nullptr;

  /// Wraps an element of a return, by the template that the decision kept for
  /// it where that fits. Throws if `local` does not have the shape that the
  /// decision gives it, or is not strided.
  at::Tensor wrap_result(
      at::Tensor&& local, size_t result, size_t element) const;

 private:
  const WrapperTemplate& make_template(
      at::Tensor& local, size_t result, size_t element) const;
};
/// Returns the global shape of a result from the shape of this rank's part.
std::vector<int64_t> result_shape(
    const OutputPlan& output, c10::IntArrayRef local);
/// Returns the global strides of a result that is sharded or Partial.
std::vector<int64_t> result_strides(
    const Decision& decision, const std::vector<int64_t>& shape);

}  // namespace tessera::detail::inline tensor_layer
