// The tables of kernels by operator, together.
#include <tensor/call/op_traits.h>
#include <tensor/decompositions/table.h>
#include <tensor/random/ops/table.h>
#include <tensor/run/custom_kernels.h>

namespace tessera::detail::inline tensor_layer {

void find_kernels(const c10::OperatorHandle& op, OpTraits& traits) {
  traits.decomposition = find_decomposition(op.operator_name());
  find_custom_kernel(op.operator_name(), traits);
  if (traits.is_random) {
    traits.custom_kernel = random_kernel(op);
    traits.custom_kernel_moves = random_moves(op);
    traits.draws_by_itself = draws_by_itself;
    traits.random_placements = random_placements;
    traits.skip_random = skip_random;
  }
}

}  // namespace tessera::detail::inline tensor_layer
