#include "comm/engine/process/process_call.h"

#include <algorithm>
#include <cstring>
#include <numeric>
#include <utility>

#include <ATen/core/LegacyTypeDispatch.h>
#include <ATen/ops/empty.h>
#include <base/copy_bytes.h>
#include <base/hash.h>
#include <c10/util/Exception.h>
#include <c10/util/StringUtil.h>

#include "comm/call/reduce.h"

namespace tessera::detail {
namespace {

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
  bool settled() noexcept override {
    const bool first = first_->settled();
    return second_->settled() && first;
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
  return "group " + std::to_string(number());
}

ProcessGroupState::Lane& ProcessGroupState::lane_of(
    const CollectiveCall& call) {
  return is_point_to_point(call.kind) ? lanes_[{call.kind, call.peer, call.tag}]
                                      : lanes_[{CallKind::kBarrier, -1, 0}];
}

uint64_t ProcessGroupState::lane_id(const LaneKey& key) const {
  const auto& [kind, peer, tag] = key;
  return base::hash_combine(
      number(), std::vector<int64_t>{static_cast<int64_t>(kind), peer, tag});
}

void ProcessGroupState::count_calls(std::map<uint64_t, uint64_t>& calls) const {
  for (const auto& [key, lane] : lanes_) {
    calls[lane_id(key)] = lane.calls;
  }
}

ProcessCall::ProcessCall(
    std::shared_ptr<ProcessGroupState> of, CollectiveCall what)
    : group_(std::move(of)),
      call_(std::move(what)),
      lane_(group_->lane_of(call_)),
      sequence_(lane_.calls++) {
  if (auto point = mark_stream(call_)) {
    points_.push_back(std::move(*point));
  }
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
    if (stage_ != Stage::kFacts) {
      finish_data();
      continue;
    }
    check_facts();
    stage_ = Stage::kData;
    if (came_with_facts()) {
      take_payloads();
      end_turn();
      finish();
      continue;
    }
    move_to_host();
    start_data();
    if (!slices_follow()) {
      end_turn();
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

bool ProcessCall::is_among(const std::map<uint64_t, uint64_t>& calls) const {
  ProcessGroupState::LaneKey theirs = {CallKind::kBarrier, -1, 0};
  if (is_point_to_point(call_.kind)) {
    const bool sends = call_.kind == CallKind::kSend;
    theirs = {
        sends ? CallKind::kRecv : CallKind::kSend, group_->place, call_.tag};
  }
  const auto made = calls.find(group_->lane_id(theirs));
  return made != calls.end() && made->second > sequence_;
}

bool ProcessCall::settled() {
  return transit_ == nullptr || transit_->settled();
}

void ProcessCall::raise() const {
  TORCH_CHECK_WITH(
      DistBackendError, false, describe(call_), " on ",
      describe_group(group_->ranks), ", rank ", group_->rank(), ": ", error_);
}

CallRecord ProcessCall::record() const {
  CallRecord record;
  record.group = group_->number();
  record.sequence = sequence_;
  record.small = is_small();
  const std::string text = describe(call_);
  std::memcpy(
      record.text, text.data(), std::min(text.size(), sizeof(record.text) - 1));
  return record;
}

// Completes a record for the rank at a place.
void ProcessCall::address(CallRecord& record, int64_t place) const {
  record.facts = facts_of(call_, place);
  const Run run = given_to(place);
  if (record.small) {
    base::copy_bytes(record.payload, run.data, static_cast<size_t>(run.bytes));
  }
}

// A rank says to each other one what it called; sender and receiver of a
// message say it to each other, so a send is complete when it was received.
void ProcessCall::start_facts() {
  Wire& wire = *group_->wire;
  constexpr auto kSize = static_cast<int64_t>(sizeof(CallRecord));
  if (is_point_to_point(call_.kind)) {
    const bool sends = call_.kind == CallKind::kSend;
    said_ = {record()};
    address(said_[0], call_.peer);
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
  said_.assign(size, record());
  for (size_t other = 0; other < size; ++other) {
    address(said_[other], static_cast<int64_t>(other));
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
    if (theirs.group != group_->number()) {
      throw std::runtime_error(c10::str(
          label_, ": rank ", group_->ranks[static_cast<size_t>(place)],
          " answered with a call of another group, ", theirs.text));
    }
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

// What lies on an accelerator is brought here once the facts agree. In an
// all_to_all, two ranks may disagree on a run that a third one does not see: it
// hears of that while it waits for their data.
bool ProcessCall::is_small() const {
  const at::Tensor& sample = call_.sample();
  bool small = call_.kind != CallKind::kAllToAll &&
               (!sample.defined() || sample.is_cpu());
  for (int64_t place = 0; place < group_->size() && small; ++place) {
    small = given_to(place).bytes <= CallRecord::kPayload &&
            taken_from(place).bytes <= CallRecord::kPayload;
  }
  return small;
}

bool ProcessCall::came_with_facts() const {
  return said_[0].small && std::all_of(
                               heard_.begin(), heard_.end(),
                               [](const CallRecord& r) { return r.small; });
}

void ProcessCall::take_payloads() {
  if (is_reduction(call_.kind)) {
    reduce(
        heard_[0].payload, sizeof(CallRecord), call_.output.mutable_data_ptr(),
        call_.output.numel());
    return;
  }
  for (size_t i = 0; i < heard_.size(); ++i) {
    const Run run = taken_from(place_of(i));
    base::copy_bytes(
        run.data, heard_[i].payload, static_cast<size_t>(run.bytes));
  }
}

void ProcessCall::finish() {
  if (device_output_.defined()) {
    const at::AutoDispatchBelowADInplaceOrView below_autograd;
    const CollectiveCall on_device{.output = device_output_};
    join_parts(on_device, points_);
    device_output_.copy_(call_.output);
  }
  group_->scratch.give_back(std::exchange(gathered_, {}));
  stage_ = Stage::kComplete;
}

// Wires see host memory only. What was enqueued before the call comes first.
void ProcessCall::move_to_host() {
  const at::AutoDispatchBelowADInplaceOrView below_autograd;
  join_parts(call_, points_);
  if (call_.input.defined() && !call_.input.is_cpu()) {
    call_.input = call_.input.cpu();
  }
  if (call_.output.defined() && !call_.output.is_cpu()) {
    device_output_ = call_.output;
    call_.output = at::empty(
        device_output_.sizes(), device_output_.options().device(at::kCPU));
  }
}

std::vector<int64_t> ProcessCall::missing() const {
  std::vector<int64_t> ranks;
  if (stage_ == Stage::kFacts && !is_point_to_point(call_.kind)) {
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
