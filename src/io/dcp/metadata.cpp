#include <io/dcp/metadata.h>

#include <map>
#include <optional>
#include <unordered_map>

#include <base/escape.h>
#include <io/dcp/pickle_tree.h>
#include <io/dcp/pickle_value.h>
#include <io/files/error.h>
#include <io/files/folder.h>
#include <io/model/check_entry.h>
#include <io/model/limits.h>

namespace tessera::detail::inline io_layer {

namespace {

using NodeId = PickleTree::NodeId;
constexpr std::string_view kModule = "torch.distributed.checkpoint.metadata";
constexpr std::string_view kFilesModule =
    "torch.distributed.checkpoint.filesystem";

class MetadataParser {
 public:
  explicit MetadataParser(const PickleTree& tree) : tree_(tree) {}

  io::Contents parse() {
    const NodeId root = object(tree_.root(), kModule, "Metadata");
    for_each_pair(
        member(root, "state_dict_metadata"),
        [&](NodeId key, NodeId value) { add_entry(key, value); });
    if (const auto planner = find_member(root, "planner_data");
        planner && tree_.kind(*planner) == PickleKind::kDict) {
      for_each_pair(
          *planner, [&](NodeId key, NodeId value) { add_path(key, value); });
    }
    for_each_pair(member(root, "storage_data"), [&](NodeId key, NodeId value) {
      add_storage(key, value);
    });
    for (const io::Entry& entry : contents_.entries) {
      require_storage(entry);
    }
    return std::move(contents_);
  }

 private:
  // Tells apart chunks that no storage was found for.
  static constexpr size_t kNoFile = SIZE_MAX;

  // Objects have their members as a dict of state.
  NodeId object(NodeId node, std::string_view module, std::string_view name) {
    if (!tree_.is_made_by(node, module, name)) {
      tree_.fail(
          "expected an object " + std::string(name) + ", found " +
          tree_.describe(node));
    }
    if (!tree_.has_state(node)) {
      tree_.fail("an object " + std::string(name) + " without a state");
    }
    return tree_.state(node);
  }

  std::optional<NodeId> find_member(NodeId state, std::string_view name) {
    if (tree_.kind(state) != PickleKind::kDict) {
      tree_.fail("expected a dict with the member " + std::string(name));
    }
    const std::vector<NodeId> pairs = tree_.children(state);
    for (size_t i = 0; i < pairs.size(); i += 2) {
      if (tree_.kind(pairs[i]) == PickleKind::kString &&
          tree_.text(pairs[i]) == name) {
        return pairs[i + 1];
      }
    }
    return std::nullopt;
  }

  NodeId member(NodeId state, std::string_view name) {
    const auto found = find_member(state, name);
    if (!found) {
      tree_.fail("an object lacks the member " + std::string(name));
    }
    return *found;
  }

  template <typename Visit>
  void for_each_pair(NodeId dict, const Visit& visit) {
    if (tree_.kind(dict) != PickleKind::kDict) {
      tree_.fail("expected a dict");
    }
    const std::vector<NodeId> pairs = tree_.children(dict);
    for (size_t i = 0; i < pairs.size(); i += 2) {
      visit(pairs[i], pairs[i + 1]);
    }
  }

  std::string string(NodeId node) {
    if (tree_.kind(node) != PickleKind::kString) {
      tree_.fail("expected a text");
    }
    return std::string(tree_.text(node));
  }

  uint64_t unsigned_member(NodeId state, std::string_view name) {
    const NodeId node = member(state, name);
    if (tree_.kind(node) != PickleKind::kInteger || tree_.integer(node) < 0) {
      tree_.fail("expected an integer as " + std::string(name));
    }
    return static_cast<uint64_t>(tree_.integer(node));
  }

  io::Dtype dtype_of(const std::string& name, NodeId properties) {
    if (!tree_.is_made_by(properties, kModule, "TensorProperties") ||
        !tree_.has_state(properties) ||
        tree_.kind(tree_.state(properties)) != PickleKind::kTuple) {
      tree_.fail("expected TensorProperties with a tuple of five");
    }
    const std::vector<NodeId> parts = tree_.children(tree_.state(properties));
    if (parts.empty() || tree_.kind(parts[0]) != PickleKind::kGlobal) {
      tree_.fail("expected TensorProperties with a dtype");
    }
    const std::vector<NodeId> global = tree_.children(parts[0]);
    const auto dtype = io::find_dtype(tree_.text(global[1]));
    if (!dtype || tree_.text(global[0]) != "torch") {
      io::throw_unsupported(
          tree_.path(), "tensor '" + base::escape(name) + "' has the dtype " +
                            tree_.describe(parts[0]) + ", which is not read");
    }
    return *dtype;
  }

