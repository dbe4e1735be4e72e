#include <checkpoint/matching.h>

#include <algorithm>
#include <map>
#include <set>
#include <sstream>

#include <ATen/MemoryOverlap.h>
#include <c10/util/Exception.h>
#include <checkpoint/dtype.h>
#include <checkpoint/held_boxes.h>
#include <checkpoint/name_globs.h>
#include <checkpoint/tensor_memory.h>
#include <tensor/impl/sharded_impl.h>
#include <tessera/tensor/dtensor.h>

namespace tessera::detail::inline checkpoint_layer {

using checkpoint::LoadOptions;
using checkpoint::StateDict;
using checkpoint::StateValue;
using Kind = StateValue::Kind;

namespace {

std::string list_names(std::vector<std::string> names) {
  std::sort(names.begin(), names.end());
  std::ostringstream out;
  for (size_t i = 0; i < names.size(); ++i) {
    if (i == 10) {
      out << ", ... (" << names.size() << " in all)";
      break;
    }
    out << (i == 0 ? "" : ", ") << "'" << names[i] << "'";
  }
  return out.str();
}

std::string names_of(const io::Reader& reader) {
  std::vector<std::string> names;
  for (const io::Entry& entry : reader.entries()) {
    names.push_back(entry.name);
  }
  return names.empty() ? "none" : list_names(std::move(names));
}

// Which leaf takes which entry; throws where names, kinds, shapes or dtypes do
// not fit.
class Matching {
 public:
  Matching(
      const std::string& call, const io::Reader& reader,
      const LoadOptions& options)
      : call_(call), reader_(reader), options_(options) {}

  std::vector<Match> run(StateDict& state) {
    std::vector<Leaf> leaves = leaves_of(call_, state);
    std::erase_if(leaves, [&](const Leaf& leaf) {
      return !is_asked_for(options_, leaf.name);
    });
    for (const Leaf& leaf : leaves) {
      if (const io::Entry* entry = reader_.find(leaf.name)) {
        check(leaf, *entry);
        matches_.push_back({leaf, entry});
        if (const void* group = leaf.value->absent_group()) {
          ++groups_[group];
        }
      }
    }
    if (options_.strict) {
      check_globs(leaves);
      check_names(leaves);
    }
    return std::move(matches_);
  }

 private:
  // Two names of one memory are tied weights, of which Hugging Face stores one.
  bool has_another_name(const Leaf& leaf) {
    if (filled_.empty()) {
      for (const Match& match : matches_) {
        filled_.insert(memory_of(*match.leaf.value));
      }
    }
    const TensorMemory memory = memory_of(*leaf.value);
    return memory != TensorMemory() && filled_.count(memory) != 0;
  }

  // Loading nothing is hardly meant.
  void check_globs(const std::vector<Leaf>& leaves) const {
    const bool names_some =
        !leaves.empty() ||
        std::any_of(
            reader_.entries().begin(), reader_.entries().end(),
            [&](const io::Entry& e) { return is_asked_for(options_, e.name); });
    TORCH_CHECK_VALUE(
        options_.only.empty() || names_some, call_,
        ": no name matches what `only` asks for, ", list_names(options_.only),
        "; the checkpoint has ", names_of(reader_));
  }

  void check_names(const std::vector<Leaf>& leaves) {
    std::vector<std::string> missing, unexpected, known;
    for (const Leaf& leaf : leaves) {
      known.push_back(leaf.name);
      const void* group = leaf.value->absent_group();
      if (reader_.find(leaf.name) == nullptr &&
          (group == nullptr || groups_.count(group) != 0) &&
          !has_another_name(leaf)) {
        missing.push_back(leaf.name);
      }
    }
    std::sort(known.begin(), known.end());
    for (const io::Entry& entry : reader_.entries()) {
      if (is_asked_for(options_, entry.name) &&
          !std::binary_search(known.begin(), known.end(), entry.name)) {
        unexpected.push_back(entry.name);
      }
    }
    TORCH_CHECK_VALUE(
        missing.empty() && unexpected.empty(), call_, ": names do not match; ",
        missing.empty() ? "" : "the checkpoint lacks " + list_names(missing),
        missing.empty() || unexpected.empty() ? "" : "; ",
        unexpected.empty() ? "" : "the dict lacks " + list_names(unexpected),
        "; pass strict = false to load what both have, or name it with `only`");
  }

  void check(const Leaf& leaf, const io::Entry& entry) const {
    const std::string what = call_ + ": '" + leaf.name + "'";
    if (!leaf.is_tensor()) {
      return check_value(what, *leaf.value, entry);
    }
    const TensorMeta meta = tensor_meta(what, *leaf.value);
    TORCH_CHECK_NOT_IMPLEMENTED(
        leaf.value->kind() != Kind::kTensor ||
            !is_dtensor(leaf.value->to_tensor()) ||
            meta_ready(leaf.value->to_tensor()).copy == nullptr,
        what, " is a view into a copy of another tensor's shards, ", meta.text,
        "; load the tensor that it is a view of");
    TORCH_CHECK_TYPE(
        entry.is_tensor(), what, " is ", meta.text,
        ", and the checkpoint has a value that is no tensor");
    TORCH_CHECK_VALUE(
        meta.shape == entry.shape, what, " has the shape ",
        io::print(meta.shape), ", and the checkpoint ", io::print(entry.shape),
        "; the shapes must be equal");
    const c10::ScalarType stored = from_io(*entry.dtype);
    TORCH_CHECK_TYPE(
        options_.convert_dtype || meta.dtype == stored, what, " is ",
        dtype_name(meta.dtype), ", and the checkpoint has ", dtype_name(stored),
        "; pass convert_dtype = true to convert");
    check_memory(what, leaf);
  }

  // Elements that lie in one place can hold one value of the checkpoint.
  static void check_memory(const std::string& what, const Leaf& leaf) {
    for (const HeldBox& held : held_boxes(*leaf.value)) {
      TORCH_CHECK_VALUE(
          at::has_internal_overlap(held.view) != at::MemOverlap::Yes, what,
          ": several elements of the tensor are one place in memory, as after "
          "expand(); load into a tensor of its own memory and copy");
    }
  }

  static void check_value(
      const std::string& what, const StateValue& value,
      const io::Entry& entry) {
    const bool is_number = value.kind() == Kind::kNone ||
                           value.kind() == Kind::kInteger ||
                           value.kind() == Kind::kFloat;
    TORCH_CHECK_TYPE(
        !entry.is_tensor() ||
            (is_number && io::element_count(entry.shape) == 1),
        what, " is ", checkpoint::describe(value.kind()),
        ", and the checkpoint has a tensor of shape ", io::print(entry.shape),
        "; put a tensor into the dict");
  }

  const std::string& call_;
  const io::Reader& reader_;
  const LoadOptions& options_;
  std::vector<Match> matches_;
  std::map<const void*, int> groups_;  // of absent leaves that were found
  std::set<TensorMemory> filled_;      // where a name is missing
};

}  // namespace

bool is_asked_for(const LoadOptions& options, const std::string& name) {
  return options.only.empty() || matches_any(options.only, name);
}

std::vector<Match> match_leaves(
    const std::string& call, const io::Reader& reader,
    const LoadOptions& options, StateDict& state) {
  return Matching(call, reader, options).run(state);
}

}  // namespace tessera::detail::inline checkpoint_layer
