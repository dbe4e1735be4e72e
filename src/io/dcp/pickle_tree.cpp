#include <io/dcp/pickle_tree.h>

#include <bit>

#include <base/escape.h>
#include <io/files/error.h>

namespace tessera::detail::inline io_layer {

PickleTree::PickleTree(std::string path, std::string_view bytes)
    : path_(std::move(path)),
      bytes_(bytes),
      budget_(64 * static_cast<uint64_t>(bytes.size()) + 4096) {
  root_ = parse_pickle(path_, bytes, data_);
}

void PickleTree::fail(const std::string& problem) const {
  io::throw_corrupt(path_, problem);
}

void PickleTree::charge(uint64_t units) const {
  if (units > budget_) {
    fail(
        "its pickle refers to the same values again and again, to more than "
        "a file of its length can hold");
  }
  budget_ -= units;
}

double PickleTree::number(NodeId node) const {
  return std::bit_cast<double>(data_.nodes[node].integer);
}

std::string_view PickleTree::text(NodeId node) const {
  const auto packed = static_cast<uint64_t>(data_.nodes[node].integer);
  charge(1 + (packed & UINT32_MAX) / 8);
  return bytes_.substr(packed >> 32, packed & UINT32_MAX);
}

std::vector<PickleTree::NodeId> PickleTree::children(NodeId node) const {
  charge(1 + data_.nodes[node].count);
  std::vector<NodeId> children;
  children.reserve(data_.nodes[node].count);
  for (uint32_t link = data_.nodes[node].first; link != PickleNode::kNone;
       link = data_.links[link].next) {
    children.push_back(data_.links[link].node);
  }
  return children;
}

bool PickleTree::is_global(
    NodeId node, std::string_view module, std::string_view name) const {
  if (kind(node) != PickleKind::kGlobal) {
    return false;
  }
  const std::vector<NodeId> parts = children(node);
  return text(parts[0]) == module && text(parts[1]) == name;
}

bool PickleTree::is_made_by(
    NodeId node, std::string_view module, std::string_view name) const {
  return (kind(node) == PickleKind::kCall ||
          kind(node) == PickleKind::kObject) &&
         is_global(children(node)[0], module, name);
}

std::string PickleTree::describe(NodeId node) const {
  if (kind(node) == PickleKind::kGlobal) {
    const std::vector<NodeId> parts = children(node);
    return base::escape(text(parts[0]).substr(0, 200)) + "." +
           base::escape(text(parts[1]).substr(0, 200));
  }
  if (kind(node) == PickleKind::kCall || kind(node) == PickleKind::kObject) {
    return describe(children(node)[0]);  // a global, by make_call()
  }
  return kind(node) == PickleKind::kPersistent ? "a storage" : "a plain value";
}

}  // namespace tessera::detail::inline io_layer
