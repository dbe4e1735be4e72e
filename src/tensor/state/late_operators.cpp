#include <tensor/state/late_operators.h>

namespace tessera::detail::inline tensor_layer {

std::atomic<bool> has_late_operators{true};

}  // namespace tessera::detail::inline tensor_layer
