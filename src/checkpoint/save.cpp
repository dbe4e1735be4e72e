// Saving: ranks agree on what is saved, the first one begins, each writes its
// boxes, the first one commits. What fails on one rank is thrown on all.
#include <checkpoint/save.h>

#include <algorithm>
#include <memory>
#include <sstream>

#include <checkpoint/collective.h>
#include <checkpoint/dtype.h>
#include <checkpoint/errors.h>
#include <checkpoint/held_boxes.h>
#include <checkpoint/leaves.h>
#include <io/checksum/xxh3.h>
#include <io/save.h>
#include <tessera/checkpoint/checkpoint.h>
#include <tessera/comm/world.h>

namespace tessera::detail::inline checkpoint_layer {

using checkpoint::StateDict;

namespace {

// Memory that a copy of elements into row-major order takes at a time.
constexpr int64_t kPortionBytes = int64_t{16} << 20;

// Calls f(pointer, bytes) for portions of a tensor's elements, row-major.
template <class F>
void for_each_portion(const at::Tensor& t, const F& f) {
  const auto give = [&](const at::Tensor& part) {
    const at::Tensor plain =
        part.resolve_conj().resolve_neg().cpu().contiguous();
    f(plain.const_data_ptr(), plain.nbytes());
  };
  if (t.dim() == 0 || t.size(0) == 1 ||
      static_cast<int64_t>(t.nbytes()) <= kPortionBytes ||
      (t.is_cpu() && t.is_contiguous() && !t.is_conj() && !t.is_neg())) {
    return give(t);
  }
  const int64_t row_bytes = static_cast<int64_t>(t.nbytes()) / t.size(0);
  const int64_t rows = std::max<int64_t>(1, kPortionBytes / row_bytes);
  for (int64_t begin = 0; begin < t.size(0); begin += rows) {
    give(t.narrow(0, begin, std::min(rows, t.size(0) - begin)));
  }
}

std::string hash_of(const at::Tensor& t) {
  Xxh3 hash;
  for_each_portion(
      t, [&](const void* bytes, size_t size) { hash.update(bytes, size); });
  return print_hex64(hash.value());
}

// What this rank saves.
struct Plan {
  io::RankContents contents;
  std::vector<at::Tensor> views;  // of contents.chunks; undefined: no elements
  /// A line for each name that all ranks must have alike.
  std::string shared;
};

class Planning {
 public:
  Planning(const std::string& call, io::Format format, bool is_first)
      : call_(call), format_(format), is_first_(is_first) {}

  Plan run(StateDict& state) {
    int64_t turn = 0;
    for (const Leaf& leaf : leaves_of(call_, state)) {
      if (leaf.value->absent_group() != nullptr) {
        continue;
      }
      if (leaf.is_tensor()) {
        add_tensor(leaf, turn++);
      } else {
        add_value(leaf);
      }
    }
    plan_.shared = shared_.str();
    return std::move(plan_);
  }

 private:
  void add_tensor(const Leaf& leaf, int64_t turn) {
    const std::string what = call_ + ": '" + leaf.name + "'";
    const TensorMeta meta = tensor_meta(what, *leaf.value);
    const io::Dtype dtype = to_io(what, meta.dtype);
    if (meta.is_plain) {
      shared_ << "'" << leaf.name << "' " << meta.text << " with hash "
              << hash_of(leaf.value->to_tensor().detach()) << "\n";
    }
    // Files of Hugging Face hold tensors in one piece.
    const bool splits = format_ != io::Format::kSafetensors;
    for (HeldBox& box : written_boxes(*leaf.value, {splits, turn})) {
      plan_.contents.chunks.push_back(
          {leaf.name, leaf.path, dtype, meta.shape, std::move(box.box)});
      plan_.views.push_back(std::move(box.view));
    }
  }

  void add_value(const Leaf& leaf) {
    const io::Value value = to_io(*leaf.value);
    shared_ << "'" << leaf.name << "' " << text_of(value) << "\n";
    if (is_first_) {
      plan_.contents.values.push_back({leaf.name, leaf.path, value});
    }
  }

  const std::string& call_;
  io::Format format_;
  bool is_first_;
  std::ostringstream shared_;
  Plan plan_;
};

std::string write_plan(const std::string& ticket, int64_t rank, Plan plan) {
  const std::unique_ptr<io::RankWriter> writer =
      io::open_rank_writer(ticket, rank, std::move(plan.contents));
  for (size_t i = 0; i < plan.views.size(); ++i) {
    if (plan.views[i].defined()) {
      for_each_portion(plan.views[i], [&](const void* bytes, size_t size) {
        writer->append(i, bytes, size);
      });
    }
  }
  return writer->finish();
}

}  // namespace

io::Format to_io(checkpoint::Format format) {
  switch (format) {
    case checkpoint::Format::kTessera:
      return io::Format::kTessera;
    case checkpoint::Format::kDcp:
      return io::Format::kDcp;
    case checkpoint::Format::kSafetensors:
      return io::Format::kSafetensors;
  }
  TORCH_INTERNAL_ASSERT(false);
}

}  // namespace tessera::detail::inline checkpoint_layer

namespace tessera::checkpoint {

using namespace detail::checkpoint_layer;

void save(
    const StateDict& state, const std::string& path,
    const SaveOptions& options) {
  const World world = init();
  const Communicator group = world.communicator();
  const std::string call = "checkpoint::save(\"" + path + "\")";
  const bool is_first = world.rank() == 0;
  const io::Format format = to_io(options.format);

  StateDict dict = state;  // a list of handles; leaves point into it
  Plan plan;
  detail::Agreement planning = begin_checkpoint_agreement(call, group);
  planning.check([&] { plan = Planning(call, format, is_first).run(dict); });
  planning.equal("path", path);
  planning.equal("format", to_string(options.format));
  planning.equal("overwrite", options.overwrite ? "true" : "false");
  planning.reach();
  require_equal_lines(
      call, group, "plain tensors and values, of which one copy is kept,",
      plan.shared);

  std::unique_ptr<io::Save> saving;
  detail::Agreement beginning = begin_checkpoint_agreement(call, group);
  beginning.check([&] {
    if (is_first) {
      saving = with_torch_errors(call, [&] {
        return std::make_unique<io::Save>(
            path, io::SaveOptions{
                      .format = format,
                      .ranks = world.size(),
                      .overwrite = options.overwrite});
      });
    }
  });
  const std::string ticket =
      beginning.collect(is_first && saving ? saving->ticket() : "").front();

  std::string records;
  detail::Agreement writing = begin_checkpoint_agreement(call, group);
  writing.check([&] {
    records = with_torch_errors(call, [&] {
      return write_plan(ticket, world.rank(), std::move(plan));
    });
  });
  writing.reach();
  const std::vector<std::string> all = gather_texts(group, records);

  detail::Agreement committing = begin_checkpoint_agreement(call, group);
  committing.check([&] {
    if (is_first) {
      const std::vector<std::string> leftovers =
          with_torch_errors(call, [&] { return saving->commit(all); });
      for (const std::string& leftover : leftovers) {
        TORCH_WARN(call, ": ", leftover);
      }
    }
  });
  committing.reach();
}

}  // namespace tessera::checkpoint
