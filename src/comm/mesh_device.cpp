#include "comm/mesh_device.h"

#include <string>

#include <c10/core/impl/DeviceGuardImplInterface.h>
#include <c10/util/Exception.h>

namespace tessera::detail::inline comm_layer {
namespace {

std::string names_of_devices() {
  std::string names;
  for (int i = 0; i < c10::COMPILE_TIME_MAX_DEVICE_TYPES; ++i) {
    const auto type = static_cast<c10::DeviceType>(i);
    if (type != at::kMeta && has_device(type)) {
      names += (names.empty() ? "" : ", ") +
               c10::DeviceTypeName(type, /*lower_case=*/true);
    }
  }
  return names;
}

}  // namespace

bool has_device(c10::DeviceType type) {
  return type == at::kCPU || type == at::kMeta ||
         (c10::impl::hasDeviceGuardImpl(type) &&
          c10::impl::getDeviceGuardImpl(type)->deviceCount() > 0);
}

void check_mesh_device(const char* call, const DeviceMesh& mesh) {
  const c10::DeviceType type = mesh.device_type();
  if (has_device(type)) {
    return;
  }
  const std::string name = c10::DeviceTypeName(type, /*lower_case=*/true);
  TORCH_CHECK_VALUE(
      false, call, " on ", to_string(mesh), ", rank ", mesh.world().rank(),
      c10::impl::hasDeviceGuardImpl(type)
          ? ": LibTorch sees no device of type " + name + " here"
          : ": this LibTorch is built without " + name,
      "; there is: ", names_of_devices(),
      "; make the mesh with init_device_mesh(at::kCPU, ...), use tensors on "
      "at::kMeta, or a LibTorch and a machine that have ",
      name);
}

}  // namespace tessera::detail::inline comm_layer
