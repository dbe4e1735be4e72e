// Whether tensors can live on the devices of a mesh. A mesh may be made without
// them: layouts, plans and meta tensors need no device.
#pragma once

#include <c10/core/DeviceType.h>
#include <tessera/comm/device_mesh.h>

namespace tessera::detail::inline comm_layer {

/// Tells whether this LibTorch has a device of a type, and sees one.
bool has_device(c10::DeviceType type);

/// Throws where there is no device of the mesh's type; names those that are
/// there. For calls that are about to make a tensor with data.
void check_mesh_device(const char* call, const DeviceMesh& mesh);

}  // namespace tessera::detail::inline comm_layer
