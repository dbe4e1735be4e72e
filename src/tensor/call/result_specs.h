// What the results of a decided call look like.
#pragma once

#include <cstddef>
#include <cstdint>
#include <vector>

#include <tensor/call/decision.h>
#include <tensor/impl/wrap.h>

namespace tessera::detail {

/// Finds the form of a result, of which `local` is this rank's part. Throws
/// where that part has not the shape that the decision gives it.
const WrapperTemplate& make_template(
    const Decision& decision, const c10::OperatorHandle& op, size_t result,
    size_t element, const at::Tensor& local);
/// Returns the same, mostly at once. The decision keeps it until its next
/// result.
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
/// Returns the strides of a result that is cut or Partial.
std::vector<int64_t> result_strides(
    const Decision& decision, const std::vector<int64_t>& shape);

}  // namespace tessera::detail
