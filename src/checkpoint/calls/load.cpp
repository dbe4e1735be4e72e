// Loading: every rank opens the checkpoint, finds what its boxes need, and
// reads it into its own memory. Ranks agree before anything is written, and at
// the end.
#include <memory>
#include <string>
#include <vector>

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
#include <checkpoint/matching.h>
#include <io/open_checkpoint.h>
#include <tessera/checkpoint/checkpoint.h>
#include <tessera/comm/world.h>

namespace tessera::detail::inline checkpoint_layer {

using checkpoint::StateValue;
using Kind = StateValue::Kind;

namespace {

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
    with_torch_errors(call, [&] {
      opened.open(state, *reader, [&](const std::string& name) {
        return is_asked_for(options, name);
      });
    });
    matches = match_leaves(call, *reader, options, state);
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
