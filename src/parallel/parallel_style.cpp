#include <tessera/parallel/parallel_style.h>

#include <base/text.h>
#include <c10/util/Exception.h>
#include <modules/module_path.h>
#include <parallel/style_actions.h>
#include <torch/nn/modules/embedding.h>

namespace tessera {

using torch::nn::Module;

namespace {

std::shared_ptr<detail::ParameterUse> use_of(
    const detail::StyleActions& actions, const StyleTarget& target,
    const std::optional<CallLayouts>& layouts) {
  if (!layouts) {
    return nullptr;
  }
  auto use = actions.make_use(target);
  use->plain_input = layouts->plain_input;
  use->scales = layouts->scales;
  if (layouts->input) {
    use->input.push_back({.to = *layouts->input});
  }
  if (layouts->output) {
    use->output.push_back({.to = *layouts->output});
  }
  return use;
}

}  // namespace

StyleTarget::StyleTarget(
    detail::StyleActions& actions, std::string style, std::string path)
    : actions_(actions), style_(std::move(style)), path_(std::move(path)) {}

const DeviceMesh& StyleTarget::mesh() const {
  return actions_.mesh();
}

int64_t StyleTarget::mesh_dim() const {
  return actions_.mesh_dim();
}

int64_t StyleTarget::ranks() const {
  return mesh().size(mesh_dim());
}

std::string StyleTarget::where() const {
  return actions_.where(*this);
}

StyledModule::StyledModule(
    detail::StyleActions& actions, std::string style, std::string path,
    Module& module)
    : StyleTarget(actions, std::move(style), std::move(path)),
      module_(module) {}

bool StyledModule::has(const std::string& parameter) const {
  return module_.named_parameters(/*recurse=*/false).contains(parameter);
}

void StyledModule::shard(
    const std::string& parameter, const Placement& placement,
    const std::optional<CallLayouts>& layouts) {
  const auto parameters = module_.named_parameters(/*recurse=*/false);
  const at::Tensor* found = parameters.find(parameter);
  TORCH_CHECK_VALUE(
      found != nullptr, where(), ": the module has no parameter \"", parameter,
      "\"; there are: ",
      parameters.is_empty() ? "none" : base::join(parameters.keys(), ", "));
  shard(parameter, *found, placement, layouts);
}

void StyledModule::shard(
    const std::string& parameter, const at::Tensor& tensor,
    const Placement& placement, const std::optional<CallLayouts>& layouts) {
  actions_.place(
      *this, detail::join_path(path(), parameter), tensor, placement,
      use_of(actions_, *this, layouts),
      /*is_lookup=*/module_.as<torch::nn::EmbeddingImpl>() != nullptr);
}

void StyledModule::prepare_input(const Placement& from, const Placement& to) {
  actions_.for_each_use(*this, [&](detail::ParameterUse& use) {
    if (use.plain_input == Replicate()) {
      use.plain_input = from;
    }
    use.input.insert(use.input.begin(), {from, to});
  });
}

void StyledModule::prepare_output(const Placement& from, const Placement& to) {
  actions_.for_each_use(*this, [&](detail::ParameterUse& use) {
    use.output.push_back({from, to});
  });
}

StyledParameter::StyledParameter(
    detail::StyleActions& actions, std::string style, std::string path,
    at::Tensor tensor)
    : StyleTarget(actions, std::move(style), std::move(path)),
      tensor_(std::move(tensor)) {}

void StyledParameter::shard(
    const Placement& placement, const std::optional<CallLayouts>& layouts) {
  actions_.place(
      *this, path(), tensor_, placement, use_of(actions_, *this, layouts),
      /*is_lookup=*/false);
}

}  // namespace tessera
