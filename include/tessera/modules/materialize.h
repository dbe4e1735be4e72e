// Values for a module that was made under a DeferredInit and stays plain.
#pragma once

#include <tessera/export.h>
#include <tessera/tensor/deferred_init.h>

namespace torch::nn {
class Module;
}  // namespace torch::nn

namespace tessera {

/// Gives the deferred parameters and buffers of a module their values, whole
/// and plain, in place; those that are sharded or have values already stay.
/// Example: materialize(*model).
TESSERA_API void materialize(const torch::nn::Module& module);

}  // namespace tessera
