#include "comm/engine/process/process_call.h"

#include <algorithm>
#include <cstring>

#include <ATen/ops/empty.h>
#include <base/hash.h>
#include <c10/util/Exception.h>
#include <c10/util/StringUtil.h>

#include "comm/engine/reduce.h"

namespace tessera::detail {
namespace {

// Up to this many bytes per rank, an all_reduce gathers all addends everywhere:
// one transfer instead of two.
constexpr int64_t kAtOnceBytes = 32 * 1024;

CallRecord record_for(
    const CollectiveCall& call, const ProcessGroupState& group,
    uint64_t sequence, int64_t other) {
  CallRecord record;
  record.group = group.number();
  record.sequence = sequence;
  record.facts = facts_of(call, other);
  const std::string text = describe(call);
  std::memcpy(
      record.text, text.data(), std::min(text.size(), sizeof(record.text) - 1));
  return record;
}

void* data_of(const at::Tensor& tensor) {
  return tensor.defined() ? tensor.mutable_data_ptr() : nullptr;
}
const void* input_of(const at::Tensor& tensor) {
  return tensor.defined() ? tensor.const_data_ptr() : nullptr;
}

class Both final : public Transit {
 public:
  Both(TransitPtr first, TransitPtr second)
      : first_(std::move(first)), second_(std::move(second)) {}
  bool done() override {
    const bool first = first_->done();
    return second_->done() && first;
  }
  void cancel() noexcept override {
    first_->cancel();
    second_->cancel();
  }

