// What happens to a module's arguments and outputs.
#include <c10/util/Exception.h>
#include <comm/log/call_cause.h>
#include <modules/module_path.h>
#include <sharded_tensor/module/plain_gradient.h>
#include <sharded_tensor/spec/raise.h>
#include <sharded_tensor/tensor/agreement.h>
#include <sharded_tensor/tensor/infer_mesh.h>
#include <tessera/comm/world.h>
#include <tessera/layout/notation.h>
#include <tessera/sharded_tensor/create.h>
#include <tessera/sharded_tensor/shard_module.h>
#include <torch/nn/module.h>

namespace tessera::detail::inline sharded_tensor_layer {

using sharded_tensor::AttributeError;
using torch::nn::Module;

CallPlan::CallPlan(const Module& module, OutputSteps steps)
    : steps_(std::move(steps)),
      elsewhere_(std::make_shared<std::set<std::string>>()) {
  keep_gradients_plain(module);
}

void CallPlan::keep_gradients_plain(const Module& module) {
  for (const at::Tensor& parameter : module.parameters()) {
    keep_gradient_plain(parameter);
  }
}

at::Tensor CallPlan::argument(const at::Tensor& tensor) {
  return tensor.defined() && !is_dtensor(tensor) ? with_plain_gradient(tensor)
                                                 : tensor;
}

void CallPlan::check_visited(bool visited, const std::string& path) {
  TORCH_CHECK_TYPE(
      visited, "ShardedModule: the output of '", path,
      "' has a plan, and is neither a tensor nor a vector or tuple of up to "
      "three; call it as net.at(\"",
      path, "\", module)");
}

at::Tensor CallPlan::output(const std::string& path, at::Tensor tensor) const {
  const auto steps = steps_.find(path);
  if (steps == steps_.end() || !tensor.defined()) {
    return tensor;
  }
  for (const OutputStep& step : steps->second) {
    tensor = step(tensor);
  }
  return tensor;
}

void CallPlan::check_reach(const std::vector<std::string>& children) const {
  for (const auto& [path, steps] : steps_) {
    TORCH_CHECK_NOT_IMPLEMENTED(
        path.empty() || elsewhere_->contains(path) ||
            std::find(children.begin(), children.end(), path) != children.end(),
        "ShardedModule, rank ", rank(), ": the plan for the output of '", path,
        "' would be ignored, since forward() calls that module by itself; "
        "call it as net.at(\"",
        path, "\", module), or plan for the output of \"\"");
  }
}

CallPlan CallPlan::below(
    const std::string& path, const Module& root, const Module& module) const {
  const Module* there = find_module(root, path);
  if (there == nullptr) {
    raise<AttributeError>(
        "ShardedModule::at, rank ", rank(), ": ", root.name(),
        " has no module '", path, "'; named_modules() lists them");
  }
  TORCH_CHECK_VALUE(
      there == &module, "ShardedModule::at, rank ", rank(), ": ",
      path.empty() ? "" : "the module at ",
      module_name(path, root.name(), '\''),
      " is another one than was passed; where a Sharder replaced it, fetch it "
      "by name from named_children()");
  OutputSteps steps;
  for (const auto& [name, of_name] : steps_) {
    if (is_within(name, path)) {
      steps
          [path == name   ? ""
           : path.empty() ? name
                          : name.substr(path.size() + 1)] = of_name;
      elsewhere_->insert(name);
    }
  }
  return CallPlan(module, std::move(steps));
}

CallPlan CallPlan::with_step(OutputStep step) const {
  CallPlan longer = *this;
  longer.steps_[""].push_back(std::move(step));
  return longer;
}

void visit_as_dtensor(
    sharded_tensor::ShardedTensor& value,
    const std::function<void(at::Tensor&)>& f) {
  at::Tensor mapped = sharded_tensor::to_dtensor(value);
  const at::Tensor before = mapped;
  f(mapped);
  if (mapped.is_same(before)) {
    return;
  }
  TORCH_CHECK_NOT_IMPLEMENTED(
      is_dtensor(mapped),
      "ShardedModule: a ShardedTensor cannot become this rank's plain shard in "
      "its place; return to_dtensor() from forward(), or take local_tensor() "
      "of the result");
  value = sharded_tensor::from_dtensor(mapped, value.process_group());
}

}  // namespace tessera::detail::inline sharded_tensor_layer

namespace tessera::sharded_tensor {

namespace {

// The dim that is cut into chunks of size 1, where there is one.
std::optional<int64_t> dim_of_ones(const Layout& layout) {
  const Placement& placement = layout.placements().at(0);
  if (layout.mesh().ndim() != 1 || !placement.is_plain_shard()) {
    return std::nullopt;
  }
  const int64_t dim = placement.dim();
  const int64_t split = get_split_size(
      layout.shape().at(static_cast<size_t>(dim)), layout.mesh().size());
  return split == 1 ? std::optional(dim) : std::nullopt;
}

}  // namespace

at::Tensor reshard_output(
    const at::Tensor& output, const ShardingSpec& spec,
    const ProcessGroup& group) {
  constexpr const char* kCall = "reshard_output";
  if (!is_dtensor(output)) {
    return output;
  }
  TensorProperties properties;
  properties.dtype = output.scalar_type();
  const auto state =
      detail::make_state(spec, output.sizes().vec(), properties, group, kCall);
  const auto layout = detail::mesh_layout_of(*state);
  TORCH_CHECK_NOT_IMPLEMENTED(
      layout, kCall, " in ", to_string(group), ", rank ", rank(),
      ": no mesh has the shards of ", to_string(spec), " for an output of ",
      shape_to_string(output.sizes().vec()),
      "; give each rank one box of a grid, such as a ChunkShardingSpec, or "
      "reshard() from_dtensor() of the output");
  const DeviceMesh mesh(
      state->metadata.shards_metadata.at(0).placement->device().type(),
      layout->mesh());
  return redistribute(output, mesh, layout->placements());
}

at::Tensor collect_local_shard(const at::Tensor& output) {
  if (!is_dtensor(output)) {
    return output;
  }
  const DTensorSpec& spec = tessera::spec(output);
  TORCH_CHECK_VALUE(
      !spec.layout().has_partial(), "collect_local_shard(", to_string(spec),
      "), rank ", rank(),
      ": addends of a Partial are no shards; give the output a plan, or "
      "reshard_output() first");
  const std::optional<int64_t> dim = dim_of_ones(spec.layout());
  const bool has_shard = spec.has_shard();
  const at::Tensor local = to_local(output);
  return dim && has_shard ? local.squeeze(*dim) : local;
}

std::vector<Shard> reshard_local_shard(
    const at::Tensor& local, const std::vector<int64_t>& sizes,
    const ShardingSpec& from, const ShardingSpec& to,
    const ProcessGroup& group) {
  constexpr const char* kCall = "reshard_local_shard";
  const detail::CallCause cause(kCall);
  auto agreement = detail::begin_agreement(kCall, group);
  std::optional<ShardedTensor> tensor;
  agreement.check([&] {
    tensor =
        init_from_local_tensor(local, from, sizes, {.process_group = group});
  });
  agreement.reach();
  return tensor->resharded(to).local_shards();
}

}  // namespace tessera::sharded_tensor
