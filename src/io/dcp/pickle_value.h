// Plain values out of pickles: numbers, texts, bytes, lists, tuples, dicts.
#pragma once

#include <io/dcp/pickle_tree.h>
#include <io/model/value.h>

namespace tessera::detail::inline io_layer {

/// Returns the value of a node. Objects that are no plain values become opaque
/// ones, also inside of lists and dicts; they fail when they are asked for.
io::Value value_of(const PickleTree& tree, PickleTree::NodeId node);

/// Returns the integers of a tuple, a list or a torch.Size; throws where one is
/// none.
std::vector<int64_t> integers_of(
    const PickleTree& tree, PickleTree::NodeId node);

}  // namespace tessera::detail::inline io_layer
