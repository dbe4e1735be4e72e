#include <checkpoint/calls/save_plan.h>

#include <sstream>

#include <checkpoint/dtype.h>
#include <checkpoint/held_boxes.h>
#include <checkpoint/leaves.h>
#include <io/checksum/xxh3.h>

namespace tessera::detail::inline checkpoint_layer {

using checkpoint::StateDict;

namespace {

std::string hash_of(const at::Tensor& t) {
  Xxh3 hash;
  for_each_portion(
      t, [&](const void* bytes, size_t size) { hash.update(bytes, size); });
  return print_hex64(hash.value());
}

class Planning {
 public:
  Planning(const std::string& call, io::Format format, bool is_first)
      : call_(call), format_(format), is_first_(is_first) {}

  SavePlan run(StateDict& state) {
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
  SavePlan plan_;
};

}  // namespace

int64_t SavePlan::bytes() const {
  int64_t bytes = 0;
  for (const at::Tensor& view : views) {
    bytes += view.defined() ? static_cast<int64_t>(view.nbytes()) : 0;
  }
  return bytes;
}

SavePlan make_save_plan(
    const std::string& call, io::Format format, bool is_first_rank,
    StateDict& state) {
  return Planning(call, format, is_first_rank).run(state);
}

}  // namespace tessera::detail::inline checkpoint_layer
