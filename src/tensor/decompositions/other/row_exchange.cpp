#include <tensor/decompositions/other/row_exchange.h>

#include <algorithm>

#include <ATen/ops/empty.h>
#include <ATen/ops/full.h>
#include <ATen/ops/tensor.h>
#include <c10/util/accumulate.h>

namespace tessera::detail::inline tensor_layer {

namespace {

size_t holder_among(const std::vector<Run>& held, int64_t row, size_t guess) {
  for (size_t i = 0; i < held.size(); ++i) {
    const size_t c = (guess + i) % held.size();
    if (held[c].begin <= row && row < held[c].end) {
      return c;
    }
  }
  return guess;
}

at::Tensor joined(
    const std::vector<std::vector<int64_t>>& lists, const at::Device& device) {
  std::vector<int64_t> all;
  for (const auto& list : lists) {
    all.insert(all.end(), list.begin(), list.end());
  }
  return at::tensor(all, at::kLong).to(device);
}

std::vector<int64_t> element_counts(
    const std::vector<std::vector<int64_t>>& lists, int64_t row) {
  std::vector<int64_t> counts;
  for (const auto& list : lists) {
    counts.push_back(static_cast<int64_t>(list.size()) * row);
  }
  return counts;
}

}  // namespace

RowExchange::RowExchange(
    const std::vector<Run>& held, const std::vector<Run>& results,
    const SourceOf& source_of, int64_t coordinate)
    : sent_(held.size()),
      received_(held.size()),
      result_rows_(results[static_cast<size_t>(coordinate)].length()),
      me_(static_cast<size_t>(coordinate)) {
  size_t holder = 0;
  for (size_t c = 0; c < results.size(); ++c) {
    for (int64_t i = results[c].begin; i < results[c].end; ++i) {
      const int64_t source = source_of(i);
      if (source < 0) {
        continue;
      }
      holder = holder_among(held, source, holder);
      communicates_ = communicates_ || holder != c;
      if (holder == me_) {
        sent_[c].push_back(source - held[me_].begin);
      }
      if (c == me_) {
        received_[holder].push_back(i - results[me_].begin);
      }
    }
  }
}

RowExchange::RowExchange(
    const std::vector<std::vector<int64_t>>& becomes,
    const std::vector<Run>& results, int64_t coordinate)
    : sent_(results.size()),
      received_(results.size()),
      result_rows_(results[static_cast<size_t>(coordinate)].length()),
      me_(static_cast<size_t>(coordinate)) {
  size_t taker = 0;
  for (size_t c = 0; c < becomes.size(); ++c) {
    for (size_t j = 0; j < becomes[c].size(); ++j) {
      const int64_t row = becomes[c][j];
      taker = holder_among(results, row, taker);
      communicates_ = communicates_ || taker != c;
      if (c == me_) {
        sent_[taker].push_back(static_cast<int64_t>(j));
      }
      if (taker == me_) {
        received_[c].push_back(row - results[me_].begin);
      }
    }
  }
}

int64_t RowExchange::rows_moved() const {
  size_t sent = 0;
  size_t received = 0;
  for (size_t c = 0; c < sent_.size(); ++c) {
    sent += c == me_ ? 0 : sent_[c].size();
    received += c == me_ ? 0 : received_[c].size();
  }
  return static_cast<int64_t>(std::max(sent, received));
}

at::Tensor RowExchange::operator()(
    const at::Tensor& shard, int64_t dim, const at::Scalar& fill,
    const Communicator& group) const {
  const at::Tensor rows =
      shard.resolve_conj().resolve_neg().movedim(dim, 0).contiguous();
  std::vector<int64_t> shape = rows.sizes().vec();
  const int64_t row = c10::multiply_integers(shape.begin() + 1, shape.end());
  at::Tensor moved = rows.index_select(0, joined(sent_, rows.device()));
  if (communicates_) {
    const std::vector<int64_t> counts = element_counts(received_, row);
    shape[0] = 0;
    for (const Indices& list : received_) {
      shape[0] += static_cast<int64_t>(list.size());
    }
    const at::Tensor output = at::empty(shape, rows.options());
    group.all_to_all_v(output, moved, counts, element_counts(sent_, row));
    moved = output;
  }
  shape[0] = result_rows_;
  return at::full(shape, fill, rows.options())
      .index_copy_(0, joined(received_, rows.device()), moved)
      .movedim(0, dim);
}

}  // namespace tessera::detail::inline tensor_layer
