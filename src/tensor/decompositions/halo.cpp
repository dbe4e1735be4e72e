#include <tensor/decompositions/halo.h>

#include <algorithm>

#include <ATen/ops/constant_pad_nd.h>
#include <ATen/ops/empty.h>
#include <ATen/ops/zeros.h>
#include <c10/util/accumulate.h>

namespace tessera::detail::inline tensor_layer {

namespace {

// The rows that windows read, padding included.
Run read_by(const Run& windows, const Window& w) {
  if (windows.length() == 0) {
    return {0, 0};
  }
  return {
      windows.begin * w.stride - w.padding,
      (windows.end - 1) * w.stride - w.padding + w.dilation * (w.size - 1) + 1};
}

Run clipped(const Run& run, int64_t rows) {
  const int64_t begin = std::clamp<int64_t>(run.begin, 0, rows);
  return {begin, std::clamp<int64_t>(run.end, begin, rows)};
}

Run common(const Run& a, const Run& b) {
  const int64_t begin = std::max(a.begin, b.begin);
  return {begin, std::max(begin, std::min(a.end, b.end))};
}

// Sends rows `sent[r]`, counted from `first`, to rank r, and returns those
// received, in rank order. Rows are along dim 0.
at::Tensor exchange_rows(
    const at::Tensor& rows, int64_t first, const std::vector<Run>& sent,
    const std::vector<int64_t>& received, const Communicator& group) {
  std::vector<int64_t> shape = rows.sizes().vec();
  shape[0] = 1;
  const int64_t row = c10::multiply_integers(shape);
  std::vector<int64_t> input_counts, output_counts;
  int64_t input_rows = 0;
  for (const Run& run : sent) {
    input_counts.push_back(run.length() * row);
    input_rows += run.length();
  }
  shape[0] = 0;
  for (const int64_t length : received) {
    output_counts.push_back(length * row);
    shape[0] += length;
  }
  const at::Tensor output = at::empty(shape, rows.options());
  shape[0] = input_rows;
  const at::Tensor input = at::empty(shape, rows.options());
  int64_t next = 0;
  for (const Run& run : sent) {
    if (run.length() > 0) {
      input.narrow(0, next, run.length())
          .copy_(rows.narrow(0, run.begin - first, run.length()));
      next += run.length();
    }
  }
  group.all_to_all_v(output, input, output_counts, input_counts);
  return output;
}

}  // namespace

Halo::Halo(
    std::vector<Run> held, std::vector<Run> windows, const Window& window,
    int64_t rows, int64_t coordinate)
    : held_(std::move(held)), me_(static_cast<size_t>(coordinate)) {
  for (const Run& run : windows) {
    needed_.push_back(clipped(read_by(run, window), rows));
  }
  const Run read = read_by(windows[me_], window);
  before_ = std::min(wanted().begin, read.end) - read.begin;
  before_ = std::max<int64_t>(before_, 0);
  after_ = read.length() - before_ - wanted().length();
}

bool Halo::communicates() const {
  for (size_t r = 0; r < held_.size(); ++r) {
    if (common(held_[r], needed_[r]).length() < needed_[r].length()) {
      return true;
    }
  }
  return false;
}

int64_t Halo::rows_moved() const {
  int64_t sent = 0;
  int64_t received = 0;
  for (size_t r = 0; r < held_.size(); ++r) {
    if (r != me_) {
      sent += common(mine(), needed_[r]).length();
      received += common(held_[r], wanted()).length();
    }
  }
  return std::max(sent, received);
}

at::Tensor Halo::gather(
    const at::Tensor& shard, int64_t dim, const Communicator& group) const {
  at::Tensor rows = shard.movedim(dim, 0);
  if (communicates()) {
    std::vector<Run> sent;
    std::vector<int64_t> received;
    for (size_t r = 0; r < held_.size(); ++r) {
      sent.push_back(common(mine(), needed_[r]));
      received.push_back(common(held_[r], wanted()).length());
    }
    rows = exchange_rows(rows, mine().begin, sent, received, group);
  } else {
    const int64_t skipped =
        wanted().length() == 0 ? 0 : wanted().begin - mine().begin;
    rows = rows.narrow(0, skipped, wanted().length());
  }
  std::vector<int64_t> padding(static_cast<size_t>(2 * rows.dim()), 0);
  padding[padding.size() - 2] = before_;  // dim 0 comes last
  padding[padding.size() - 1] = after_;
  return at::constant_pad_nd(rows, padding)
      .movedim(0, dim)
      .contiguous(shard.suggest_memory_format());
}

at::Tensor Halo::scatter_sum(
    const at::Tensor& padded, int64_t dim, const Communicator& group) const {
  const at::Tensor rows =
      padded.movedim(dim, 0).narrow(0, before_, wanted().length());
  std::vector<int64_t> shape = rows.sizes().vec();
  shape[0] = mine().length();
  const at::Tensor sum = at::zeros(shape, rows.options());
  if (!communicates()) {
    if (wanted().length() > 0) {
      sum.narrow(0, wanted().begin - mine().begin, wanted().length())
          .copy_(rows);
    }
    return sum.movedim(0, dim);
  }
  std::vector<Run> sent;
  std::vector<int64_t> received;
  for (size_t r = 0; r < held_.size(); ++r) {
    sent.push_back(common(held_[r], wanted()));
    received.push_back(common(mine(), needed_[r]).length());
  }
  const at::Tensor got =
      exchange_rows(rows, wanted().begin, sent, received, group);
  int64_t next = 0;
  for (size_t r = 0; r < held_.size(); ++r) {
    if (received[r] > 0) {
      const int64_t begin = common(mine(), needed_[r]).begin - mine().begin;
      sum.narrow(0, begin, received[r]).add_(got.narrow(0, next, received[r]));
      next += received[r];
    }
  }
  return sum.movedim(0, dim);
}

}  // namespace tessera::detail::inline tensor_layer
