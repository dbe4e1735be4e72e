// Agreement of the ranks of a ProcessGroup.
#pragma once

#include <string>
#include <utility>

#include <comm/agreement.h>
#include <tessera/sharded_tensor/errors.h>
#include <tessera/sharded_tensor/process_group.h>

namespace tessera::detail::inline sharded_tensor_layer {

/// Begins an agreement, in which this layer's errors keep their types; throws
/// on a rank outside the group.
inline Agreement begin_agreement(
    std::string call, const sharded_tensor::ProcessGroup& group) {
  return Agreement(
      std::move(call), group.communicator(),
      {error_type<sharded_tensor::KeyError>(),
       error_type<sharded_tensor::AttributeError>()});
}

}  // namespace tessera::detail::inline sharded_tensor_layer
