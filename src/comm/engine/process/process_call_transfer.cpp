// The data of a ProcessCall: what goes where, and sums.
#include <algorithm>
#include <numeric>
#include <vector>

#include "comm/call/reduce.h"
#include "comm/engine/process/process_call.h"

namespace tessera::detail::inline comm_layer {
namespace {

// Up to this many bytes per rank, an all_reduce gathers all partial values
// everywhere: one transfer instead of two.
constexpr int64_t kAtOnceBytes = 32 * 1024;

void* data_of(const at::Tensor& tensor) {
  return tensor.defined() ? tensor.mutable_data_ptr() : nullptr;
}
const void* input_of(const at::Tensor& tensor) {
  return tensor.defined() ? tensor.const_data_ptr() : nullptr;
}
int64_t size_of(const at::Tensor& tensor) {
  return tensor.defined() ? static_cast<int64_t>(tensor.nbytes()) : 0;
}

}  // namespace

std::vector<int64_t> ProcessCall::bytes(
    const std::vector<int64_t>& counts) const {
  std::vector<int64_t> result = counts;
  const auto width = static_cast<int64_t>(call_.sample().element_size());
  for (int64_t& count : result) {
    count *= width;
  }
  return result;
}

std::vector<int64_t> ProcessCall::only(
    int64_t group_rank, int64_t count) const {
  std::vector<int64_t> counts(group_->ranks.size(), 0);
  counts[static_cast<size_t>(group_rank)] = count;
  return counts;
}

// How an all_reduce is cut: one run per rank.
std::vector<int64_t> ProcessCall::slices() const {
  const int64_t numel = call_.input.numel();
  const int64_t each = (numel + group_->size() - 1) / group_->size();
  std::vector<int64_t> counts;
  for (int64_t begin = 0, r = 0; r < group_->size(); ++r) {
    counts.push_back(std::min(each, numel - begin));
    begin += counts.back();
  }
  return counts;
}

bool ProcessCall::all_reduces_at_once() const {
  return static_cast<int64_t>(call_.input.nbytes()) <= kAtOnceBytes;
}

// A large all_reduce: each rank reduces a slice, then all gather them.
bool ProcessCall::slices_follow() const {
  return call_.kind == CallKind::kAllReduce && !all_reduces_at_once();
}

// Where a reduce_scatter has its own run in the output.
bool ProcessCall::holds_own(int64_t group_rank) const {
  return call_.without_own && group_rank == group_->group_rank;
}

ProcessCall::Run ProcessCall::given_to(int64_t group_rank) const {
  auto* data = static_cast<char*>(const_cast<void*>(input_of(call_.input)));
  const Run all{data, size_of(call_.input)};
  const bool from_root = group_->group_rank == call_.peer;
  switch (call_.kind) {
    case CallKind::kAllGather:
    case CallKind::kSplit:
    case CallKind::kAllReduce:
    case CallKind::kSend:
      return all;
    case CallKind::kReduceScatter:
      if (holds_own(group_rank)) {
        return {
            static_cast<char*>(data_of(call_.output)), size_of(call_.output)};
      }
      [[fallthrough]];
    case CallKind::kAllToAll:
      return run_of(data, call_.input_counts, group_rank);
    case CallKind::kBroadcast:
      return from_root ? all : Run{};
    case CallKind::kScatter:
      return from_root ? run_of(data, call_.input_counts, group_rank) : Run{};
    case CallKind::kGather:
      return group_rank == call_.peer ? all : Run{};
    case CallKind::kRecv:
    case CallKind::kBarrier:
      break;
  }
  return {};
}

// For reductions: a partial value, which has no place of its own.
ProcessCall::Run ProcessCall::taken_from(int64_t group_rank) const {
  auto* data = static_cast<char*>(data_of(call_.output));
  const Run all{data, size_of(call_.output)};
  const bool from_root = group_rank == call_.peer;
  switch (call_.kind) {
    case CallKind::kAllGather:
      if (holds_own(group_rank)) {
        return {};
      }
      [[fallthrough]];
    case CallKind::kSplit:
    case CallKind::kAllToAll:
      return run_of(data, call_.output_counts, group_rank);
    case CallKind::kAllReduce:
    case CallKind::kReduceScatter:
    case CallKind::kRecv:
      return all;
    case CallKind::kBroadcast:
      return from_root && group_rank != group_->group_rank ? all : Run{};
    case CallKind::kScatter:
      return from_root ? all : Run{};
    case CallKind::kGather:
      return group_->group_rank == call_.peer
                 ? run_of(data, call_.output_counts, group_rank)
                 : Run{};
    case CallKind::kSend:
    case CallKind::kBarrier:
      break;
  }
  return {};
}

ProcessCall::Run ProcessCall::run_of(
    char* data, const std::vector<int64_t>& counts, int64_t group_rank) const {
  const auto width = static_cast<int64_t>(call_.sample().element_size());
  const auto end = counts.begin() + group_rank;
  int64_t begin = std::accumulate(counts.begin(), end, int64_t{0});
  if (call_.without_own && group_rank > group_->group_rank) {
    begin -= counts[static_cast<size_t>(group_->group_rank)];
  }
  return {data + width * begin, width * *end};
}

void ProcessCall::start_data() {
  Channel& channel = *group_->channel;
  const int64_t group_rank = group_->group_rank;
  switch (call_.kind) {
    case CallKind::kAllGather:
    case CallKind::kSplit:
      transfer_ = channel.all_gather(
          input_of(call_.input), size_of(call_.input), data_of(call_.output),
          bytes(counts_that_travel(call_.output_counts)));
      return;
    case CallKind::kAllToAll:
      transfer_ = channel.all_to_all(
          input_of(call_.input), bytes(call_.input_counts),
          data_of(call_.output), bytes(call_.output_counts));
      return;
    case CallKind::kReduceScatter:
    case CallKind::kAllReduce:
      start_reduction();
      return;
    case CallKind::kBroadcast:
      // The root's output is its input, or nothing.
      transfer_ = channel.broadcast(
          group_rank == call_.peer ? const_cast<void*>(input_of(call_.input))
                                   : data_of(call_.output),
          size_of(call_.sample()), call_.peer);
      return;
    case CallKind::kScatter: {
      const bool root = group_rank == call_.peer;
      transfer_ = channel.all_to_all(
          input_of(call_.input), root ? bytes(call_.input_counts) : only(0, 0),
          data_of(call_.output), only(call_.peer, size_of(call_.output)));
      return;
    }
    case CallKind::kGather: {
      const bool root = group_rank == call_.peer;
      transfer_ = channel.all_to_all(
          input_of(call_.input), only(call_.peer, size_of(call_.input)),
          data_of(call_.output),
          root ? bytes(call_.output_counts) : only(0, 0));
      return;
    }
    case CallKind::kSend:
      transfer_ = channel.send(
          input_of(call_.input), size_of(call_.input), call_.peer,
          forward_tag());
      return;
    case CallKind::kRecv:
      transfer_ = channel.receive(
          data_of(call_.output), size_of(call_.output), call_.peer,
          forward_tag());
      return;
    case CallKind::kBarrier:
      return;
  }
}

void ProcessCall::start_reduction() {
  Channel& channel = *group_->channel;
  const auto gathered = [&](int64_t each) {
    auto received =
        counts_that_travel(std::vector<int64_t>(group_->ranks.size(), each));
    gathered_ = has_landing()
                    ? call_.landing
                    : group_->scratch.take(std::accumulate(
                          received.begin(), received.end(), int64_t{0}));
    return received;
  };
  if (call_.kind == CallKind::kAllReduce && all_reduces_at_once()) {
    const auto received = gathered(size_of(call_.input));
    transfer_ = channel.all_gather(
        input_of(call_.input), size_of(call_.input), data_of(gathered_),
        received);
    return;
  }
  const auto sent = bytes(
      call_.kind == CallKind::kAllReduce
          ? slices()
          : counts_that_travel(call_.input_counts));
  const auto received = gathered(
      call_.kind == CallKind::kAllReduce
          ? sent[static_cast<size_t>(group_->group_rank)]
          : size_of(call_.output));
  transfer_ = channel.all_to_all(
      input_of(call_.input), sent, data_of(gathered_), received);
}

bool ProcessCall::has_landing() const {
  return call_.landing.defined() && call_.landing.is_cpu();
}

// Without the run of this rank, where that stays.
std::vector<int64_t> ProcessCall::counts_that_travel(
    std::vector<int64_t> counts) const {
  if (call_.without_own) {
    counts[static_cast<size_t>(group_->group_rank)] = 0;
  }
  return counts;
}

// The partial values in rank order, which lie `stride` bytes apart. One that
// stayed is where the result will be.
std::vector<const void*> ProcessCall::partials(
    const char* first, int64_t stride) const {
  std::vector<const void*> inputs;
  for (int64_t r = 0; r < group_->size(); ++r) {
    if (holds_own(r)) {
      inputs.push_back(input_of(call_.output));
      continue;
    }
    inputs.push_back(first);
    first += stride;
  }
  return inputs;
}

void ProcessCall::reduce(
    const std::vector<const void*>& inputs, void* to, int64_t numel) const {
  if (numel == 0) {
    return;
  }
  reduce_on_host(
      inputs, {to}, numel, call_.sample().scalar_type(), call_.reduce_op);
}

void ProcessCall::finish_data() {
  if (stage_ == Stage::kData && gathered_.defined()) {
    const auto* first = static_cast<const char*>(input_of(gathered_));
    if (slices_follow()) {
      const auto runs = slices();
      const int64_t mine = runs[static_cast<size_t>(group_->group_rank)];
      const int64_t size = bytes({mine})[0];
      char* slice = run_of(
                        static_cast<char*>(data_of(call_.output)), runs,
                        group_->group_rank)
                        .data;
      reduce(partials(first, size), slice, mine);
      stage_ = Stage::kSlices;
      transfer_ = group_->channel->all_gather(
          slice, size, data_of(call_.output), bytes(runs));
      end_turn();
      return;
    }
    reduce(
        partials(first, size_of(call_.output)), data_of(call_.output),
        call_.output.numel());
  }
  finish();
}

}  // namespace tessera::detail::inline comm_layer
