#include "comm/log/flight_recorder.h"

#include <algorithm>
#include <cstring>
#include <thread>
#include <utility>

#include <c10/util/Exception.h>
#include <torch/csrc/autograd/graph_task.h>

#include "comm/call/rank_errors.h"
#include "comm/log/call_cause.h"
#include "comm/log/flight_print.h"

namespace tessera::detail::inline comm_layer {
namespace {

using std::chrono::duration_cast;
using std::chrono::microseconds;
using Lock = std::lock_guard<std::mutex>;

// Copies what fits, and leaves a 0 at the end.
template <size_t N>
void copy_cause(std::array<char, N>& to, const CallCause* cause) {
  char* at = to.data();
  size_t room = N - 1;
  const auto append = [&](std::string_view text) {
    const size_t size = std::min(room, text.size());
    std::memcpy(at, text.data(), size);
    at += size;
    room -= size;
  };
  if (cause == nullptr) {
    append("user");
  } else {
    cause->append_name(append);
  }
  *at = '\0';
}

template <size_t N>
uint8_t copy_counts(
    std::array<int64_t, N>& to, const std::vector<int64_t>& counts) {
  const size_t size = std::min(N, counts.size());
  std::copy_n(counts.begin(), size, to.begin());
  return static_cast<uint8_t>(size);
}

bool breaks_the_group(const std::exception_ptr& exception) {
  try {
    std::rethrow_exception(exception);
  } catch (const c10::DistBackendError&) {
    return true;
  } catch (...) {
    return false;
  }
}

// What an engine's error says beyond the call that an entry shows.
std::string reason_in(const std::string& error, const FlightGroup& group) {
  const std::string site = describe_group(group.ranks) + ", rank " +
                           std::to_string(group.rank) + ": ";
  const size_t at = error.find(site);
  return at == std::string::npos ? error : error.substr(at + site.size());
}

using Clock = FlightRecorder::Clock;
using Ticks = FlightRecorder::Ticks;

struct Moment {
  Ticks ticks;
  Clock::time_point time;
};

// The same moment by the counter and by the clock: of several looks the one
// that was interrupted least.
Moment this_moment() {
  Moment best{};
  auto narrowest = Clock::duration::max();
  for (int look = 0; look < 8; ++look) {
    const auto before = Clock::now();
    const Ticks ticks = c10::getApproximateTime();
    const auto width = Clock::now() - before;
    if (width < narrowest) {
      narrowest = width;
      best = {ticks, before + width / 2};
    }
  }
  return best;
}

// How fast the counter counts: measured once, so that a time reads the same
// whenever it is asked for.
double ticks_per_us() {
  static const double rate = [] {
    const Moment from = this_moment();
    std::this_thread::sleep_for(std::chrono::milliseconds(2));
    const Moment to = this_moment();
    return static_cast<double>(to.ticks - from.ticks) /
           std::chrono::duration<double, std::micro>(to.time - from.time)
               .count();
  }();
  return rate;
}

// Not negative where the counters of two cores differ a little.
microseconds time_between(Ticks from, Ticks to) {
  const auto ticks = static_cast<double>(static_cast<int64_t>(to - from));
  return microseconds(
      static_cast<int64_t>(std::max(0.0, ticks / ticks_per_us())));
}

}  // namespace

FlightGroup& FlightRecorder::group(
    const std::vector<int64_t>& ranks, int64_t group_rank) {
  const Lock lock(mutex_);
  std::unique_ptr<FlightGroup>& group = groups_[ranks];
  if (group == nullptr) {
    group = std::make_unique<FlightGroup>();
    group->ranks = ranks;
    group->rank = ranks[static_cast<size_t>(group_rank)];
  }
  return *group;
}

void FlightRecorder::renew(const std::vector<int64_t>& ranks) {
  const Lock lock(mutex_);
  const auto found = groups_.find(ranks);
  if (found != groups_.end()) {
    found->second->failed = false;
    found->second->collectives = 0;
  }
}

void FlightRecorder::fill(Slot& slot, const CollectiveCall& call) {
  slot.outline = outline_of(call);
  slot.truncated =
      std::max(call.input_counts.size(), call.output_counts.size()) >
      Slot::kCounts;
  slot.input_size = copy_counts(slot.input_counts, call.input_counts);
  slot.output_size = copy_counts(slot.output_counts, call.output_counts);
  slot.in_backward = torch::autograd::get_current_graph_task_id() != -1;
  copy_cause(slot.cause, CallCause::current());
}

int64_t FlightRecorder::start(FlightGroup& group, const CollectiveCall& call) {
  const Ticks now = c10::getApproximateTime();
  const Lock lock(mutex_);
  if (group.failed) {
    return -1;
  }
  const int64_t number = started_++;
  if (number < kCapacity) {
    slots_.emplace_back();
  }
  Slot& slot = slots_[static_cast<size_t>(number % kCapacity)];
  slot.number = number;
  slot.group = &group;
  slot.sequence =
      is_point_to_point(call.kind) ? int64_t{-1} : group.collectives++;
  slot.started = now;
  slot.ended = 0;
  slot.state = FlightState::kStarted;
  fill(slot, call);
  // The place of the next call has left the cache since it was last used.
  const Slot& next =
      slots_[static_cast<size_t>((number + 1) % kCapacity) % slots_.size()];
  __builtin_prefetch(&next, 1);
  __builtin_prefetch(&next.cause, 1);
  return number;
}

// A call that 256 others have followed has lost its place.
FlightRecorder::Slot* FlightRecorder::find(int64_t number) {
  Slot& slot = slots_[static_cast<size_t>(number % kCapacity)];
  return slot.number == number ? &slot : nullptr;
}

void FlightRecorder::note_done(int64_t number) {
  const Ticks now = c10::getApproximateTime();
  const Lock lock(mutex_);
  Slot* slot = find(number);
  if (slot != nullptr && slot->ended == 0) {
    slot->ended = now;
  }
}

void FlightRecorder::end(int64_t number, FlightState state) {
  const Ticks now = c10::getApproximateTime();
  const Lock lock(mutex_);
  if (Slot* slot = find(number)) {
    slot->state = state;
    slot->ended = slot->ended == 0 ? now : slot->ended;
  }
}

void FlightRecorder::end(
    int64_t number, FlightState state, FlightGroup& group,
    const std::string& error, bool breaks) {
  end(number, state);
  {
    const Lock lock(mutex_);
    errors_.erase(errors_.begin(), errors_.lower_bound(started_ - kCapacity));
    errors_[number] = reason_in(error, group);
    if (!breaks || std::exchange(group.failed, true)) {
      return;
    }
    printed_ = started_;
  }
  print([&] { return error; });
}

void FlightRecorder::rank_failed(const std::exception_ptr& exception) noexcept {
  {
    const Lock lock(mutex_);
    if (printed_ == started_) {
      return;
    }
    printed_ = started_;
  }
  print(
      [&] { return "an exception ended this rank: " + message_of(exception); });
}

void FlightRecorder::print(
    const std::function<std::string()>& why) const noexcept {
  using std::chrono::system_clock;
  print_flight_record([&] {
    const auto age =
        duration_cast<system_clock::duration>(Clock::now() - begin_);
    return FlightRecord{entries(), why(), system_clock::now() - age};
  });
}

FlightEntry FlightRecorder::entry_of(const Slot& slot) const {
  FlightEntry entry{
      .rank = slot.group->rank,
      .ranks = slot.group->ranks,
      .number = slot.number,
      .sequence = slot.sequence,
      .kind = name_of(slot.outline.kind),
      .call = describe(
          slot.outline, {slot.input_counts.data(), slot.input_size},
          {slot.output_counts.data(), slot.output_size}, slot.truncated),
      .cause = slot.cause.data(),
      .in_backward = slot.in_backward,
      .state = slot.state,
      .started = time_between(begin_ticks_, slot.started),
      .took = std::nullopt,
      .error = ""};
  if (slot.ended != 0) {
    entry.took = time_between(slot.started, slot.ended);
  }
  if (const auto error = errors_.find(slot.number); error != errors_.end()) {
    entry.error = error->second;
  }
  return entry;
}

std::vector<FlightEntry> FlightRecorder::entries() const {
  ticks_per_us();  // measured before the lock, since that takes a while
  const Lock lock(mutex_);
  std::vector<FlightEntry> entries;
  for (int64_t n = std::max<int64_t>(0, started_ - kCapacity); n < started_;
       ++n) {
    entries.push_back(entry_of(slots_[static_cast<size_t>(n % kCapacity)]));
  }
  return entries;
}

FlightCall::FlightCall(
    const std::shared_ptr<FlightRecorder>& recorder, FlightGroup& group,
    const CollectiveCall& call)
    : group_(&group), number_(recorder->start(group, call)) {
  if (number_ >= 0) {
    recorder_ = recorder;
  }
}

void FlightCall::note_done() {
  if (recorder_ != nullptr) {
    recorder_->note_done(number_);
  }
}

void FlightCall::complete() {
  if (const auto recorder = std::exchange(recorder_, nullptr)) {
    recorder->end(number_, FlightState::kCompleted);
  }
}

void FlightCall::give_up() {
  if (const auto recorder = std::exchange(recorder_, nullptr)) {
    recorder->end(number_, FlightState::kGivenUp);
  }
}

void FlightCall::fail(const std::exception_ptr& exception) {
  if (const auto recorder = std::exchange(recorder_, nullptr)) {
    recorder->end(
        number_, FlightState::kFailed, *group_, message_of(exception),
        /*breaks=*/true);
  }
}

void FlightCall::refuse(const std::exception_ptr& exception) {
  if (const auto recorder = std::exchange(recorder_, nullptr)) {
    recorder->end(
        number_, FlightState::kRefused, *group_, message_of(exception),
        breaks_the_group(exception));
  }
}

}  // namespace tessera::detail::inline comm_layer
