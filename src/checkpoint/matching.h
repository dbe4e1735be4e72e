// Which value of a state takes which entry of a checkpoint.
#pragma once

#include <string>
#include <vector>

#include <checkpoint/leaves.h>
#include <io/model/reader.h>
#include <tessera/checkpoint/checkpoint.h>

namespace tessera::detail::inline checkpoint_layer {

struct Match {
  Leaf leaf;
  const io::Entry* entry;
};

/// Tells whether a name matches LoadOptions::only.
bool is_asked_for(
    const checkpoint::LoadOptions& options, const std::string& name);

/// Returns the leaves of a state that are loaded; throws where names, kinds,
/// shapes or dtypes do not fit. `call` is what an error begins with.
std::vector<Match> match_leaves(
    const std::string& call, const io::Reader& reader,
    const checkpoint::LoadOptions& options, checkpoint::StateDict& state);

}  // namespace tessera::detail::inline checkpoint_layer
