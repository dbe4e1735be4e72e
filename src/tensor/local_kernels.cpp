#include <tensor/local_kernels.h>

#include <c10/util/Exception.h>
#include <tensor/local_lookup.h>

namespace tessera::detail {

namespace {

struct Entry {
  std::string_view name;
  LocalKernel kernel;
};

constexpr Entry kTable[] = {
    {"operator", nullptr},
    {"lookup", local_lookup},
    {"convolution", local_convolution},
};

}  // namespace

LocalKernel local_kernel(std::string_view name) {
  if (name.empty()) {
    return nullptr;
  }
  for (const Entry& entry : kTable) {
    if (entry.name == name) {
      return entry.kernel;
    }
  }
  TORCH_CHECK_VALUE(
      false, "rule: no local kernel is named '", name,
      "'; those that exist are listed in tensor/local_kernels.cpp");
}

}  // namespace tessera::detail
