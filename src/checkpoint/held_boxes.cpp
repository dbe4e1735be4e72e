#include <checkpoint/held_boxes.h>

#include <algorithm>
#include <sstream>

#include <c10/util/Exception.h>
#include <tessera/comm/world.h>
#include <tessera/tensor/dtensor.h>

namespace tessera::detail::inline checkpoint_layer {

using checkpoint::StateValue;

namespace {

bool is_sharded_tensor(const StateValue& value) {
  return value.kind() == StateValue::Kind::kShardedTensor;
}

std::vector<int64_t> shape_of(const StateValue& value) {
  return is_sharded_tensor(value) ? value.to_sharded_tensor().sizes()
                                  : value.to_tensor().sizes().vec();
}

// Goes through the products of runs: the boxes of a shard in storage order, and
// where each begins in the shard.
class BoxWalk {
 public:
  BoxWalk(const Layout& layout, const std::vector<int64_t>& coordinate) {
    for (size_t d = 0; d < layout.shape().size(); ++d) {
      runs_.push_back(layout.runs(static_cast<int64_t>(d), coordinate));
    }
  }

  void add_views(const at::Tensor& local, std::vector<HeldBox>& boxes) const {
    add(0, local, {}, boxes);
  }

 private:
  void add(
      size_t dim, const at::Tensor& view, const io::Box& box,
      std::vector<HeldBox>& boxes) const {
    if (dim == runs_.size()) {
      boxes.push_back({box, view});
      return;
    }
    int64_t begin = 0;
    for (const Layout::Run& run : runs_[dim]) {
      io::Box below = box;
      below.offsets.push_back(run.begin);
      below.sizes.push_back(run.length());
      if (run.length() > 0) {
        add(dim + 1,
            view.narrow(static_cast<int64_t>(dim), begin, run.length()), below,
            boxes);
      }
      begin += run.length();
    }
  }

