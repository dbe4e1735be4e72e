// The loop over the opcodes of a pickle.
//
// What a file can ask for is bounded by its length: each opcode makes at most
// three nodes of 32 bytes; reading is a loop, not a recursion; opcodes that are
// not on the list (pickle_opcodes.h) are refused.
#pragma once

#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

namespace tessera::detail::inline io_layer {

enum class PickleKind : uint8_t {
  kNone,
  kBool,
  kInteger,     // 64 bits
  kBigInteger,  // more
  kFloat,
  kString,
  kBytes,
  kTuple,
  kList,
  kDict,        // children: keys and values in turn
  kGlobal,      // children: module, name
  kCall,        // children: callable, arguments; then what was added to it
  kObject,      // children: class, arguments; then what was added to it
  kPersistent,  // child: the id
};

/// One value. Children are a list of links.
struct PickleNode {
  static constexpr uint32_t kNone = UINT32_MAX;

  PickleKind kind = PickleKind::kNone;
  uint32_t first = kNone;  // of PickleNodes::links
  uint32_t last = kNone;
  uint32_t count = 0;
  uint32_t state = kNone;  // a node
  int64_t integer = 0;     // or the bits of a double, or begin << 32 | length
};

struct PickleLink {
  uint32_t node;
  uint32_t next;
};

struct PickleNodes {
  std::vector<PickleNode> nodes;
  std::vector<PickleLink> links;
};

/// Reads a pickle into nodes and returns the number of its root. Throws
/// io::Error (kCorrupt) where it breaks a rule; `path` is what errors name.
uint32_t parse_pickle(
    const std::string& path, std::string_view bytes, PickleNodes& out);

}  // namespace tessera::detail::inline io_layer
