// Cutting the parameters of groups along the mesh dim, in place.
#pragma once

#include <vector>

#include <parallel/fully_shard/form_groups.h>
#include <parallel/fully_shard/member_group.h>
#include <parallel/fully_shard/sharded_model.h>

namespace tessera::detail::inline parallel_layer {

/// Cuts all parameters of the lists and returns the groups that they make; one
/// without dims is copied to all ranks and belongs to none. Throws before any
/// is touched where one cannot be.
std::vector<GroupPlace> place_members(
    const std::vector<ParameterList>& lists, const GroupingRules& rules);

}  // namespace tessera::detail::inline parallel_layer
