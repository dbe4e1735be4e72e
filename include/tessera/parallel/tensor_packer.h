// Who keeps what autograd saves for the backward pass. For hosts that bring an
// autograd engine of their own, as Python does: LibTorch asks the engine for
// the hooks of saved tensors.
#pragma once

#include <memory>

#include <ATen/core/Tensor.h>
#include <tessera/export.h>

namespace tessera {

/// A tensor that autograd saved, in whatever form; dropped when autograd drops
/// it.
class TESSERA_API PackedTensor {
 public:
  PackedTensor() = default;
  virtual ~PackedTensor() = default;
  PackedTensor(const PackedTensor&) = delete;
  PackedTensor& operator=(const PackedTensor&) = delete;
  /// Returns the tensor.
  virtual at::Tensor unpack() = 0;
};

/// Takes tensors that autograd saves.
class TESSERA_API TensorPacker {
 public:
  TensorPacker() = default;
  virtual ~TensorPacker() = default;
  TensorPacker(const TensorPacker&) = delete;
  TensorPacker& operator=(const TensorPacker&) = delete;
  virtual std::shared_ptr<PackedTensor> pack(const at::Tensor& tensor) = 0;
};

/// Hands the tensors that autograd saves on this thread to the packer, until
/// what it returns is dropped; of several the innermost counts.
using InstallPacker =
    std::shared_ptr<void> (*)(std::shared_ptr<TensorPacker> packer);

/// Sets how this process installs packers; nullptr for the way of programs
/// without Python. Set it while no activation_checkpoint() runs.
/// Example: set_install_packer(&push_saved_tensor_hooks);
TESSERA_API void set_install_packer(InstallPacker install);

}  // namespace tessera
