// State dicts of modules and their optimizers.
#include <map>
#include <memory>

#include <ATen/ops/scalar_tensor.h>
#include <c10/util/Exception.h>
#include <checkpoint/state/lbfgs_state.h>
#include <checkpoint/state/optimizer_fields.h>
#include <tessera/checkpoint/state_dict.h>
#include <tessera/sharded_tensor/state_dict.h>
#include <tessera/tensor/random.h>
#include <torch/nn/module.h>
#include <torch/optim/optimizer.h>

namespace tessera::checkpoint {

namespace {

using detail::ParameterFields;
using torch::optim::OptimizerParamState;

// PyTorch keeps counts of steps as tensors of one element.
StateValue step_value(int64_t* step) {
  const at::Tensor count =
      at::scalar_tensor(*step, at::TensorOptions().dtype(at::kFloat));
  return StateValue(count).on_load([step](const StateValue& read) {
    *step = read.to_tensor().item().toLong();
  });
}

StateDict fields_dict(const ParameterFields& fields) {
  StateDict dict;
  if (fields.step != nullptr) {
    dict.set("step", step_value(fields.step));
  }
  for (const auto& [name, tensor] : fields.tensors) {
    if (tensor->defined()) {
      dict.set(name, *tensor);
    }
  }
  return dict;
}

// The state that a parameter does not have yet. When load() has filled it, it
// becomes the optimizer's.
StateDict absent_dict(
    torch::optim::Optimizer& optimizer, const at::Tensor& parameter,
    std::unique_ptr<OptimizerParamState> made) {
  using Holder = std::unique_ptr<OptimizerParamState>;
  StateDict dict = fields_dict(detail::fields_of(*made));
  const auto holder = std::make_shared<Holder>(std::move(made));
  void* const key = parameter.unsafeGetTensorImpl();
  for (auto& [name, value] : dict) {
    StateValue filled = value;
    value = filled.absent(holder).on_load(
        [holder, key, filled, &optimizer](const StateValue& read) mutable {
          filled.receive(read);
          if (*holder) {
            optimizer.state()[key] = std::move(*holder);
          }
        });
  }
  return dict;
}

std::map<const void*, std::string> parameter_paths(
    const torch::nn::Module& module) {
  std::map<const void*, std::string> paths;
  for (const auto& parameter : module.named_parameters()) {
    paths.emplace(parameter.value().unsafeGetTensorImpl(), parameter.key());
  }
  return paths;
}

StateDict optimizer_dict(
    const torch::nn::Module& module, torch::optim::Optimizer& optimizer) {
  const auto paths = parameter_paths(module);
  StateDict state;
  StateValue::List groups;
  for (torch::optim::OptimizerParamGroup& group : optimizer.param_groups()) {
    StateValue::List members;
    for (const at::Tensor& parameter : group.params()) {
      const auto path = paths.find(parameter.unsafeGetTensorImpl());
      TORCH_CHECK_VALUE(
          path != paths.end(), "checkpoint::state_dict: parameter ",
          members.size(), " of group ", groups.size(),
          " of the optimizer is no parameter of the module; names come from ",
          "the module, so pass the one that holds all of them");
      members.emplace_back(path->second);
      if (detail::is_lbfgs(group.options())) {
        if (members.size() == 1) {
          state.set(path->second, detail::lbfgs_state(optimizer, parameter));
        }
        continue;
      }
      const auto kept = optimizer.state().find(parameter.unsafeGetTensorImpl());
      if (kept != optimizer.state().end()) {
        state.set(path->second, fields_dict(detail::fields_of(*kept->second)));
      } else if (auto made = detail::make_state(group.options(), parameter)) {
        state.set(
            path->second, absent_dict(optimizer, parameter, std::move(made)));
      }
    }
    StateDict options = detail::options_dict(group.options());
    options.set("params", members);
    groups.emplace_back(options);
  }
  return {{"state", state}, {"param_groups", groups}};
}

}  // namespace

StateDict state_dict(const torch::nn::Module& module) {
  StateDict dict;
  for (const auto& parameter : module.named_parameters()) {
    dict.set(parameter.key(), parameter.value());
  }
  for (const auto& buffer : module.named_buffers()) {
    dict.set(buffer.key(), buffer.value());
  }
  for (const auto& [path, tensor] : sharded_tensor::state_dict(module)) {
    dict.set(path, tensor);
  }
  return dict;
}

StateDict state_dict(
    const torch::nn::Module& module, torch::optim::Optimizer& optimizer) {
  return {
      {"model", state_dict(module)},
      {"optimizer", optimizer_dict(module, optimizer)}};
}

StateDict random_state_dict() {
  const auto state = std::make_shared<RandomState>(random_state());
  StateValue::List streams;
  for (const auto& [name, draws] : state->streams) {
    streams.emplace_back(StateValue::List{name, static_cast<int64_t>(draws)});
  }
  const auto bits = [](uint64_t value) {
    return StateValue(static_cast<int64_t>(value));
  };
  return {
      {"seed", bits(state->seed).on_load([state](const StateValue& read) {
         state->seed = static_cast<uint64_t>(read.to_int());
         set_random_state(*state);
       })},
      {"operations",
       bits(state->operations).on_load([state](const StateValue& read) {
         state->operations = static_cast<uint64_t>(read.to_int());
         set_random_state(*state);
       })},
      {"streams", StateValue(streams).on_load([state](const StateValue& read) {
         state->streams.clear();
         for (const StateValue& stream : read.to_list()) {
           state->streams[stream.to_list().at(0).to_string()] =
               static_cast<uint64_t>(stream.to_list().at(1).to_int());
         }
         set_random_state(*state);
       })}};
}

}  // namespace tessera::checkpoint
