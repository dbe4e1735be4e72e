// A bounded reader of Python's pickles: opcodes in, inert nodes out.
//
// No class is resolved and no function called: a global is two texts, a call is
// a node with the global and the arguments, an object one with its class and
// state. Whoever knows a name interprets the node; to all others it is opaque.
//
// Nodes may be shared, so that walking over them could take longer than reading
// them did: children() and text() count what they give, and refuse more than 64
// times the length of the pickle.
#pragma once

#include <cstddef>
#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

#include <io/dcp/pickle_parser.h>

namespace tessera::detail::inline io_layer {

class PickleTree {
 public:
  using NodeId = uint32_t;

  /// Reads a pickle; throws io::Error (kCorrupt) where it breaks a rule. `path`
  /// is what errors name. The bytes must outlive the tree.
  PickleTree(std::string path, std::string_view bytes);

  const std::string& path() const { return path_; }
  NodeId root() const { return root_; }
  PickleKind kind(NodeId node) const { return data_.nodes[node].kind; }
  bool boolean(NodeId node) const { return data_.nodes[node].integer != 0; }
  int64_t integer(NodeId node) const { return data_.nodes[node].integer; }
  double number(NodeId node) const;
  /// Of a string, bytes, or a big integer (little endian).
  std::string_view text(NodeId node) const;
  std::vector<NodeId> children(NodeId node) const;
  /// Tells whether a node is a global of that name.
  bool is_global(
      NodeId node, std::string_view module, std::string_view name) const;
  /// Tells whether a node is a call of, or an object of, such a global.
  bool is_made_by(
      NodeId node, std::string_view module, std::string_view name) const;
  /// Returns "torch.Size" for a global, or what makes a call or an object.
  std::string describe(NodeId node) const;
  bool has_state(NodeId node) const {
    return data_.nodes[node].state != PickleNode::kNone;
  }
  NodeId state(NodeId node) const { return data_.nodes[node].state; }

  [[noreturn]] void fail(const std::string& problem) const;

 private:
  void charge(uint64_t units) const;

  std::string path_;
  std::string_view bytes_;
  PickleNodes data_;
  NodeId root_ = 0;
  mutable uint64_t budget_;
};

}  // namespace tessera::detail::inline io_layer
