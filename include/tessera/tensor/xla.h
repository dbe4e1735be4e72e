// The sharding texts of XLA and Shardy for a sharded tensor; what they say and
// refuse stands in layout/xla.h.
#pragma once

#include <string>

#include <tessera/layout/xla.h>
#include <tessera/tensor/dtensor_spec.h>

namespace tessera {

/// Prints the HloSharding of a spec. Example: to_hlo_sharding(spec(tensor)).
inline std::string to_hlo_sharding(const DTensorSpec& spec) {
  return to_hlo_sharding(spec.layout());
}

/// Prints the mesh and the sharding of a spec in two lines of Shardy.
inline std::string to_shardy(const DTensorSpec& spec) {
  return to_shardy(spec.layout());
}

}  // namespace tessera
