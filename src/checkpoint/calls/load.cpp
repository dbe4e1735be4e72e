// Loading: every rank opens the checkpoint, finds what its boxes need, and
// reads it into its own memory. Ranks agree before anything is written, and at
// the end.
#include <algorithm>
#include <map>
#include <memory>
#include <set>
#include <sstream>

#include <ATen/core/Tensor.h>
#include <ATen/ops/empty.h>
#include <c10/core/GradMode.h>
#include <checkpoint/calls/async_saves.h>
#include <checkpoint/calls/save.h>
#include <checkpoint/dtype.h>
#include <checkpoint/entries.h>
#include <checkpoint/errors.h>
#include <checkpoint/held_boxes.h>
#include <checkpoint/leaves.h>
#include <checkpoint/name_globs.h>
#include <checkpoint/tensor_memory.h>
#include <io/open_checkpoint.h>
#include <tensor/impl/sharded_impl.h>
#include <tessera/checkpoint/checkpoint.h>
#include <tessera/comm/world.h>
#include <tessera/tensor/dtensor.h>

namespace tessera::detail::inline checkpoint_layer {

using checkpoint::LoadOptions;
using checkpoint::StateDict;
using checkpoint::StateValue;
using Kind = StateValue::Kind;

namespace {

// A leaf and the entry of the checkpoint that it takes.
struct Match {
  Leaf leaf;
  const io::Entry* entry;
};

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

// Which leaf takes which entry; throws where names, kinds, shapes or dtypes do
// not fit.
class Matching {
 public:
  Matching(
      const std::string& call, const io::Reader& reader,
      const LoadOptions& options)
      : call_(call), reader_(reader), options_(options) {}

  bool is_asked_for(const std::string& name) const {
    return options_.only.empty() || matches_any(options_.only, name);
  }

  std::vector<Match> run(StateDict& state) {
    std::vector<Leaf> leaves = leaves_of(call_, state);
    std::erase_if(
        leaves, [&](const Leaf& leaf) { return !is_asked_for(leaf.name); });
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
      if (is_asked_for(entry.name) &&
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

class Reading {
 public:
  Reading(const std::string& call, const io::Reader& reader)
      : call_(call), reader_(reader) {}

  void read_tensor(const Match& match) const {
    const c10::ScalarType stored = from_io(*match.entry->dtype);
    for (const HeldBox& held : held_boxes(*match.leaf.value)) {
      // Memory that is read as it lies, and neither conjugated nor negated.
      if (held.view.is_cpu() && held.view.scalar_type() == stored &&
          !held.view.is_conj() && !held.view.is_neg()) {
        read_into(match, held.box, held.view);
      } else {
        const at::Tensor staged = at::empty(
            held.box.sizes, at::TensorOptions().dtype(stored).pinned_memory(
                                held.view.is_cuda()));
        read_into(match, held.box, staged);
        held.view.copy_(staged);
      }
    }
    if (match.leaf.value->kind() == Kind::kTensor) {
      const at::Tensor& t = match.leaf.value->to_tensor();
      if (!t.is_inference()) {
        t.unsafeGetTensorImpl()->bump_version();
      }
    }
  }

  /// Returns what a leaf that is no tensor becomes.
  StateValue read_value(const Match& match) const {
    const std::string what = call_ + ": '" + match.leaf.name + "'";
    const Kind wanted = match.leaf.value->kind();
    StateValue read = match.entry->is_tensor()
                          ? read_number(*match.entry, wanted)
                          : from_io(reader_.read_value(*match.entry));
    if (wanted == Kind::kFloat && read.kind() == Kind::kInteger) {
      read = read.to_double();
    }
    TORCH_CHECK_TYPE(
        wanted == Kind::kNone || read.kind() == wanted, what, " is ",
        checkpoint::describe(wanted), ", and the checkpoint has ",
        checkpoint::describe(read.kind()));
    return read;
  }

 private:
  void read_into(
      const Match& match, const io::Box& box, const at::Tensor& view) const {
    reader_.read(
        *match.entry, box, {view.mutable_data_ptr(), view.strides().vec()});
  }

  // PyTorch keeps counts of steps as tensors of one element.
  StateValue read_number(const io::Entry& entry, Kind wanted) const {
    const at::Tensor one = at::empty(
        entry.shape, at::TensorOptions().dtype(from_io(*entry.dtype)));
    reader_.read(entry, io::box_of(entry.shape), {one.mutable_data_ptr()});
    const double number = one.item().toDouble();
    if (wanted != Kind::kInteger) {
      return number;
    }
    const int64_t whole = one.item().toLong();
    TORCH_CHECK_TYPE(
        static_cast<double>(whole) == number, call_, ": '", entry.name,
        "' is an integer, and the checkpoint has ", number);
    return whole;
  }

  const std::string& call_;
  const io::Reader& reader_;
};

std::string join(const std::vector<std::string>& texts) {
  std::string all;
  for (const std::string& text : texts) {
    all += text + "\n";
  }
  return all;
}

}  // namespace

}  // namespace tessera::detail::inline checkpoint_layer

namespace tessera::checkpoint {

using namespace detail::checkpoint_layer;

void load(
    StateDict& state, const std::string& path, const LoadOptions& options) {
  const World world = init();
  const Communicator group = world.communicator();
  const std::string call = "checkpoint::load(\"" + path + "\")";
  finish_async_save(call, world);
  const c10::InferenceMode no_inference(false);
  const at::NoGradGuard no_grad;

  std::unique_ptr<io::Reader> reader;
  detail::OpenedValues opened;
  std::vector<Match> matches;
  detail::Agreement matching = begin_checkpoint_agreement(call, group);
  matching.check([&] {
    reader = with_torch_errors(call, [&] {
      return io::open_checkpoint(path, {.follow_links = options.follow_links});
    });
    Matching match(call, *reader, options);
    opened.open(state, *reader, [&](const std::string& name) {
      return match.is_asked_for(name);
    });
    matches = match.run(state);
  });
  matching.equal("path", path);
  matching.equal("only", join(options.only));
  matching.equal("follow_links", options.follow_links ? "true" : "false");
  matching.equal("strict", options.strict ? "true" : "false");
  matching.equal("convert_dtype", options.convert_dtype ? "true" : "false");
  matching.reach();

  std::vector<StateValue> values;
  detail::Agreement reading = begin_checkpoint_agreement(call, group);
  reading.check([&] {
    with_torch_errors(call, [&] {
      const Reading read(call, *reader);
      for (const Match& match : matches) {
        if (match.leaf.is_tensor()) {
          read.read_tensor(match);
          values.push_back(*match.leaf.value);
        } else {
          values.push_back(read.read_value(match));
        }
      }
    });
  });
  reading.reach();
  opened.keep();
  for (size_t i = 0; i < matches.size(); ++i) {
    matches[i].leaf.value->receive(std::move(values[i]));
  }
}

}  // namespace tessera::checkpoint
