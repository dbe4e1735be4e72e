#include <parallel/fully_shard/form_groups.h>

#include <algorithm>
#include <map>
#include <set>

#include <c10/util/Exception.h>

namespace tessera::detail::inline parallel_layer {

namespace {

constexpr const char* kCall = "fully_shard";

using Impl = const c10::TensorImpl*;

std::vector<std::string> group_paths(
    torch::nn::Module& module, const FullyShardOptions& options) {
  std::vector<std::string> paths = {""};
  std::map<std::string, std::string> named_by;
  for (const std::string& pattern : options.groups) {
    for (const NamedModule& found : find_modules(kCall, module, pattern)) {
      const auto [known, fresh] = named_by.emplace(found.path, pattern);
      TORCH_CHECK_VALUE(
          fresh && !found.path.empty(), kCall, ": the group ",
          module_name(found.path, module.name(), '"'), " is named ",
          found.path.empty()
              ? "by a pattern, and is there anyway"
              : "twice, by \"" + known->second + "\" and \"" + pattern + "\"",
          "; name each module once, and the root not at all");
      paths.push_back(found.path);
    }
  }
  return paths;
}

std::set<Impl> ignored(
    torch::nn::Module& module, const FullyShardOptions& options) {
  std::set<Impl> impls;
  for (const std::string& path : options.ignored_params) {
    for (const NamedParameter& found :
         find_parameters(kCall, "ignored_params", module, path)) {
      impls.insert(found.tensor.unsafeGetTensorImpl());
    }
  }
  return impls;
}

// The longest path that all names lie below.
std::string innermost(
    const std::vector<std::string>& paths,
    const std::vector<std::string>& names) {
  std::string best;
  for (const std::string& path : paths) {
    const bool holds_all = std::all_of(
        names.begin(), names.end(),
        [&](const std::string& name) { return is_within(name, path); });
    if (holds_all && path.size() > best.size()) {
      best = path;
    }
  }
  return best;
}

}  // namespace

std::vector<ParameterList> form_groups(
    torch::nn::Module& module, const FullyShardOptions& options) {
  const std::vector<std::string> paths = group_paths(module, options);
  const std::set<Impl> left_out = ignored(module, options);
  std::map<Impl, std::vector<std::string>> names;
  std::vector<NamedParameter> parameters;
  for (const auto& item : module.named_parameters()) {
    const at::Tensor& tensor = item.value();
    const Impl impl = tensor.unsafeGetTensorImpl();
    if (!tensor.defined() || left_out.contains(impl)) {
      continue;
    }
    auto& of_tensor = names[impl];
    of_tensor.push_back(item.key());
    if (of_tensor.size() == 1) {
      parameters.push_back({item.key(), tensor});
    }
  }
  std::vector<ParameterList> groups = {{"", {}}};
  for (const NamedParameter& parameter : parameters) {
    const std::string path =
        innermost(paths, names[parameter.tensor.unsafeGetTensorImpl()]);
    auto group = std::find_if(
        groups.begin(), groups.end(),
        [&](const auto& known) { return known.path == path; });
    if (group == groups.end()) {
      group = groups.insert(groups.end(), {path, {}});
    }
    group->parameters.push_back(parameter);
  }
  std::erase_if(groups, [](const auto& g) { return g.parameters.empty(); });
  return groups;
}

}  // namespace tessera::detail::inline parallel_layer