  void add_entry(NodeId key, NodeId value) {
    io::Entry entry;
    entry.name = string(key);
    check_entry_name(tree_.path(), entry.name);
    entry.path = {entry.name};
    if (!by_name_.emplace(entry.name, contents_.entries.size()).second) {
      tree_.fail(
          "two entries have the name '" + base::escape(entry.name) + "'");
    }
    if (tree_.is_made_by(value, kModule, "BytesStorageMetadata")) {
      entry.stored_value.emplace();
      entry.stored_value->file = kNoFile;
    } else {
      const NodeId state = object(value, kModule, "TensorStorageMetadata");
      entry.dtype = dtype_of(entry.name, member(state, "properties"));
      entry.shape = integers_of(tree_, member(state, "size"));
      add_chunks(entry, member(state, "chunks"));
    }
    contents_.entries.push_back(std::move(entry));
  }

  void add_chunks(io::Entry& entry, NodeId list) {
    if (tree_.kind(list) != PickleKind::kList) {
      tree_.fail("expected a list of chunks");
    }
    for (const NodeId node : tree_.children(list)) {
      const NodeId state = object(node, kModule, "ChunkStorageMetadata");
      io::Chunk chunk;
      chunk.box.offsets = integers_of(tree_, member(state, "offsets"));
      chunk.box.sizes = integers_of(tree_, member(state, "sizes"));
      chunk.stored.file = kNoFile;
      by_place_[{contents_.entries.size(), chunk.box.offsets}].push_back(
          entry.chunks.size());
      entry.chunks.push_back(std::move(chunk));
    }
  }

  void add_path(NodeId key, NodeId value) {
    const auto found = by_name_.find(string(key));
    if (found == by_name_.end() || tree_.kind(value) != PickleKind::kTuple) {
      return;  // of what was saved elsewhere
    }
    io::Path path;
    for (const NodeId part : tree_.children(value)) {
      if (tree_.kind(part) == PickleKind::kInteger) {
        path.emplace_back(tree_.integer(part));
      } else {
        path.emplace_back(string(part));
        if (path.back() != io::PathPart("")) {  // which may be a key
          check_entry_name(tree_.path(), std::get<std::string>(path.back()));
        }
      }
    }
    if (path.empty() || path.size() > kMostPathParts) {
      tree_.fail("a path has 1 to 64 parts");
    }
    contents_.entries[found->second].path = std::move(path);
  }

  // Chunks without elements may share one offset, and with it one item.
  void add_storage(NodeId key, NodeId value) {
    const NodeId index = object(key, kModule, "MetadataIndex");
    const auto found = by_name_.find(string(member(index, "fqn")));
    if (found == by_name_.end()) {
      tree_.fail("an item belongs to no entry");
    }
    io::Entry& entry = contents_.entries[found->second];
    const io::StoredBytes stored = stored_bytes(value);
    if (!entry.is_tensor()) {
      *entry.stored_value = stored;
      return;
    }
    const auto offset = find_member(index, "offset");
    if (!offset) {
      tree_.fail("an item of a tensor has no offset");
    }
    const auto chunks =
        by_place_.find({found->second, integers_of(tree_, *offset)});
    if (chunks == by_place_.end()) {
      tree_.fail(
          "an item of '" + base::escape(entry.name) +
          "' has an offset that no chunk has");
    }
    for (const size_t chunk : chunks->second) {
      entry.chunks[chunk].stored = stored;
    }
  }

  io::StoredBytes stored_bytes(NodeId node) {
    const NodeId state = object(node, kFilesModule, "_StorageInfo");
    if (const auto transforms = find_member(state, "transform_descriptors");
        transforms && tree_.kind(*transforms) == PickleKind::kList &&
        !tree_.children(*transforms).empty()) {
      io::throw_unsupported(
          tree_.path(),
          "items were transformed (compressed) when they were "
          "written, which is not read");
    }
    io::StoredBytes stored;
    stored.file = file_number(string(member(state, "relative_path")));
    stored.offset = unsigned_member(state, "offset");
    stored.bytes = unsigned_member(state, "length");
    return stored;
  }

  size_t file_number(const std::string& name) {
    const auto [found, is_new] = by_file_.emplace(name, contents_.files.size());
    if (is_new) {
      if (const std::string problem = plain_name_problem(name);
          !problem.empty()) {
        tree_.fail("the file '" + base::escape(name) + "' " + problem);
      }
      if (contents_.files.size() == kMostFiles) {
        tree_.fail("has more than 100,000 files");
      }
      contents_.files.push_back({name, 0});
    }
    return found->second;
  }

  void require_storage(const io::Entry& entry) {
    bool is_stored = !entry.stored_value || entry.stored_value->file != kNoFile;
    for (const io::Chunk& chunk : entry.chunks) {
      is_stored &= chunk.stored.file != kNoFile;
    }
    if (!is_stored) {
      tree_.fail("'" + base::escape(entry.name) + "' has no item in any file");
    }
  }

  const PickleTree& tree_;
  io::Contents contents_;
  std::unordered_map<std::string, size_t> by_name_;
  std::unordered_map<std::string, size_t> by_file_;
  // Entry and offsets -> chunks.
  std::map<std::pair<size_t, std::vector<int64_t>>, std::vector<size_t>>
      by_place_;
};

}  // namespace

io::Contents parse_dcp_metadata(
    const std::string& path, std::string_view pickle) {
  const PickleTree tree(path, pickle);
  return MetadataParser(tree).parse();
}

}  // namespace tessera::detail::inline io_layer
