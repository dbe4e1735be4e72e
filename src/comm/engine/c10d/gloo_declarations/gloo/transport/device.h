// See gloo_declarations/README.md.
#pragma once

namespace gloo::transport {
class Device;
}  // namespace gloo::transport
