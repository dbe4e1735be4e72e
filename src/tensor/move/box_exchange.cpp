#include <tensor/move/box_exchange.h>

#include <unordered_set>

#include <ATen/ops/empty.h>
#include <c10/core/GradMode.h>
#include <c10/core/impl/VirtualGuardImpl.h>
#include <c10/util/accumulate.h>
#include <comm/call/call.h>
#include <comm/direct.h>
#include <plan/transfer/transfer_plan.h>
#include <tensor/move/cpu_block_cache.h>
#include <tensor/move/step_label.h>
#include <tessera/layout/notation.h>
#include <tessera/plan/exchange.h>

namespace tessera::detail::inline tensor_layer {

namespace {

// "cuda" is the current device of that type; CPUs have no number.
c10::Device device_of(const std::string& text) {
  const c10::Device device(text);
  if (device.is_cpu()) {
    return c10::Device(c10::kCPU);
  }
  return device.has_index()
             ? device
             : c10::impl::VirtualGuardImpl(device.type()).getDevice();
}

c10::Device default_device(c10::DeviceType type) {
  return device_of(c10::DeviceTypeName(type, /*lower_case=*/true));
}

// Where this rank's data travels. The type follows from the layouts alone, so
// that ranks agree; the number is that of a tile of this rank.
c10::Device travel_device(
    const BoxLayout& source, const BoxLayout& target, int64_t rank) {
  std::optional<c10::DeviceType> type;
  std::optional<c10::Device> own;
  for (const BoxLayout* layout : {&source, &target}) {
    for (const Tile& tile : layout->tiles()) {
      const c10::Device device(tile.device.empty() ? "cpu" : tile.device);
      if (type && *type != device.type()) {
        return c10::Device(c10::kCPU);
      }
      type = device.type();
      if (tile.rank == rank && !own) {
        own = device_of(device.str());
      }
    }
  }
  return own ? *own : default_device(type.value_or(c10::kCPU));
}

std::vector<const Tile*> tiles_of(const BoxLayout& layout, int64_t rank) {
  std::vector<const Tile*> tiles;
  for (const Tile& tile : layout.tiles()) {
    if (tile.rank == rank) {
      tiles.push_back(&tile);
    }
  }
  return tiles;
}

int64_t total_numel(const std::vector<const Tile*>& tiles) {
  int64_t count = 0;
  for (const Tile* tile : tiles) {
    count += tile->box.numel();
  }
  return count;
}

// The tensor of one tile inside a flat buffer.
at::Tensor part_of(const at::Tensor& flat, int64_t begin, const Box& box) {
  return flat.narrow(0, begin, box.numel()).view(box.sizes);
}

// One rank's part in an exchange.
class BoxExchange {
 public:
  BoxExchange(
      const BoxLayout& source, const BoxLayout& target, at::ScalarType dtype,
      const Communicator& group)
      : source_(source),
        target_(target),
        group_(group),
        me_(group.ranks()[static_cast<size_t>(group.rank())]),
        dtype_(dtype),
        options_(at::TensorOptions(dtype).device(
            travel_device(source, target, me_))) {}

  void check(const std::vector<at::Tensor>& held) const {
    TORCH_CHECK_VALUE(
        source_.shape() == target_.shape(), where(),
        ": both tilings must have one shape; got ",
        shape_to_string(source_.shape()), " and ",
        shape_to_string(target_.shape()));
    check_ranks(source_);
    check_ranks(target_);
    const auto tiles = tiles_of(source_, me_);
    TORCH_CHECK_VALUE(
        held.size() == tiles.size(), where(),
        ": there must be one tensor per tile of this rank; got ", held.size(),
        " for ", tiles.size(), " tiles");
    for (size_t i = 0; i < held.size(); ++i) {
      TORCH_CHECK_VALUE(
          held[i].defined() && held[i].sizes() == tiles[i]->box.sizes, where(),
          ": tensor ", i, " must have the sizes of its tile ", tiles[i]->box,
          "; got ",
          held[i].defined() ? shape_to_string(held[i].sizes().vec())
                            : "an undefined tensor");
      TORCH_CHECK_TYPE(
          held[i].scalar_type() == dtype_, where(), ": tensor ", i,
          " must have dtype ", dtype_name(dtype_), "; got ",
          dtype_name(held[i].scalar_type()));
    }
  }

