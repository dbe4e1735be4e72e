#include <io/dcp/item.h>

#include <base/escape.h>
#include <io/dcp/pickle_tree.h>
#include <io/dcp/pickle_value.h>
#include <io/dcp/pickle_writer.h>
#include <io/files/error.h>
#include <io/model/entry.h>
#include <io/model/payload.h>

namespace tessera::detail::inline io_layer {

namespace {

using NodeId = PickleTree::NodeId;
constexpr std::string_view kPickleName = "/data.pkl";

// "archive", or what else the folder inside the zip is called.
std::string root_of(const StoredZip& zip) {
  for (const ZipRecord& record : zip.records()) {
    if (record.name.ends_with(kPickleName) &&
        record.name.find('/') == record.name.size() - kPickleName.size()) {
      return record.name.substr(0, record.name.find('/'));
    }
  }
  io::throw_corrupt(
      zip.source().path(), "the item at byte " +
                               std::to_string(zip.source().offset()) +
                               " has no data.pkl");
}

const ZipRecord& require(const StoredZip& zip, const std::string& name) {
  const ZipRecord* record = zip.find(name);
  if (record == nullptr) {
    io::throw_corrupt(
        zip.source().path(), "the item at byte " +
                                 std::to_string(zip.source().offset()) +
                                 " has no record '" + base::escape(name) + "'");
  }
  return *record;
}

// Reads data.pkl, and refuses items of machines with the other byte order.
std::string read_pickle(const StoredZip& zip, const std::string& root) {
  if (const ZipRecord* order = zip.find(root + "/byteorder");
      order != nullptr && zip.read(*order) != "little") {
    io::throw_unsupported(
        zip.source().path(),
        "was written by a machine whose bytes are in "
        "another order");
  }
  return zip.read(require(zip, root + std::string(kPickleName)));
}

// _rebuild_parameter(tensor, requires_grad, hooks) is its tensor.
NodeId without_parameter(const PickleTree& tree, NodeId node) {
  if (!tree.is_made_by(node, "torch._utils", "_rebuild_parameter")) {
    return node;
  }
  const std::vector<NodeId> arguments = tree.children(tree.children(node)[1]);
  if (arguments.empty()) {
    tree.fail("a parameter without a tensor");
  }
  return arguments[0];
}

struct Storage {
  std::string key;
  io::Dtype dtype = io::Dtype::kUInt8;
  bool is_untyped = false;
  int64_t count = 0;  // elements; bytes where it is untyped
};

// ("storage", torch.FloatStorage, "0", "cpu", 6)
Storage read_storage(const PickleTree& tree, NodeId node) {
  if (tree.kind(node) != PickleKind::kPersistent) {
    tree.fail("a tensor without a storage");
  }
  const NodeId id = tree.children(node)[0];
  const std::vector<NodeId> parts = tree.kind(id) == PickleKind::kTuple
                                        ? tree.children(id)
                                        : std::vector<NodeId>{};
  if (parts.size() != 5 || tree.kind(parts[0]) != PickleKind::kString ||
      tree.text(parts[0]) != "storage" ||
      tree.kind(parts[1]) != PickleKind::kGlobal ||
      tree.kind(parts[2]) != PickleKind::kString ||
      tree.kind(parts[4]) != PickleKind::kInteger) {
    tree.fail("a storage is described in another form");
  }
  Storage storage;
  storage.key = tree.text(parts[2]);
  storage.count = tree.integer(parts[4]);
  storage.is_untyped =
      tree.is_global(parts[1], "torch.storage", "UntypedStorage");
  const std::vector<NodeId> type = tree.children(parts[1]);
  const auto dtype = io::find_storage_dtype(tree.text(type[1]));
  if (!storage.is_untyped && (!dtype || tree.text(type[0]) != "torch")) {
    io::throw_unsupported(
        tree.path(),
        "a storage of type " + tree.describe(parts[1]) + " is not read");
  }
  storage.dtype = dtype.value_or(io::Dtype::kUInt8);
  return storage;
}

io::Dtype dtype_of_global(const PickleTree& tree, NodeId node) {
  if (tree.kind(node) == PickleKind::kGlobal) {
    const std::vector<NodeId> parts = tree.children(node);
    const auto dtype = io::find_dtype(tree.text(parts[1]));
    if (dtype && tree.text(parts[0]) == "torch") {
      return *dtype;
    }
  }
  io::throw_unsupported(
      tree.path(), "a tensor of dtype " + tree.describe(node) + " is not read");
}

// A lazily conjugated tensor has {"conj": True} behind the usual arguments.
void refuse_flags(
    const PickleTree& tree, const std::vector<NodeId>& arguments,
    size_t usual) {
  for (size_t i = usual; i < arguments.size(); ++i) {
    const bool is_empty = tree.kind(arguments[i]) == PickleKind::kNone ||
                          (tree.kind(arguments[i]) == PickleKind::kDict &&
                           tree.children(arguments[i]).empty());
    if (!is_empty) {
      io::throw_unsupported(
          tree.path(),
          "a tensor with flags (conjugated, negative) is not "
          "read; save a copy of it");
    }
  }
}

// _rebuild_tensor_v2(storage, offset, size, stride, requires_grad, hooks), and
// _v3, which has the dtype behind them.
TensorItem read_tensor(const PickleTree& tree, Storage* storage) {
  const NodeId node = without_parameter(tree, tree.root());
  const bool is_v3 =
      tree.is_made_by(node, "torch._utils", "_rebuild_tensor_v3");
  if (!is_v3 && !tree.is_made_by(node, "torch._utils", "_rebuild_tensor_v2")) {
    io::throw_unsupported(
        tree.path(),
        "a tensor made by " + tree.describe(node) + " is not read");
  }
  const std::vector<NodeId> arguments = tree.children(tree.children(node)[1]);
  const size_t usual = is_v3 ? 7 : 6;
  if (arguments.size() < usual ||
      tree.kind(arguments[1]) != PickleKind::kInteger ||
      tree.integer(arguments[1]) < 0) {
    tree.fail("a tensor is described in another form");
  }
  refuse_flags(tree, arguments, usual);
  *storage = read_storage(tree, arguments[0]);
  TensorItem item;
  item.first_element = static_cast<uint64_t>(tree.integer(arguments[1]));
  item.sizes = integers_of(tree, arguments[2]);
  item.strides = integers_of(tree, arguments[3]);
  item.dtype = is_v3 ? dtype_of_global(tree, arguments[6]) : storage->dtype;
  if (is_v3 != storage->is_untyped) {
    tree.fail("a storage has a type, and the tensor another one");
  }
  return item;
}

}  // namespace

TensorItem read_tensor_item(const StoredZip& zip) {
  const std::string root = root_of(zip);
  const std::string pickle = read_pickle(zip, root);
  const PickleTree tree(zip.source().path(), pickle);
  Storage storage;
  TensorItem item = read_tensor(tree, &storage);
  item.storage = require(zip, root + "/data/" + storage.key);
  int64_t bytes = 0;
  if (storage.count < 0 ||
      __builtin_mul_overflow(
          storage.count, storage.is_untyped ? 1 : io::element_bytes(item.dtype),
          &bytes) ||
      static_cast<uint64_t>(bytes) != item.storage.bytes) {
    tree.fail(
        "a storage of " + std::to_string(storage.count) +
        (storage.is_untyped ? " bytes" : " elements") + " has a record of " +
        std::to_string(item.storage.bytes) + " bytes");
  }
  return item;
}

io::Value read_value_item(const StoredZip& zip) {
  const std::string pickle = read_pickle(zip, root_of(zip));
  const PickleTree tree(zip.source().path(), pickle);
  return value_of(tree, tree.root());
}

ZipLayout make_tensor_item(io::Dtype dtype, const std::vector<int64_t>& sizes) {
  const io::DtypeInfo& info = info_of(dtype);
  const bool is_v3 = info.storage.empty();
  const int64_t bytes = *io::byte_count(sizes, dtype);
  PickleWriter out;
  out.global(
      "torch._utils", is_v3 ? "_rebuild_tensor_v3" : "_rebuild_tensor_v2");
  out.begin_tuple().begin_tuple().string("storage");
  if (is_v3) {
    out.global("torch.storage", "UntypedStorage");
  } else {
    out.global("torch", info.storage);
  }
  out.string("0").string("cpu").integer(is_v3 ? bytes : bytes / info.bytes);
  out.end_tuple().persistent().integer(0);
  out.integer_tuple(sizes).integer_tuple(row_major_strides(sizes));
  out.boolean(false).global("collections", "OrderedDict");
  out.empty_tuple().reduce();
  if (is_v3) {
    out.global("torch", info.name);
  }
  out.end_tuple().reduce();
  ZipLayout zip;
  zip.add("archive/data.pkl", out.take());
  zip.add("archive/byteorder", "little");
  zip.add("archive/version", "3\n");
  zip.add_payload("archive/data/0", static_cast<uint64_t>(bytes));
  return zip;
}

ZipLayout make_value_item(const io::Value& value) {
  ZipLayout zip;
  zip.add("archive/data.pkl", PickleWriter().value(value).take());
  zip.add("archive/byteorder", "little");
  zip.add("archive/version", "3\n");
  return zip;
}

}  // namespace tessera::detail::inline io_layer
