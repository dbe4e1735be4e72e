#include <tessera/modules/materialize.h>

#include <torch/nn/module.h>

namespace tessera {

void materialize(const torch::nn::Module& module) {
  for (const at::Tensor& parameter : module.parameters()) {
    materialize(parameter);
  }
  for (const at::Tensor& buffer : module.buffers()) {
    materialize(buffer);
  }
}

}  // namespace tessera