  std::vector<at::Tensor> run(const std::vector<at::Tensor>& held) const {
    const bool local = stays_in_place(source_, target_);
    const bool reads = !local && shares_memory(group_);
    const TransferPlan plan =
        plan_transfer(source_, target_, {group_.ranks(), me_, reads});
    const at::Tensor input = buffer_from(held);
    const auto tiles = tiles_of(target_, me_);
    const at::Tensor output =
        tiles.size() == 1 ? empty_cached(tiles[0]->box.sizes, options_)
                          : empty_cached({total_numel(tiles)}, options_);
    if (!local) {
      const BoxExchangeLabel label(source_, target_);
      reads ? all_to_all_direct(
                  group_, output, input, plan.reads, plan.received, plan.sent)
                  .wait()
            : exchange_buffers(plan, input, output);
    }
    run_copies(plan.stay, input, 0, output, 0);
    return tensors_from(output, tiles);
  }

 private:
  std::string where() const {
    return c10::str(
        "exchange_boxes on ", describe_group(group_.ranks()), ", rank ", me_);
  }

  void check_ranks(const BoxLayout& layout) const {
    const std::unordered_set<int64_t> ranks(
        group_.ranks().begin(), group_.ranks().end());
    for (const Tile& tile : layout.tiles()) {
      TORCH_CHECK_VALUE(
          ranks.contains(tile.rank), where(),
          ": every tile must be of a rank of the group; got ", tile.box,
          " of rank ", tile.rank);
    }
  }

  // One contiguous tensor of all that this rank holds.
  at::Tensor buffer_from(const std::vector<at::Tensor>& held) const {
    if (held.size() == 1) {
      return held[0]
          .to(options_.device())
          .resolve_conj()
          .resolve_neg()
          .contiguous();
    }
    const auto tiles = tiles_of(source_, me_);
    const at::Tensor flat = empty_cached({total_numel(tiles)}, options_);
    int64_t begin = 0;
    for (size_t i = 0; i < held.size(); ++i) {
      part_of(flat, begin, tiles[i]->box).copy_(held[i]);
      begin += held[i].numel();
    }
    return flat;
  }

  void exchange_buffers(
      const TransferPlan& plan, const at::Tensor& input,
      const at::Tensor& output) const {
    const at::Tensor sent =
        empty_cached({c10::sum_integers(plan.sent)}, options_);
    const at::Tensor received =
        empty_cached({c10::sum_integers(plan.received)}, options_);
    run_copies(plan.pack, input, 0, sent, 0);
    group_.all_to_all_v(received, sent, plan.received, plan.sent);
    run_copies(plan.unpack, received, 0, output, 0);
  }

  std::vector<at::Tensor> tensors_from(
      const at::Tensor& output, const std::vector<const Tile*>& tiles) const {
    const auto device = [&](const Tile& tile) {
      return tile.device.empty() ? options_.device() : device_of(tile.device);
    };
    if (tiles.size() == 1) {
      return {output.to(device(*tiles[0]))};
    }
    std::vector<at::Tensor> result;
    int64_t begin = 0;
    for (const Tile* tile : tiles) {
      result.push_back(
          empty_cached(tile->box.sizes, options_.device(device(*tile))));
      const int64_t count = tile->box.numel();
      const StridedCopy run{0, 0, {count}, {1}, {1}};
      run_copies({run}, output, begin, result.back(), 0);
      begin += count;
    }
    return result;
  }

  const BoxLayout& source_;
  const BoxLayout& target_;
  const Communicator& group_;
  const int64_t me_;
  const at::ScalarType dtype_;
  const at::TensorOptions options_;  // of what travels
};

}  // namespace

std::vector<at::Tensor> exchange_boxes(
    const std::vector<at::Tensor>& held, const BoxLayout& source,
    const BoxLayout& target, at::ScalarType dtype, const Communicator& group) {
  const BoxExchange exchange(source, target, dtype, group);
  exchange.check(held);
  if (source == target) {
    return held;
  }
  const c10::AutoGradMode no_grad(false);
  return exchange.run(held);
}

}  // namespace tessera::detail::inline tensor_layer
