// What the ranks of a save or a load tell each other.
#pragma once

#include <string>
#include <vector>

#include <tessera/comm/communicator.h>

namespace tessera::detail::inline checkpoint_layer {

/// Gathers a text of any length from each rank on the first one, in group
/// order; the other ranks get none.
std::vector<std::string> gather_texts(
    const Communicator& group, const std::string& mine);

/// Throws on every rank unless a text of lines is equal on all of them; names
/// two ranks and the first lines that differ. `call` is what the error begins
/// with, `what` what the lines are.
void require_equal_lines(
    const std::string& call, const Communicator& group, const std::string& what,
    const std::string& mine);

}  // namespace tessera::detail::inline checkpoint_layer
