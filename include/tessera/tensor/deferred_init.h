// Modules that are made before their memory: each rank makes only its shards,
// with the values that one rank would have. docs/02_modules.md
#pragma once

#include <memory>

#include <ATen/core/Tensor.h>
#include <tessera/export.h>

namespace tessera {

namespace detail::inline tensor_layer {
class DeferredInitImpl;
}  // namespace detail::inline tensor_layer

/// While it lives on this thread, new tensors have a shape and no memory; the
/// calls that would make and fill them are recorded. What places a module on a
/// mesh then runs them on each rank's shards: parallelize_module(),
/// distribute_module(), make_dtensor_(), distribute_tensor(). The values are
/// those of the same program under a ReplicatedRandom, bit for bit, and nothing
/// is communicated. Calls that ask for values are an error; guards nest.
/// Example:
///   Gpt model(nullptr);
///   {
///     DeferredInit later;
///     model = Gpt(sizes);
///   }
///   parallelize_module(model, mesh, plan);
class TESSERA_API DeferredInit {
 public:
  DeferredInit();
  ~DeferredInit();
  DeferredInit(const DeferredInit&) = delete;
  DeferredInit& operator=(const DeferredInit&) = delete;

 private:
  std::unique_ptr<detail::DeferredInitImpl> impl_;
};

/// Tells whether a tensor was made under a DeferredInit and has no values yet.
/// Example: is_deferred(model->head->weight).
TESSERA_API bool is_deferred(const at::Tensor& tensor);

/// Gives a deferred tensor its values, whole and plain, in place; nothing
/// happens to any other. Example: materialize(model->head->weight).
TESSERA_API void materialize(const at::Tensor& tensor);

}  // namespace tessera
