// Tensors cut as a text says: cut(x, mesh, "S(0) R").
#pragma once

#include <string>

#include <harness/sharded_test.h>

namespace tessera::testing {

inline at::Tensor cut(
    const at::Tensor& value, const DeviceMesh& mesh, const std::string& text) {
  return distribute_tensor(value, mesh, parse_placements(text));
}

}  // namespace tessera::testing
