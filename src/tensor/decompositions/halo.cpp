#include <tensor/decompositions/halo.h>

#include <algorithm>
#include <optional>

#include <ATen/ops/empty.h>
#include <c10/util/accumulate.h>
#include <tensor/decompositions/group_coordinates.h>

namespace tessera::detail::inline tensor_layer {

namespace {

// The one run of a dim that a rank holds.
Run run_at(
    const Layout& layout, int64_t dim, const std::vector<int64_t>& coordinate) {
  const Runs runs = layout.runs(dim, coordinate);
  return runs.empty() ? Run{0, 0} : runs[0];
}

Run clipped(const Run& run, int64_t size) {
  const int64_t begin = std::clamp<int64_t>(run.begin, 0, size);
  return {begin, std::clamp<int64_t>(run.end, begin, size)};
}

void append(Box& box, const Run& run) {
  box.offsets.push_back(run.begin);
  box.sizes.push_back(run.length());
}

int64_t shared_numel(const Box& a, const Box& b) {
  const auto shared = intersect(a, b);
  return shared ? shared->numel() : 0;
}

// The part of a tensor, whose first element has index `begin`, in a box.
at::Tensor part_at(
    at::Tensor t, const std::vector<int64_t>& begin, const Box& box) {
  for (size_t d = 0; d < begin.size(); ++d) {
    if (t.size(static_cast<int64_t>(d)) != box.sizes[d]) {
      t = t.narrow(
          static_cast<int64_t>(d), box.offsets[d] - begin[d], box.sizes[d]);
    }
  }
  return t;
}

using OptionalBoxes = std::vector<std::optional<Box>>;

// Sends the boxes `sent`, per rank, of a tensor that begins at `begin`, and
// returns the boxes `received`; this rank's own are left out.
std::vector<at::Tensor> exchange(
    const at::Tensor& t, const std::vector<int64_t>& begin,
    const OptionalBoxes& sent, const OptionalBoxes& received,
    const Communicator& group) {
  const auto counts = [](const OptionalBoxes& boxes) {
    std::vector<int64_t> numels;
    for (const auto& box : boxes) {
      numels.push_back(box ? box->numel() : 0);
    }
    return numels;
  };
  const std::vector<int64_t> input_counts = counts(sent);
  const std::vector<int64_t> output_counts = counts(received);
  const at::Tensor input =
      at::empty({c10::sum_integers(input_counts)}, t.options());
  const at::Tensor output =
      at::empty({c10::sum_integers(output_counts)}, t.options());
  int64_t next = 0;
  const auto part = [&](const at::Tensor& flat, const Box& box) {
    next += box.numel();
    return flat.narrow(0, next - box.numel(), box.numel()).view(box.sizes);
  };
  for (const auto& box : sent) {
    if (box) {
      part(input, *box).copy_(part_at(t, begin, *box));
    }
  }
  group.all_to_all_v(output, input, output_counts, input_counts);
  next = 0;
  std::vector<at::Tensor> parts;
  for (const auto& box : received) {
    parts.push_back(box ? part(output, *box) : at::Tensor());
  }
  return parts;
}

}  // namespace

Halo::Halo(
    const Layout& operand, const Layout& result,
    const std::vector<int64_t>& over, const std::vector<int64_t>& coordinate,
    const ReadBy& read_by) {
  const MeshShape& mesh = operand.mesh();
  const auto ndim = static_cast<int64_t>(operand.shape().size());
  std::vector<bool> exchanged(static_cast<size_t>(ndim), false);
  for (const int64_t m : over) {
    const Placement& p = operand.placements()[static_cast<size_t>(m)];
    exchanged[static_cast<size_t>(p.dim())] = true;
  }
  const std::vector<int64_t> local = operand.local_shape(coordinate);
  for (const std::vector<int64_t>& at :
       group_coordinates(mesh, over, coordinate)) {
    const bool is_mine = at == coordinate;
    me_ = is_mine ? boxes_.size() : me_;
    Boxes boxes;
    for (int64_t d = 0; d < ndim; ++d) {
      const auto i = static_cast<size_t>(d);
      if (!exchanged[i]) {  // all ranks of the group hold the same of it
        append(boxes.held, {0, local[i]});
        append(boxes.read, {0, local[i]});
        if (is_mine) {
          begin_.push_back(0);
          padded_.push_back(local[i]);
        }
        continue;
      }
      const Run results = run_at(result, d, at);
      const Run read = results.length() == 0 ? Run{0, 0} : read_by(d, results);
      append(boxes.held, run_at(operand, d, at));
      append(boxes.read, clipped(read, operand.shape()[i]));
      if (is_mine) {
        begin_.push_back(read.begin);
        padded_.push_back(read.length());
      }
    }
    boxes_.push_back(std::move(boxes));
  }
}

bool Halo::communicates() const {
  return std::any_of(boxes_.begin(), boxes_.end(), [](const Boxes& boxes) {
    return shared_numel(boxes.held, boxes.read) < boxes.read.numel();
  });
}

int64_t Halo::elements_moved() const {
  int64_t sent = 0;
  int64_t received = 0;
  for (size_t r = 0; r < boxes_.size(); ++r) {
    if (r != me_) {
      sent += shared_numel(mine().held, boxes_[r].read);
      received += shared_numel(boxes_[r].held, mine().read);
    }
  }
  return std::max(sent, received);
}

at::Tensor Halo::gather(
    const at::Tensor& shard, const Communicator& group,
    const at::Scalar& fill) const {
  const auto own = intersect(mine().held, mine().read);
  const bool moves = communicates();
  if (!moves && own && padded_ == own->sizes) {
    return part_at(shard, mine().held.offsets, *own);
  }
  OptionalBoxes sent, received;
  for (size_t r = 0; r < boxes_.size(); ++r) {
    const bool other = r != me_;
    sent.push_back(
        other ? intersect(mine().held, boxes_[r].read) : std::nullopt);
    received.push_back(
        other ? intersect(boxes_[r].held, mine().read) : std::nullopt);
  }
  const bool is_padded = padded_ != mine().read.sizes;
  const at::Tensor padded =
      at::empty(padded_, shard.options(), shard.suggest_memory_format());
  if (is_padded) {
    padded.fill_(fill);
  }
  if (own) {
    part_at(padded, begin_, *own)
        .copy_(part_at(shard, mine().held.offsets, *own));
  }
  if (moves) {
    const std::vector<at::Tensor> parts =
        exchange(shard, mine().held.offsets, sent, received, group);
    for (size_t r = 0; r < parts.size(); ++r) {
      if (parts[r].defined()) {
        part_at(padded, begin_, *received[r]).copy_(parts[r]);
      }
    }
  }
  return padded;
}

at::Tensor Halo::scatter_sum(
    const at::Tensor& padded, const Communicator& group) const {
  const auto own = intersect(mine().held, mine().read);
  const bool moves = communicates();
  if (!moves && own && mine().held.sizes == own->sizes) {
    return part_at(padded, begin_, *own);
  }
  const at::Tensor sum = at::empty(
      mine().held.sizes, padded.options(), padded.suggest_memory_format());
  sum.zero_();
  const std::vector<int64_t>& begin = mine().held.offsets;
  if (own) {
    part_at(sum, begin, *own).copy_(part_at(padded, begin_, *own));
  }
  if (!moves) {
    return sum;
  }
  OptionalBoxes sent, received;
  for (size_t r = 0; r < boxes_.size(); ++r) {
    const bool other = r != me_;
    sent.push_back(
        other ? intersect(boxes_[r].held, mine().read) : std::nullopt);
    received.push_back(
        other ? intersect(mine().held, boxes_[r].read) : std::nullopt);
  }
  const std::vector<at::Tensor> parts =
      exchange(padded, begin_, sent, received, group);
  for (size_t r = 0; r < parts.size(); ++r) {
    if (parts[r].defined()) {
      part_at(sum, begin, *received[r]).add_(parts[r]);
    }
  }
  return sum;
}

}  // namespace tessera::detail::inline tensor_layer
