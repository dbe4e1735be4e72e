// Installs a TensorPacker on a thread.
//
// Note [Saved tensors without Python]
// LibTorch asks the default engine for the hooks of each tensor that autograd
// saves. Its own engine has none, Python's has Python objects; in C++ the only
// way to give some is an engine. Ours is LibTorch's base engine with that one
// function. It becomes the default engine at the first packer, and only where
// the base engine was: never in the place of Python's, which sets its own when
// it is loaded. There the host's way is used
// (tessera/parallel/tensor_packer.h). Passes that the base engine began end
// there; both run the same code, and what a pass needs lies in its graph task.
#pragma once

#include <memory>

#include <tessera/parallel/tensor_packer.h>

namespace tessera::detail::inline parallel_layer {

/// While it lives, the packer gets what autograd saves on this thread.
class PackerScope {
 public:
  explicit PackerScope(std::shared_ptr<TensorPacker> packer);
  ~PackerScope();
  PackerScope(const PackerScope&) = delete;
  PackerScope& operator=(const PackerScope&) = delete;

 private:
  std::shared_ptr<void> hosts_;  // what the host's way returned
  std::shared_ptr<TensorPacker> outer_;
};

}  // namespace tessera::detail::inline parallel_layer
