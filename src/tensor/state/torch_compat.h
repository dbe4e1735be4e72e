// The one place that knows how supported LibTorch versions differ.
#pragma once

#include <memory>
#include <type_traits>
#include <utility>

#include <c10/util/intrusive_ptr.h>
#include <tensor/state/extra_meta.h>
#include <torch/csrc/autograd/function.h>

namespace tessera::detail::inline tensor_layer {

/// Makes an autograd node; newer versions count references inside the node.
template <class NodeType, class... Arguments>
auto make_node(Arguments&&... arguments) {
  if constexpr (std::is_base_of_v<c10::intrusive_ptr_target, NodeType>) {
    return c10::make_intrusive<NodeType>(std::forward<Arguments>(arguments)...);
  } else {
    return std::shared_ptr<NodeType>(
        new NodeType(std::forward<Arguments>(arguments)...),
        [](auto* node) { deleteNode(node); });
  }
}

}  // namespace tessera::detail::inline tensor_layer
