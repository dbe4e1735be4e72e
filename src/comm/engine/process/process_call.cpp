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

namespace tessera::detail::inline comm_layer {
namespace {

class Both final : public Transfer {
 public:
  Both(TransferPtr first, TransferPtr second)
      : first_(std::move(first)), second_(std::move(second)) {}
  bool done() override {
    const bool first = first_->done();
    return second_->done() && first;
  }
  void cancel() noexcept override {
    first_->cancel();
    second_->cancel();
  }
  bool buffers_are_free() noexcept override {
    const bool first = first_->buffers_are_free();
    return second_->buffers_are_free() && first;
  }

 private:
  TransferPtr first_;
  TransferPtr second_;
};

TransferPtr both(TransferPtr first, TransferPtr second) {
  return std::make_unique<Both>(std::move(first), std::move(second));
}

}  // namespace

uint64_t ProcessGroupState::number() const {
  return base::hash_combine(generation, ranks) | 1;
}

std::string ProcessGroupState::key() const {
  return "group " + std::to_string(number());
}

ProcessGroupState::CallSequence& ProcessGroupState::call_sequence_of(
    const CollectiveCall& call) {
  return is_point_to_point(call.kind)
             ? call_sequences_[{call.kind, call.peer, call.tag}]
             : call_sequences_[{CallKind::kBarrier, -1, 0}];
}

uint64_t ProcessGroupState::call_sequence_id(const CallSequenceKey& key) const {
  const auto& [kind, peer, tag] = key;
  return base::hash_combine(
      number(), std::vector<int64_t>{static_cast<int64_t>(kind), peer, tag});
}

void ProcessGroupState::count_calls(std::map<uint64_t, uint64_t>& calls) const {
  for (const auto& [key, call_sequence] : call_sequences_) {
    calls[call_sequence_id(key)] = call_sequence.calls;
  }
}

ProcessCall::ProcessCall(
    std::shared_ptr<ProcessGroupState> of, CollectiveCall what)
    : group_(std::move(of)),
      call_(std::move(what)),
      call_sequence_(group_->call_sequence_of(call_)),
      sequence_(call_sequence_.calls++) {
  if (auto point = mark_stream(call_)) {
    points_.push_back(std::move(*point));
  }
  label_ = is_point_to_point(call_.kind) ? "message"
                                         : "call " + std::to_string(sequence_);
}

// Transfers of a call sequence start in the same order on all ranks: a call
// waits until the one before it has started its last.
bool ProcessCall::has_turn() const {
  return call_sequence_.next == sequence_;
}

void ProcessCall::end_turn() {
  call_sequence_.next = sequence_ + 1;
}

void ProcessCall::advance() {
  if (stage_ == Stage::kQueued) {
    if (failed() || !has_turn()) {
      return;
    }
    stage_ = Stage::kFingerprints;
    start_fingerprints();
  }
  while (!complete() && !failed() && (!transfer_ || transfer_->done())) {
    transfer_.reset();
    if (stage_ != Stage::kFingerprints) {
      finish_data();
      continue;
    }
    check_fingerprints();
    stage_ = Stage::kData;
    if (came_with_fingerprints()) {
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
    if (transfer_ != nullptr) {
      transfer_->cancel();
    }
  }
}

bool ProcessCall::is_among(const std::map<uint64_t, uint64_t>& calls) const {
  ProcessGroupState::CallSequenceKey theirs = {CallKind::kBarrier, -1, 0};
  if (is_point_to_point(call_.kind)) {
    const bool sends = call_.kind == CallKind::kSend;
    theirs = {
        sends ? CallKind::kRecv : CallKind::kSend, group_->group_rank,
        call_.tag};
  }
  const auto made = calls.find(group_->call_sequence_id(theirs));
  return made != calls.end() && made->second > sequence_;
}

bool ProcessCall::buffers_are_free() {
  return transfer_ == nullptr || transfer_->buffers_are_free();
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
void ProcessCall::address(CallRecord& record, int64_t group_rank) const {
  record.fingerprint = fingerprint_of(call_, group_rank);
  const Run run = given_to(group_rank);
  if (record.small) {
    base::copy_bytes(record.payload, run.data, static_cast<size_t>(run.bytes));
  }
}

// A rank says to each other one what it called; sender and receiver of a
// message say it to each other, so a send is complete when it was received.
void ProcessCall::start_fingerprints() {
  Channel& channel = *group_->channel;
  constexpr auto kSize = static_cast<int64_t>(sizeof(CallRecord));
  if (is_point_to_point(call_.kind)) {
    const bool sends = call_.kind == CallKind::kSend;
    said_ = {record()};
    address(said_[0], call_.peer);
    heard_.resize(1);
    transfer_ = both(
        channel.send(
            said_.data(), kSize, call_.peer,
            sends ? forward_tag() : backward_tag()),
        channel.receive(
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
  transfer_ = channel.all_to_all(said_.data(), counts, heard_.data(), counts);
}

// The place that said heard_[i].
int64_t ProcessCall::group_rank_of(size_t i) const {
  return is_point_to_point(call_.kind) ? call_.peer : static_cast<int64_t>(i);
}

void ProcessCall::check_fingerprints() const {
  for (size_t i = 0; i < heard_.size(); ++i) {
    const CallRecord& theirs = heard_[i];
    const int64_t group_rank = group_rank_of(i);
    if (theirs.group != group_->number()) {
      throw std::runtime_error(c10::str(
          label_, ": rank ", group_->ranks[static_cast<size_t>(group_rank)],
          " answered with a call of another group, ", theirs.text));
    }
    const CollectiveFingerprint mine = fingerprint_of(call_, group_rank);
    std::string topic = mismatch(mine, theirs.fingerprint);
    if (topic.empty() && theirs.sequence != sequence_) {
      topic = "the number of calls so far";
    }
    if (!topic.empty()) {
      throw Mismatch(c10::str(
          label_, ": ranks disagree on ", topic, "; rank ", group_->rank(),
          " called ", describe(call_), ", rank ",
          group_->ranks[static_cast<size_t>(group_rank)], " called ",
          theirs.text,
          "; every rank of a group must make the same calls in the same "
          "order"));
    }
  }
}

// What lies on an accelerator is brought here once the fingerprints agree. In
// an all_to_all, two ranks may disagree on a run that a third one does not see:
// it hears of that while it waits for their data.
bool ProcessCall::is_small() const {
  const at::Tensor& sample = call_.sample();
  bool small = call_.kind != CallKind::kAllToAll &&
               (!sample.defined() || sample.is_cpu());
  for (int64_t group_rank = 0; group_rank < group_->size() && small;
       ++group_rank) {
    small = given_to(group_rank).bytes <= CallRecord::kPayload &&
            taken_from(group_rank).bytes <= CallRecord::kPayload;
  }
  return small;
}

bool ProcessCall::came_with_fingerprints() const {
  return said_[0].small && std::all_of(
                               heard_.begin(), heard_.end(),
                               [](const CallRecord& r) { return r.small; });
}

void ProcessCall::take_payloads() {
  if (is_reduction(call_.kind)) {
    std::vector<const void*> inputs;
    for (const CallRecord& record : heard_) {
      inputs.push_back(record.payload);
    }
    reduce(inputs, call_.output.mutable_data_ptr(), call_.output.numel());
    return;
  }
  for (size_t i = 0; i < heard_.size(); ++i) {
    const Run run = taken_from(group_rank_of(i));
    base::copy_bytes(
        run.data, heard_[i].payload, static_cast<size_t>(run.bytes));
  }
}

void ProcessCall::finish() {
  if (device_output_.defined()) {
    const at::AutoDispatchBelowADInplaceOrView below_autograd;
    const CollectiveCall on_device{.output = device_output_};
    join_chunks(on_device, points_);
    device_output_.copy_(call_.output);
  }
  at::Tensor gathered = std::exchange(gathered_, {});
  if (!has_landing()) {
    group_->scratch.give_back(std::move(gathered));
  }
  stage_ = Stage::kComplete;
}

// Channels see host memory only. What was enqueued before the call comes first.
void ProcessCall::move_to_host() {
  const at::AutoDispatchBelowADInplaceOrView below_autograd;
  join_chunks(call_, points_);
  if (call_.input.defined() && !call_.input.is_cpu()) {
    call_.input = call_.input.cpu();
  }
  if (call_.output.defined() && !call_.output.is_cpu()) {
    device_output_ = call_.output;
    call_.output = call_.without_own
                       ? device_output_.cpu()
                       : at::empty(
                             device_output_.sizes(),
                             device_output_.options().device(at::kCPU));
  }
}

std::vector<int64_t> ProcessCall::partners() const {
  std::vector<int64_t> ranks;
  for (size_t i = 0; i < heard_.size() && stage_ == Stage::kFingerprints; ++i) {
    if (group_rank_of(i) != group_->group_rank) {
      ranks.push_back(group_->ranks[static_cast<size_t>(group_rank_of(i))]);
    }
  }
  return ranks;
}

std::vector<int64_t> ProcessCall::close_and_name_missing() {
  std::vector<int64_t> ranks;
  if (stage_ == Stage::kFingerprints && !is_point_to_point(call_.kind)) {
    for (const int64_t group_rank : group_->channel->absent()) {
      ranks.push_back(group_->ranks[static_cast<size_t>(group_rank)]);
    }
  }
  if (group_->channel != nullptr) {
    group_->channel->close();
  }
  if (!ranks.empty()) {
    return ranks;
  }
  for (size_t i = 0; i < heard_.size() && stage_ == Stage::kFingerprints; ++i) {
    if (heard_[i].group == 0 && group_rank_of(i) != group_->group_rank) {
      ranks.push_back(group_->ranks[static_cast<size_t>(group_rank_of(i))]);
    }
  }
  return ranks;
}

}  // namespace tessera::detail::inline comm_layer
