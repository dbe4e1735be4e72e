// What the results of a decided call look like.
#pragma once

#include <cstddef>
#include <cstdint>
#include <vector>

#include <tensor/call/decision.h>
#include <tensor/impl/wrap.h>

namespace tessera::detail::inline tensor_layer {

/// Makes the template for the wrapper of a result, of which `local` is this
/// rank's shard, and keeps it in decision.templates. Throws if `local` does not
/// have the shape that the decision gives it.
const WrapperTemplate& make_template(
    const Decision& decision, const c10::OperatorHandle& op, size_t result,
    size_t element, const at::Tensor& local);
/// Returns the template that the decision kept for this element of a return if
/// it fits `local`, else that of make_template(). The reference is valid until
/// the next call for the same decision.
inline const WrapperTemplate& template_of_result(
    const Decision& decision, const c10::OperatorHandle& op, size_t result,
    size_t element, const at::Tensor& local) {
  const WrapperTemplate* known = decision.templates.find(result, element);
  return known != nullptr && known->fits(local)
             ? *known
             : make_template(decision, op, result, element, local);
}
/// Returns the global shape of a result from the shape of this rank's part.
std::vector<int64_t> result_shape(
    const OutputPlan& output, c10::IntArrayRef local);
/// Returns the global strides of a result that is sharded or Partial.
std::vector<int64_t> result_strides(
    const Decision& decision, const std::vector<int64_t>& shape);

}  // namespace tessera::detail::inline tensor_layer
