#include <io/dcp/pickle_value.h>

#include <base/json.h>
#include <io/model/limits.h>

namespace tessera::detail::inline io_layer {

namespace {

using io::Value;
using NodeId = PickleTree::NodeId;

Value value_at(const PickleTree& tree, NodeId node, size_t depth);

std::vector<Value> values_of(
    const PickleTree& tree, const std::vector<NodeId>& nodes, size_t depth) {
  std::vector<Value> values;
  values.reserve(nodes.size());
  for (const NodeId node : nodes) {
    values.push_back(value_at(tree, node, depth + 1));
  }
  return values;
}

// Python writes b"\xff" as _codecs.encode("\u00ff", "latin1").
Value bytes_of_latin1(const PickleTree& tree, NodeId arguments) {
  const std::vector<NodeId> list = tree.children(arguments);
  if (list.size() != 2 || tree.kind(list[0]) != PickleKind::kString ||
      tree.kind(list[1]) != PickleKind::kString ||
      tree.text(list[1]) != "latin1") {
    return Value::opaque("_codecs.encode of another encoding");
  }
  std::string bytes;
  const std::string_view text = tree.text(list[0]);
  for (size_t i = 0; i < text.size(); ++i) {
    const auto lead = static_cast<uint8_t>(text[i]);
    if (lead < 0x80) {
      bytes.push_back(text[i]);
      continue;
    }
    // U+0080 to U+00FF: C2 or C3, then one more byte.
    if ((lead != 0xc2 && lead != 0xc3) || i + 1 == text.size() ||
        (static_cast<uint8_t>(text[i + 1]) & 0xc0) != 0x80) {
      tree.fail("bytes are written as a text that is not latin1");
    }
    ++i;
    bytes.push_back(static_cast<char>((lead & 3) << 6 | (text[i] & 0x3f)));
  }
  return Value::bytes(std::move(bytes));
}

// Lists that programs in C++ write: build_intlist([1, 2]).
bool is_typed_list(const PickleTree& tree, NodeId node) {
  for (const char* name :
       {"build_intlist", "build_doublelist", "build_boollist"}) {
    if (tree.is_made_by(node, "torch.jit._pickle", name)) {
      return true;
    }
  }
  return false;
}

Value value_of_call(const PickleTree& tree, NodeId node, size_t depth) {
  std::vector<NodeId> parts = tree.children(node);
  const std::vector<NodeId> arguments = tree.children(parts[1]);
  if (tree.is_made_by(node, "_codecs", "encode")) {
    return bytes_of_latin1(tree, parts[1]);
  }
  if (tree.is_made_by(node, "collections", "OrderedDict") &&
      arguments.empty() && parts.size() % 2 == 0) {
    parts.erase(parts.begin(), parts.begin() + 2);
    return Value::dict(values_of(tree, parts, depth));
  }
  if (arguments.size() == 1 && tree.is_made_by(node, "torch", "Size")) {
    return value_at(tree, arguments[0], depth + 1);
  }
  if (arguments.size() == 1 && is_typed_list(tree, node)) {
    return value_at(tree, arguments[0], depth + 1);
  }
  if (arguments.size() == 2 &&
      tree.is_made_by(node, "torch.jit._pickle", "restore_type_tag")) {
    return value_at(tree, arguments[0], depth + 1);
  }
  return Value::opaque(tree.describe(node));
}

Value value_at(const PickleTree& tree, NodeId node, size_t depth) {
  if (depth > kMostValueDepth) {
    return Value::opaque("values nested deeper than 64");
  }
  switch (tree.kind(node)) {
    case PickleKind::kNone:
      return {};
    case PickleKind::kBool:
      return Value::boolean(tree.boolean(node));
    case PickleKind::kInteger:
      return Value::integer(tree.integer(node));
    case PickleKind::kFloat:
      return Value::floating(tree.number(node));
    case PickleKind::kBytes:
      return Value::bytes(std::string(tree.text(node)));
    case PickleKind::kString: {
      const std::string_view text = tree.text(node);
      return base::is_utf8(text) ? Value::string(std::string(text))
                                 : Value::opaque("a text with surrogates");
    }
    case PickleKind::kTuple:
      return Value::tuple(values_of(tree, tree.children(node), depth));
    case PickleKind::kList:
      return Value::list(values_of(tree, tree.children(node), depth));
    case PickleKind::kDict:
      return Value::dict(values_of(tree, tree.children(node), depth));
    case PickleKind::kCall:
      return value_of_call(tree, node, depth);
    case PickleKind::kBigInteger:
      return Value::opaque("an integer of more than 64 bits");
    case PickleKind::kGlobal:
    case PickleKind::kObject:
    case PickleKind::kPersistent:
      break;
  }
  return Value::opaque(tree.describe(node));
}

}  // namespace

Value value_of(const PickleTree& tree, NodeId node) {
  return value_at(tree, node, 0);
}

std::vector<int64_t> integers_of(const PickleTree& tree, NodeId node) {
  if (tree.is_made_by(node, "torch", "Size")) {
    const std::vector<NodeId> arguments = tree.children(tree.children(node)[1]);
    if (arguments.size() != 1) {
      tree.fail("a torch.Size is made of one tuple");
    }
    node = arguments[0];
  }
  if (tree.kind(node) != PickleKind::kTuple &&
      tree.kind(node) != PickleKind::kList) {
    tree.fail("expected a tuple of integers");
  }
  std::vector<int64_t> integers;
  for (const NodeId child : tree.children(node)) {
    if (tree.kind(child) != PickleKind::kInteger) {
      tree.fail("expected an integer of 64 bits in a tuple");
    }
    integers.push_back(tree.integer(child));
  }
  return integers;
}

}  // namespace tessera::detail::inline io_layer
