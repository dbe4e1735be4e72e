#include <sharded_tensor/module/module_members.h>

#include <modules/module_path.h>
#include <sharded_tensor/spec/raise.h>
#include <tessera/comm/world.h>
#include <torch/nn/modules/container/moduledict.h>
#include <torch/nn/modules/container/modulelist.h>
#include <torch/nn/modules/container/sequential.h>

namespace tessera::detail::inline sharded_tensor_layer {

using sharded_tensor::AttributeError;
using sharded_tensor::KeyError;
using sharded_tensor::Replacement;
using torch::nn::Module;

namespace {

// Reaches the registry, which lists undefined parameters too.
struct Registry : Module {
  static torch::OrderedDict<std::string, at::Tensor> Module::*parameters() {
    return &Registry::parameters_;
  }
};

}  // namespace

Module& module_at(
    const std::string& call, Module& root, const std::string& path) {
  const Module* module = find_module(root, path);
  if (module == nullptr) {
    raise<AttributeError>(
        call, ", rank ", rank(), ": ", root.name(), " has no module '", path,
        "'; named_modules() lists them");
  }
  return const_cast<Module&>(*module);  // NOLINT: part of a root that is not
}

at::Tensor parameter_at(
    const std::string& call, const Module& module, const std::string& name) {
  const auto& parameters = module.*Registry::parameters();
  if (const at::Tensor* parameter = parameters.find(name)) {
    TORCH_CHECK_VALUE(
        parameter->defined(), call, ", rank ", rank(), ": parameter '", name,
        "' of ", module.name(), " is undefined, as an absent bias is");
    return *parameter;
  }
  if (module.named_buffers(/*recurse=*/false).contains(name)) {
    raise<KeyError>(
        call, ", rank ", rank(), ": '", name, "' of ", module.name(),
        " is a buffer, not a parameter; make_dtensor_() shards any tensor");
  }
  TORCH_CHECK_VALUE(
      child_of(module, name) == nullptr, call, ", rank ", rank(), ": '", name,
      "' of ", module.name(), " is a module; name a parameter of it");
  raise<AttributeError>(
      call, ", rank ", rank(), ": ", module.name(), " has no parameter '", name,
      "'; named_parameters() lists them");
}

void check_replacement(
    const Module& parent, const std::string& path,
    const Replacement& replacement) {
  TORCH_CHECK_VALUE(
      replacement.module() != nullptr, "shard_module, rank ", rank(),
      ": the Sharder of '", path, "' returned no module");
  const bool same =
      child_of(parent, split_path(path).second) == replacement.module();
  TORCH_CHECK_TYPE(
      same || parent.as<torch::nn::SequentialImpl>() == nullptr ||
          replacement.box(),
      "shard_module, rank ", rank(), ": the Sharder of '", path,
      "' returned a module of unknown type, whose forward() Sequential cannot "
      "call; return it as a shared_ptr or holder of its own type, with one "
      "forward() that takes values or const references");
}

void replace_child(
    Module& parent, const std::string& name, const Replacement& replacement) {
  const std::shared_ptr<Module> old = child_of(parent, name);
  const std::shared_ptr<Module>& module = replacement.module();
  if (old == module) {
    return;
  }
  parent.replace_module(name, module);
  if (auto* sequential = parent.as<torch::nn::SequentialImpl>()) {
    for (torch::nn::AnyModule& slot : *sequential) {
      if (slot.ptr() == old) {
        replacement.box()(slot);
      }
    }
  } else if (auto* list = parent.as<torch::nn::ModuleListImpl>()) {
    for (std::shared_ptr<Module>& slot : *list) {
      slot = slot == old ? module : slot;
    }
  } else if (auto* dict = parent.as<torch::nn::ModuleDictImpl>()) {
    dict->update({{name, module}});
  }
}

}  // namespace tessera::detail::inline sharded_tensor_layer