  std::vector<Layout::Runs> runs_;
};

// Among how many ranks a box is shared, and which of them this one is.
struct Copies {
  int64_t count = 1;
  int64_t number = 0;
};

Copies copies_of(const StateValue& value) {
  if (is_sharded_tensor(value)) {
    return {};
  }
  const at::Tensor& t = value.to_tensor();
  if (!is_dtensor(t)) {
    const World world = init();
    return {world.size(), world.rank()};
  }
  Copies copies;
  const std::vector<int64_t> coordinate = *device_mesh(t).coordinate();
  for (size_t d = 0; d < coordinate.size(); ++d) {
    if (!placements(t)[d].is_shard()) {
      const int64_t size = device_mesh(t).size(static_cast<int64_t>(d));
      copies.number = copies.number * size + coordinate[d];
      copies.count *= size;
    }
  }
  return copies;
}

// The part of a box that copy `number` of `count` writes: along the first dim
// that is long enough, else along the longest.
HeldBox part_of(const HeldBox& held, const Copies& copies) {
  const std::vector<int64_t>& sizes = held.box.sizes;
  auto dim = std::find_if(sizes.begin(), sizes.end(), [&](int64_t size) {
    return size >= copies.count;
  });
  if (dim == sizes.end()) {
    dim = std::max_element(sizes.begin(), sizes.end());
  }
  const int64_t begin = *dim * copies.number / copies.count;
  const int64_t end = *dim * (copies.number + 1) / copies.count;
  const auto d = static_cast<size_t>(dim - sizes.begin());
  HeldBox part = held;
  part.box.offsets[d] += begin;
  part.box.sizes[d] = end - begin;
  part.view = held.view.narrow(static_cast<int64_t>(d), begin, end - begin);
  return part;
}

bool is_first_rank(const StateValue& value) {
  if (is_sharded_tensor(value) || !is_dtensor(value.to_tensor())) {
    return init().rank() == 0;
  }
  const auto coordinate = device_mesh(value.to_tensor()).coordinate();
  return coordinate && std::all_of(
                           coordinate->begin(), coordinate->end(),
                           [](int64_t c) { return c == 0; });
}

std::string print_plain(const at::Tensor& t) {
  std::ostringstream out;
  out << dtype_name(t.scalar_type()) << "[";
  for (int64_t d = 0; d < t.dim(); ++d) {
    out << (d == 0 ? "" : ", ") << t.size(d);
  }
  out << "]";
  return out.str();
}

}  // namespace

TensorMeta tensor_meta(const std::string& what, const StateValue& value) {
  if (is_sharded_tensor(value)) {
    const auto& t = value.to_sharded_tensor();
    return {t.dtype(), t.sizes(), false, to_string(t)};
  }
  const at::Tensor& t = value.to_tensor();
  TORCH_CHECK_VALUE(
      t.defined(), what, ": the tensor is undefined; leave it out, or fill it");
  TORCH_CHECK_NOT_IMPLEMENTED(
      t.layout() == c10::kStrided && !t.is_quantized() && !t.is_nested(), what,
      ": sparse, quantized and nested tensors are not saved; make it dense");
  TORCH_CHECK_VALUE(
      !t.is_meta(), what,
      ": the tensor is on the device meta, which has no values; move it to "
      "another device, or materialize() its module");
  if (!is_dtensor(t)) {
    return {t.scalar_type(), t.sizes().vec(), true, print_plain(t)};
  }
  const DTensorSpec& its = spec(t);
  TORCH_CHECK_VALUE(
      its.mesh().world() == init(), what, ": ", to_string(its),
      " is on a mesh of another world than this rank's, whose ranks would not "
      "take part; put a RankGuard guard(device_mesh(t).world()) before the "
      "call");
  TORCH_CHECK_VALUE(
      !its.layout().has_partial(), what, ": ", to_string(its),
      " holds partial values, which mean nothing without each other; "
      "redistribute() it to Replicate() or Shard() first");
  return {its.dtype(), its.shape(), false, to_string(its)};
}

std::vector<HeldBox> held_boxes(const StateValue& value) {
  std::vector<HeldBox> boxes;
  if (is_sharded_tensor(value)) {
    for (const auto& shard : value.to_sharded_tensor().local_shards()) {
      if (shard.tensor.numel() > 0) {
        boxes.push_back(
            {{shard.metadata.shard_offsets, shard.metadata.shard_sizes},
             shard.tensor.detach()});
      }
    }
    return boxes;
  }
  const at::Tensor t = value.to_tensor().detach();
  if (!is_dtensor(t)) {
    if (t.numel() > 0) {
      boxes.push_back({io::box_of(t.sizes().vec()), t});
    }
    return boxes;
  }
  if (spec(t).has_shard() && t.numel() > 0) {
    BoxWalk(spec(t).layout(), *device_mesh(t).coordinate())
        .add_views(to_local(t), boxes);
  }
  return boxes;
}

std::vector<HeldBox> written_boxes(
    const StateValue& value, const Sharing& sharing) {
  const std::vector<int64_t> shape = shape_of(value);
  if (std::find(shape.begin(), shape.end(), 0) != shape.end()) {
    return is_first_rank(value)
               ? std::vector<HeldBox>{{io::box_of(shape), at::Tensor()}}
               : std::vector<HeldBox>();
  }
  std::vector<HeldBox> written;
  std::vector<HeldBox> held = held_boxes(value);
  if (held.empty()) {
    return written;
  }
  const Copies copies = copies_of(value);
  for (HeldBox& box : held) {
    if (copies.count == 1) {
      written.push_back(std::move(box));
    } else if (
        sharing.splits &&
        static_cast<int64_t>(box.view.nbytes()) >= kSplitBytes) {
      HeldBox part = part_of(box, copies);
      if (part.view.numel() > 0) {
        written.push_back(std::move(part));
      }
    } else if (sharing.turn % copies.count == copies.number) {
      written.push_back(std::move(box));
    }
  }
  return written;
}

}  // namespace tessera::detail::inline checkpoint_layer
