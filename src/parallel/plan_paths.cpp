#include <parallel/plan_paths.h>

#include <fnmatch.h>

#include <c10/util/Exception.h>
#include <tensor/api/module_name.h>

namespace tessera::detail::inline parallel_layer {

namespace {

std::string join(const std::string& path, const std::string& name) {
  return path.empty() ? name : path + "." + name;
}

bool matches(const std::string& pattern, const std::string& name) {
  return fnmatch(pattern.c_str(), name.c_str(), 0) == 0;
}

std::string children_of(const std::vector<NamedModule>& modules) {
  std::string text;
  for (const NamedModule& named : modules) {
    for (const auto& child : named.module->named_children()) {
      text += (text.empty() ? "" : ", ") + join(named.path, child.key());
    }
  }
  return text.empty() ? "none" : text;
}

// Splits "a.b.c" into all but the last part, and the last.
std::pair<std::string, std::string> split_last(const std::string& path) {
  const size_t dot = path.rfind('.');
  return dot == std::string::npos
             ? std::pair<std::string, std::string>("", path)
             : std::pair(path.substr(0, dot), path.substr(dot + 1));
}

}  // namespace

std::vector<NamedModule> find_modules(
    torch::nn::Module& root, const std::string& path) {
  if (path.empty()) {
    return {{"", &root}};
  }
  const auto [head, last] = split_last(path);
  const std::vector<NamedModule> parents = find_modules(root, head);
  std::vector<NamedModule> found;
  for (const NamedModule& parent : parents) {
    for (const auto& child : parent.module->named_children()) {
      if (matches(last, child.key())) {
        found.push_back({join(parent.path, child.key()), child.value().get()});
      }
    }
  }
  TORCH_CHECK_VALUE(
      !found.empty(), "parallelize_module: no module has the name \"", path,
      "\"; there are: ", children_of(parents));
  return found;
}

std::vector<NamedParameter> find_parameters(
    torch::nn::Module& root, const std::string& path) {
  TORCH_CHECK_VALUE(
      !path.empty(),
      "parallelize_module: ParameterParallel is for parameters; "
      "got the path of ",
      module_name(path, root.name(), '"'),
      "; name a parameter of it, such as \"weight\"");
  const auto [head, last] = split_last(path);
  std::vector<NamedParameter> found;
  std::string known;
  for (const NamedModule& parent : find_modules(root, head)) {
    for (const auto& parameter :
         parent.module->named_parameters(/*recurse=*/false)) {
      const std::string name = join(parent.path, parameter.key());
      known += (known.empty() ? "" : ", ") + name;
      if (matches(last, parameter.key())) {
        found.push_back({name, parameter.value()});
      }
    }
  }
  TORCH_CHECK_VALUE(
      !found.empty(), "parallelize_module: no parameter has the name \"", path,
      "\"; there are: ", known.empty() ? "none" : known);
  return found;
}

}  // namespace tessera::detail::inline parallel_layer
