#include <modules/module_path.h>

#include <fnmatch.h>

#include <algorithm>

#include <c10/util/Exception.h>

namespace tessera::detail::inline modules_layer {

using torch::nn::Module;

namespace {

bool matches(const std::string& pattern, const std::string& name) {
  return fnmatch(pattern.c_str(), name.c_str(), 0) == 0;
}

std::string children_of(const std::vector<NamedModule>& modules) {
  std::string text;
  for (const NamedModule& named : modules) {
    for (const auto& child : named.module->named_children()) {
      text += (text.empty() ? "" : ", ") + join_path(named.path, child.key());
    }
  }
  return text.empty() ? "none" : text;
}

}  // namespace

std::pair<std::string, std::string> split_path(const std::string& path) {
  const size_t dot = path.rfind('.');
  return dot == std::string::npos
             ? std::pair(std::string(), path)
             : std::pair(path.substr(0, dot), path.substr(dot + 1));
}

std::string join_path(const std::string& above, const std::string& name) {
  return above + (above.empty() || name.empty() ? "" : ".") + name;
}

bool is_within(const std::string& path, const std::string& above) {
  return above.empty() || path == above || path.starts_with(above + ".");
}

std::shared_ptr<Module> child_of(
    const Module& parent, const std::string& name) {
  const auto children = parent.named_children();
  const auto* found = children.find(name);
  return found == nullptr ? nullptr : *found;
}

const Module* find_module(const Module& root, const std::string& path) {
  const Module* module = &root;
  size_t begin = 0;
  while (module != nullptr && !path.empty() && begin <= path.size()) {
    const size_t dot = std::min(path.find('.', begin), path.size());
    // The parent's registry keeps the child alive.
    module = child_of(*module, path.substr(begin, dot - begin)).get();
    begin = dot + 1;
  }
  return module;
}

std::string module_name(
    const std::string& path, const std::string& root_type, char quote) {
  return path.empty() ? "the root module (" + root_type + ")"
                      : quote + path + quote;
}

std::vector<NamedModule> find_modules(
    const std::string& call, Module& root, const std::string& path) {
  if (path.empty()) {
    return {{"", &root}};
  }
  const auto [head, last] = split_path(path);
  const std::vector<NamedModule> parents = find_modules(call, root, head);
  std::vector<NamedModule> found;
  for (const NamedModule& parent : parents) {
    for (const auto& child : parent.module->named_children()) {
      if (matches(last, child.key())) {
        found.push_back(
            {join_path(parent.path, child.key()), child.value().get()});
      }
    }
  }
  TORCH_CHECK_VALUE(
      !found.empty(), call, ": no module has the name \"", path,
      "\"; there are: ", children_of(parents));
  return found;
}

std::vector<NamedParameter> find_parameters(
    const std::string& call, const std::string& style, Module& root,
    const std::string& path) {
  TORCH_CHECK_VALUE(
      !path.empty(), call, ": ", style, " is for parameters; got the path of ",
      module_name(path, root.name(), '"'),
      "; name a parameter of it, such as \"weight\"");
  const auto [head, last] = split_path(path);
  std::vector<NamedParameter> found;
  std::string known;
  for (const NamedModule& parent : find_modules(call, root, head)) {
    for (const auto& parameter :
         parent.module->named_parameters(/*recurse=*/false)) {
      const std::string name = join_path(parent.path, parameter.key());
      known += (known.empty() ? "" : ", ") + name;
      if (matches(last, parameter.key())) {
        found.push_back({name, parameter.value()});
      }
    }
  }
  TORCH_CHECK_VALUE(
      !found.empty(), call, ": no parameter has the name \"", path,
      "\"; there are: ", known.empty() ? "none" : known);
  return found;
}

}  // namespace tessera::detail::inline modules_layer