 private:
  TransitPtr first_;
  TransitPtr second_;
};

TransitPtr both(TransitPtr first, TransitPtr second) {
  return std::make_unique<Both>(std::move(first), std::move(second));
}

}  // namespace

uint64_t ProcessGroupState::number() const {
  return base::hash_combine(generation, ranks) | 1;
}

std::string ProcessGroupState::key() const {
  const std::string text = describe_group(ranks);
  return generation == 0 ? text : text + " " + std::to_string(generation);
}

ProcessGroupState::Lane& ProcessGroupState::lane_of(
    const CollectiveCall& call) {
  return is_point_to_point(call.kind) ? lanes_[{call.kind, call.peer, call.tag}]
                                      : lanes_[{CallKind::kBarrier, -1, 0}];
}

ProcessCall::ProcessCall(
    std::shared_ptr<ProcessGroupState> of, CollectiveCall what,
    Clock::time_point started)
    : group_(std::move(of)),
      call_(std::move(what)),
      started_(started),
      lane_(group_->lane_of(call_)),
      sequence_(lane_.calls++) {
  label_ = is_point_to_point(call_.kind) ? "message"
                                         : "call " + std::to_string(sequence_);
}

// Transfers of a lane start in the same order on all ranks: a call waits until
// the one before it has started its last.
bool ProcessCall::has_turn() const {
  return lane_.next == sequence_;
}

void ProcessCall::end_turn() {
  lane_.next = sequence_ + 1;
}

void ProcessCall::advance() {
  if (stage_ == Stage::kQueued) {
    if (failed() || !has_turn()) {
      return;
    }
    stage_ = Stage::kFacts;
    start_facts();
  }
  while (!complete() && !failed() && (!transit_ || transit_->done())) {
    transit_.reset();
    if (stage_ == Stage::kFacts) {
      check_facts();
      stage_ = Stage::kData;
      move_to_host();
      start_data();
      if (!slices_follow()) {
        end_turn();
      }
    } else {
      finish_data();
    }
  }
}

void ProcessCall::fail(const std::string& reason) {
  if (!complete() && error_.empty()) {
    error_ = reason;
    if (transit_ != nullptr) {
      transit_->cancel();
    }
  }
}

bool ProcessCall::settled() {
  try {
    return transit_ == nullptr || transit_->done();
  } catch (const std::exception&) {
    return true;
  }
}

void ProcessCall::raise() const {
  TORCH_CHECK_WITH(
      DistBackendError, false, describe(call_), " on ",
      describe_group(group_->ranks), ", rank ", group_->rank(), ": ", error_);
}

// A rank says to each other one what it called; sender and receiver of a
// message say it to each other, so a send is complete when it was received.
void ProcessCall::start_facts() {
  Wire& wire = *group_->wire;
  constexpr auto kSize = static_cast<int64_t>(sizeof(CallRecord));
  if (is_point_to_point(call_.kind)) {
    const bool sends = call_.kind == CallKind::kSend;
    said_ = {record_for(call_, *group_, sequence_, call_.peer)};
    heard_.resize(1);
    transit_ = both(
        wire.send(
            said_.data(), kSize, call_.peer,
            sends ? forward_tag() : backward_tag()),
        wire.receive(
            heard_.data(), kSize, call_.peer,
            sends ? backward_tag() : forward_tag()));
    return;
  }
  const auto size = static_cast<size_t>(group_->size());
  for (size_t other = 0; other < size; ++other) {
    said_.push_back(
        record_for(call_, *group_, sequence_, static_cast<int64_t>(other)));
  }
  heard_.resize(size);
  const std::vector<int64_t> counts(size, kSize);
  transit_ = wire.all_to_all(said_.data(), counts, heard_.data(), counts);
}

// The place that said heard_[i].
int64_t ProcessCall::place_of(size_t i) const {
  return is_point_to_point(call_.kind) ? call_.peer : static_cast<int64_t>(i);
}

void ProcessCall::check_facts() const {
  for (size_t i = 0; i < heard_.size(); ++i) {
    const CallRecord& theirs = heard_[i];
    const int64_t place = place_of(i);
    const CallFacts mine = facts_of(call_, place);
    std::string topic = disagreement(mine, theirs.facts);
    if (topic.empty() && theirs.sequence != sequence_) {
      topic = "the number of calls so far";
    }
    if (!topic.empty()) {
      throw Disagreement(c10::str(
          label_, ": ranks disagree on ", topic, "; rank ", group_->rank(),
          " called ", describe(call_), ", rank ",
          group_->ranks[static_cast<size_t>(place)], " called ", theirs.text,
          "; every rank of a group must make the same calls in the same "
          "order"));
    }
  }
}

std::vector<int64_t> ProcessCall::bytes(
    const std::vector<int64_t>& counts) const {
  std::vector<int64_t> result = counts;
  const auto width = static_cast<int64_t>(call_.sample().element_size());
  for (int64_t& count : result) {
    count *= width;
  }
  return result;
}

std::vector<int64_t> ProcessCall::only(int64_t place, int64_t count) const {
  std::vector<int64_t> counts(group_->ranks.size(), 0);
  counts[static_cast<size_t>(place)] = count;
  return counts;
}

at::Tensor ProcessCall::stage_buffer(int64_t numel) const {
  return at::empty({numel}, call_.sample().options());
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

void ProcessCall::start_data() {
  Wire& wire = *group_->wire;
  const int64_t place = group_->place;
  const auto nbytes = [](const at::Tensor& t) {
    return t.defined() ? static_cast<int64_t>(t.nbytes()) : 0;
  };
  switch (call_.kind) {
    case CallKind::kAllGather:
    case CallKind::kSplit:
      transit_ = wire.all_gather(
          input_of(call_.input), data_of(call_.output),
          bytes(call_.output_counts));
      return;
    case CallKind::kAllToAll:
      transit_ = wire.all_to_all(
          input_of(call_.input), bytes(call_.input_counts),
          data_of(call_.output), bytes(call_.output_counts));
      return;
    case CallKind::kReduceScatter:
    case CallKind::kAllReduce: {
      const bool at_once =
          call_.kind == CallKind::kAllReduce && all_reduces_at_once();
      const std::vector<int64_t> cut =
          call_.kind == CallKind::kAllReduce ? slices() : call_.input_counts;
      const int64_t mine =
          at_once ? call_.input.numel() : cut[static_cast<size_t>(place)];
      gathered_ = stage_buffer(mine * group_->size());
      const auto received =
          bytes(std::vector<int64_t>(group_->ranks.size(), mine));
      transit_ = at_once
                     ? wire.all_gather(
                           input_of(call_.input), data_of(gathered_), received)
                     : wire.all_to_all(
                           input_of(call_.input), bytes(cut),
                           data_of(gathered_), received);
      return;
    }
    case CallKind::kBroadcast:
      // The root's output is its input, or nothing.
      transit_ = wire.broadcast(
          place == call_.peer ? const_cast<void*>(input_of(call_.input))
                              : data_of(call_.output),
          nbytes(call_.sample()), call_.peer);
      return;
    case CallKind::kScatter: {
      const bool root = place == call_.peer;
      transit_ = wire.all_to_all(
          input_of(call_.input), root ? bytes(call_.input_counts) : only(0, 0),
          data_of(call_.output), only(call_.peer, nbytes(call_.output)));
      return;
    }
    case CallKind::kGather: {
      const bool root = place == call_.peer;
      transit_ = wire.all_to_all(
          input_of(call_.input), only(call_.peer, nbytes(call_.input)),
          data_of(call_.output),
          root ? bytes(call_.output_counts) : only(0, 0));
      return;
    }
    case CallKind::kSend:
      transit_ = wire.send(
          input_of(call_.input), nbytes(call_.input), call_.peer,
          forward_tag());
      return;
    case CallKind::kRecv:
      transit_ = wire.receive(
          data_of(call_.output), nbytes(call_.output), call_.peer,
          forward_tag());
      return;
    case CallKind::kBarrier:
      return;
  }
}

// Combines the addends in rank order.
void ProcessCall::reduce(
    const at::Tensor& gathered, const at::Tensor& output) const {
  const int64_t numel = output.numel();
  if (numel == 0) {
    return;
  }
  std::vector<const void*> inputs;
  const char* next = static_cast<const char*>(gathered.const_data_ptr());
  for (int64_t r = 0; r < group_->size(); ++r) {
    inputs.push_back(next);
    next += output.nbytes();
  }
  reduce_on_host(
      inputs, {output.mutable_data_ptr()}, numel, output.scalar_type(),
      call_.reduce_op);
}

void ProcessCall::finish_data() {
  if (stage_ == Stage::kData && gathered_.defined()) {
    if (!slices_follow()) {
      reduce(gathered_, call_.output);
    } else {
      const auto cut = slices();
      const int64_t mine = cut[static_cast<size_t>(group_->place)];
      at::Tensor slice = stage_buffer(mine);
      reduce(gathered_, slice);
      gathered_ = slice;
      stage_ = Stage::kSlices;
      transit_ = group_->wire->all_gather(
          input_of(slice), data_of(call_.output), bytes(cut));
      end_turn();
      return;
    }
  }
  move_to_device();
  gathered_ = at::Tensor();
  stage_ = Stage::kComplete;
}

// Wires see host memory only.
void ProcessCall::move_to_host() {
  if (call_.input.defined() && !call_.input.is_cpu()) {
    call_.input = call_.input.cpu();
  }
  if (call_.output.defined() && !call_.output.is_cpu()) {
    device_output_ = call_.output;
    call_.output = at::empty(
        device_output_.sizes(), device_output_.options().device(at::kCPU));
  }
}

void ProcessCall::move_to_device() const {
  if (device_output_.defined()) {
    device_output_.copy_(call_.output);
  }
}

std::vector<int64_t> ProcessCall::missing() const {
  std::vector<int64_t> ranks;
  if (stage_ == Stage::kFacts) {
    for (const int64_t place : group_->wire->absent()) {
      ranks.push_back(group_->ranks[static_cast<size_t>(place)]);
    }
  }
  if (!ranks.empty()) {
    return ranks;
  }
  for (size_t i = 0; i < heard_.size() && stage_ == Stage::kFacts; ++i) {
    if (heard_[i].group == 0 && place_of(i) != group_->place) {
      ranks.push_back(group_->ranks[static_cast<size_t>(place_of(i))]);
    }
  }
  return ranks;
}

}  // namespace tessera::detail
