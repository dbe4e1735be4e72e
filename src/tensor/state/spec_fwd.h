// Names a spec and its mesh without what they hold: an edit of dtensor_spec.h
// compiles most of the layer again, and should not compile the rest.
#pragma once

#include <memory>

namespace tessera {

class DeviceMesh;
class DTensorSpec;
using SpecPtr = std::shared_ptr<const DTensorSpec>;

}  // namespace tessera
