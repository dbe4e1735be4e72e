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

/// Makes each use of a storage's address an error of this text, until
/// allow_address(). LibTorch 2.11 has no way back: there nothing is forbidden.
template <class Storage>
void forbid_address(Storage& storage, const char* text) {
  if constexpr (requires { storage.clear_data_ptr_access_error_msg_(); }) {
    storage.release_data_and_set_meta_custom_data_ptr_error_msg_(text);
  }
}
template <class Storage>
void allow_address(Storage& storage) {
  if constexpr (requires { storage.clear_data_ptr_access_error_msg_(); }) {
    storage.clear_data_ptr_access_error_msg_();
  }
}

}  // namespace tessera::detail::inline tensor_layer
