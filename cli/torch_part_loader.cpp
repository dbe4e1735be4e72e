#include <dlfcn.h>

#include <stdexcept>

#include "torch_part.h"

namespace tessera::cli {

const TorchPart& load_torch_part() {
  // Found by this program's own run path.
  void* library = dlopen("libtessera_cli_torch.so", RTLD_NOW | RTLD_GLOBAL);
  void* symbol =
      library == nullptr ? nullptr : dlsym(library, kTorchPartSymbol);
  if (symbol == nullptr) {
    throw std::runtime_error(
        std::string("the part that needs LibTorch cannot be loaded: ") +
        dlerror());
  }
  return *reinterpret_cast<TorchPartFunction>(symbol)();
}

}  // namespace tessera::cli
