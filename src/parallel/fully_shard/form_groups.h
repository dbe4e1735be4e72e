// Which parameter belongs to which group.
#pragma once

#include <string>
#include <vector>

#include <modules/module_path.h>
#include <tessera/parallel/fully_shard.h>

namespace tessera::detail::inline parallel_layer {

/// A module whose parameters are gathered together; "" is the root.
struct ParameterList {
  std::string path;
  std::vector<NamedParameter> parameters;
};

/// Returns the groups that options name, the root first, then in the order of
/// the module's parameters; those without a parameter are left out. A parameter
/// belongs to the innermost group that holds all of its names: tied weights of
/// two groups to what is around both. Throws where a path names nothing, or a
/// module is named twice.
std::vector<ParameterList> form_groups(
    torch::nn::Module& module, const FullyShardOptions& options);

}  // namespace tessera::detail::inline parallel_layer
