// check_replicas() for a whole module: parameters, their gradients, buffers.
#pragma once

#include <tessera/export.h>
#include <tessera/tensor/gradient_check.h>

namespace torch::nn {
class Module;
}

namespace tessera {

/// Compares the parameters of a module, their gradients, and its buffers over
/// the ranks that should hold them alike; see check_replicas() of tensors.
/// Call it on all ranks, after backward() or every so many steps.
TESSERA_API void check_replicas(
    const torch::nn::Module& module, const ReplicaCheckOptions& options = {});

}  // namespace tessera
