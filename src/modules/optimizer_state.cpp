#include <modules/optimizer_state.h>

#include <c10/util/Exception.h>
#include <torch/optim/adagrad.h>
#include <torch/optim/adam.h>
#include <torch/optim/adamw.h>
#include <torch/optim/rmsprop.h>
#include <torch/optim/sgd.h>

namespace tessera::detail::inline modules_layer {

std::vector<at::Tensor*> state_tensors(
    const char* call, torch::optim::OptimizerParamState& state) {
  using namespace torch::optim;  // NOLINT(google-build-using-namespace)
  if (auto* s = dynamic_cast<AdamWParamState*>(&state)) {
    return {&s->exp_avg(), &s->exp_avg_sq(), &s->max_exp_avg_sq()};
  }
  if (auto* s = dynamic_cast<AdamParamState*>(&state)) {
    return {&s->exp_avg(), &s->exp_avg_sq(), &s->max_exp_avg_sq()};
  }
  if (auto* s = dynamic_cast<SGDParamState*>(&state)) {
    return {&s->momentum_buffer()};
  }
  if (auto* s = dynamic_cast<RMSpropParamState*>(&state)) {
    return {&s->square_avg(), &s->momentum_buffer(), &s->grad_avg()};
  }
  if (auto* s = dynamic_cast<AdagradParamState*>(&state)) {
    return {&s->sum()};
  }
  TORCH_CHECK_NOT_IMPLEMENTED(
      false, call, ": the state of ", typeid(state).name(),
      " is not known; Adam, AdamW, SGD, RMSprop and Adagrad are; make the "
      "optimizer after its parameters are sharded");
}

}  // namespace tessera::detail::inline modules_layer
