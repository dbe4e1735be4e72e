#include <tessera/comm/communicator.h>

#include <algorithm>
#include <cstdlib>
#include <utility>

#include <ATen/ops/empty.h>
#include <c10/util/Exception.h>

#include "comm/call/check_call.h"
#include "comm/direct.h"
#include "comm/engine/engine.h"
#include "comm/engine/guarded_rank.h"
#include "comm/log/call_cause.h"
#include "comm/others.h"
#include "comm/wait_hooks.h"

namespace tessera {

namespace {
using detail::Work;
}  // namespace

using detail::CallKind;
using detail::CallSite;
using detail::CollectiveCall;
using detail::CommunicatorImpl;

namespace {

void wait_for(detail::WorkImpl& work) {
  try {
    const detail::HostWait host;
    work.wait();
  } catch (...) {
    work.flight.fail(std::current_exception());
    throw;
  }
  work.flight.complete();
}

void give_up(detail::WorkImpl& work) {
  work.flight.give_up();
  const detail::HostWait host;
  work.abandon();
}

void drop(std::unique_ptr<detail::WorkImpl> impl) noexcept {
  if (impl == nullptr) {
    return;
  }
  try {
    impl->is_unwinding() ? give_up(*impl) : wait_for(*impl);
  } catch (...) {
    // The group is broken now, so its next call reports what went wrong.
    static_cast<void>(0);
  }
}

CommunicatorImpl& defined_impl(const std::shared_ptr<CommunicatorImpl>& impl) {
  TORCH_CHECK_VALUE(
      impl != nullptr,
      "Communicator: the handle is undefined; this rank is in no such group "
      "(split() with a negative color, or a default-made handle)");
  return *impl;
}

detail::FlightGroup& flight_group_of(CommunicatorImpl& impl) {
  detail::FlightGroup* group =
      impl.flight_group.load(std::memory_order_acquire);
  if (group == nullptr) {
    group = &impl.logs()->flight->group(impl.ranks(), impl.rank());
    impl.flight_group.store(group, std::memory_order_release);
  }
  return *group;
}

// Submits with an entry in the flight record.
Work submit_in_flight(CommunicatorImpl& impl, CollectiveCall&& call) {
  detail::FlightCall flight(impl.logs()->flight, flight_group_of(impl), call);
  std::unique_ptr<detail::WorkImpl> work;
  try {
    work = impl.submit(std::move(call));
  } catch (...) {
    flight.refuse(std::current_exception());
    throw;
  }
  work->flight = std::move(flight);
  return Work(std::move(work));
}

Work submit(CommunicatorImpl& impl, CollectiveCall call) {
  const CallSite site{call.kind, impl.ranks(), impl.rank()};
  detail::check_call(call, site);
  // A message may pass between draws that both ranks make: not stamped.
  if (impl.random != nullptr && !detail::is_point_to_point(call.kind)) {
    call.stamp = impl.random->stamp();
  }
  if (site.size() == 1) {
    return Work(impl.submit(std::move(call)));
  }
  if (!detail::is_point_to_point(call.kind)) {
    call.cause = detail::current_cause_fingerprint();
    call.thread = detail::guarded().thread;
    call.cause.took_shards_for_equal =
        impl.of_world != nullptr &&
        impl.of_world->took_shards_for_equal.load(std::memory_order_relaxed);
  }
  if (impl.logs()->empty() || detail::Unrecorded::active()) {
    return submit_in_flight(impl, std::move(call));
  }
  const CommLogEntry entry = detail::entry_of(call, site);
  Work work = submit_in_flight(impl, std::move(call));
  impl.logs()->record(entry);
  return work;
}

int64_t numel_of(const at::Tensor& tensor) {
  return tensor.defined() ? tensor.numel() : 0;
}

// The counts as given, or `each` per rank where none are.
std::vector<int64_t> counts_or_even(
    const CommunicatorImpl& impl, const std::vector<int64_t>& counts,
    int64_t each) {
  return counts.empty() ? std::vector<int64_t>(impl.ranks().size(), each)
                        : counts;
}

// The v forms have no default counts.
void check_given(
    const CommunicatorImpl& impl, CallKind kind,
    const std::vector<int64_t>& counts) {
  TORCH_CHECK_VALUE(
      !counts.empty(), CallSite{kind, impl.ranks(), impl.rank()},
      ": the counts must have one entry per rank; got none for ",
      impl.ranks().size(), " ranks");
}

// An even share of an all_to_all.
int64_t share_of(
    const CommunicatorImpl& impl, const at::Tensor& tensor, const char* role) {
  const auto size = static_cast<int64_t>(impl.ranks().size());
  TORCH_CHECK_VALUE(
      numel_of(tensor) % size == 0,
      CallSite{CallKind::kAllToAll, impl.ranks(), impl.rank()}, ": the ", role,
      " must divide evenly over ", size, " ranks; got ", numel_of(tensor),
      " elements; use all_to_all_v");
  return numel_of(tensor) / size;
}

}  // namespace

Work::Work(std::unique_ptr<detail::WorkImpl> impl) : impl_(std::move(impl)) {}
Work::Work() noexcept = default;
Work::Work(Work&&) noexcept = default;

Work& Work::operator=(Work&& other) noexcept {
  drop(std::exchange(impl_, std::move(other.impl_)));
  return *this;
}

Work::~Work() {
  drop(std::move(impl_));
}

void Work::wait() {
  if (impl_ != nullptr) {
    wait_for(*impl_);
  }
}

bool Work::done() const {
  const bool done = impl_ == nullptr || impl_->done();
  if (done && impl_ != nullptr) {
    impl_->flight.note_done();
  }
  return done;
}

Communicator::Communicator(std::shared_ptr<CommunicatorImpl> impl)
    : impl_(std::move(impl)) {}

int64_t Communicator::rank() const {
  return defined_impl(impl_).rank();
}

int64_t Communicator::size() const {
  return static_cast<int64_t>(ranks().size());
}

const std::vector<int64_t>& Communicator::ranks() const {
  return defined_impl(impl_).ranks();
}

std::string Communicator::engine() const {
  return defined_impl(impl_).engine();
}

Work Communicator::all_gather_async(
    const at::Tensor& output, const at::Tensor& input,
    const std::vector<int64_t>& counts) const {
  CommunicatorImpl& impl = defined_impl(impl_);
  return submit(
      impl, {.kind = CallKind::kAllGather,
             .input = input,
             .output = output,
             .output_counts = counts_or_even(impl, counts, numel_of(input))});
}

Work Communicator::reduce_scatter_async(
    const at::Tensor& output, const at::Tensor& input,
    const std::vector<int64_t>& counts, ReduceOp op) const {
  CommunicatorImpl& impl = defined_impl(impl_);
  return submit(
      impl, {.kind = CallKind::kReduceScatter,
             .input = input,
             .output = output,
             .input_counts = counts_or_even(impl, counts, numel_of(output)),
             .reduce_op = op});
}

Work Communicator::all_reduce_async(
    const at::Tensor& tensor, ReduceOp op) const {
  return all_reduce_async(tensor, tensor, op);
}

Work Communicator::all_reduce_async(
    const at::Tensor& output, const at::Tensor& input, ReduceOp op) const {
  return submit(
      defined_impl(impl_), {.kind = CallKind::kAllReduce,
                            .input = input,
                            .output = output,
                            .reduce_op = op});
}

Work Communicator::all_to_all_async(
    const at::Tensor& output, const at::Tensor& input,
    const std::vector<int64_t>& output_counts,
    const std::vector<int64_t>& input_counts) const {
  CommunicatorImpl& impl = defined_impl(impl_);
  CollectiveCall call{
      .kind = CallKind::kAllToAll,
      .input = input,
      .output = output,
      .input_counts = input_counts,
      .output_counts = output_counts};
  if (input_counts.empty()) {
    call.input_counts.assign(
        impl.ranks().size(), share_of(impl, input, "input"));
  }
  if (output_counts.empty()) {
    call.output_counts.assign(
        impl.ranks().size(), share_of(impl, output, "output"));
  }
  return submit(impl, std::move(call));
}

Work Communicator::broadcast_async(
    const at::Tensor& tensor, int64_t root) const {
  CommunicatorImpl& impl = defined_impl(impl_);
  CollectiveCall call{.kind = CallKind::kBroadcast, .peer = root};
  (impl.rank() == root ? call.input : call.output) = tensor;
  return submit(impl, std::move(call));
}

Work Communicator::scatter_async(
    const at::Tensor& output, const at::Tensor& input,
    const std::vector<int64_t>& counts, int64_t root) const {
  CommunicatorImpl& impl = defined_impl(impl_);
  return submit(
      impl, {.kind = CallKind::kScatter,
             .input = impl.rank() == root ? input : at::Tensor(),
             .output = output,
             .input_counts = counts_or_even(impl, counts, numel_of(output)),
             .peer = root});
}

Work Communicator::gather_async(
    const at::Tensor& output, const at::Tensor& input,
    const std::vector<int64_t>& counts, int64_t root) const {
  CommunicatorImpl& impl = defined_impl(impl_);
  return submit(
      impl, {.kind = CallKind::kGather,
             .input = input,
             .output = impl.rank() == root ? output : at::Tensor(),
             .output_counts = counts_or_even(impl, counts, numel_of(input)),
             .peer = root});
}

Work Communicator::send_async(
    const at::Tensor& tensor, int64_t dst, int64_t tag) const {
  return submit(
      defined_impl(impl_),
      {.kind = CallKind::kSend, .input = tensor, .peer = dst, .tag = tag});
}

Work Communicator::recv_async(
    const at::Tensor& tensor, int64_t src, int64_t tag) const {
  return submit(
      defined_impl(impl_),
      {.kind = CallKind::kRecv, .output = tensor, .peer = src, .tag = tag});
}

namespace detail::inline comm_layer {

CommunicatorImpl& impl_of(const Communicator& group) {
  return defined_impl(group.impl_);
}

bool shares_memory(const Communicator& group) {
  static const bool packs = [] {
    const char* value = std::getenv("TESSERA_PACK");
    return value != nullptr && std::string(value) == "1";
  }();
  return !packs && impl_of(group).shares_memory();
}

Work all_gather_direct(
    const Communicator& group, const at::Tensor& output,
    const at::Tensor& input, const std::vector<StridedCopies>& reads,
    const std::vector<int64_t>& counts) {
  return submit(
      impl_of(group), {.kind = CallKind::kAllGather,
                       .input = input,
                       .output = output,
                       .output_counts = counts,
                       .reads = &reads});
}

Work all_to_all_direct(
    const Communicator& group, const at::Tensor& output,
    const at::Tensor& input, const std::vector<StridedCopies>& reads,
    const std::vector<int64_t>& received, const std::vector<int64_t>& sent) {
  return submit(
      impl_of(group), {.kind = CallKind::kAllToAll,
                       .input = input,
                       .output = output,
                       .input_counts = sent,
                       .output_counts = received,
                       .reads = &reads});
}

Work all_gather_others(
    const Communicator& group, const at::Tensor& output,
    const at::Tensor& input, const std::vector<int64_t>& counts) {
  return submit(
      impl_of(group), {.kind = CallKind::kAllGather,
                       .input = input,
                       .output = output,
                       .output_counts = counts,
                       .without_own = true});
}

Work reduce_scatter_others(
    const Communicator& group, const at::Tensor& output,
    const at::Tensor& input, const at::Tensor& landing,
    const std::vector<int64_t>& counts, ReduceOp op) {
  return submit(
      impl_of(group), {.kind = CallKind::kReduceScatter,
                       .input = input,
                       .output = output,
                       .input_counts = counts,
                       .without_own = true,
                       .landing = landing,
                       .reduce_op = op});
}

Work all_gather_list(
    const Communicator& group, std::shared_ptr<const TensorList> list,
    const std::vector<int64_t>& counts) {
  return submit(
      impl_of(group), {.kind = CallKind::kAllGather,
                       .output_counts = counts,
                       .list = std::move(list)});
}

Work reduce_scatter_list(
    const Communicator& group, std::shared_ptr<const TensorList> list,
    const std::vector<int64_t>& counts, ReduceOp op) {
  return submit(
      impl_of(group), {.kind = CallKind::kReduceScatter,
                       .input_counts = counts,
                       .reduce_op = op,
                       .list = std::move(list)});
}

Work all_reduce_list(
    const Communicator& group, std::shared_ptr<const TensorList> list,
    ReduceOp op) {
  return submit(
      impl_of(group),
      {.kind = CallKind::kAllReduce, .reduce_op = op, .list = std::move(list)});
}

}  // namespace detail::inline comm_layer

void Communicator::all_gather(
    const at::Tensor& output, const at::Tensor& input) const {
  all_gather_async(output, input).wait();
}

void Communicator::all_gather_v(
    const at::Tensor& output, const at::Tensor& input,
    const std::vector<int64_t>& counts) const {
  check_given(defined_impl(impl_), CallKind::kAllGather, counts);
  all_gather_async(output, input, counts).wait();
}

void Communicator::reduce_scatter(
    const at::Tensor& output, const at::Tensor& input, ReduceOp op) const {
  reduce_scatter_async(output, input, {}, op).wait();
}

void Communicator::reduce_scatter_v(
    const at::Tensor& output, const at::Tensor& input,
    const std::vector<int64_t>& counts, ReduceOp op) const {
  check_given(defined_impl(impl_), CallKind::kReduceScatter, counts);
  reduce_scatter_async(output, input, counts, op).wait();
}

void Communicator::all_reduce(const at::Tensor& tensor, ReduceOp op) const {
  all_reduce_async(tensor, op).wait();
}

void Communicator::all_reduce(
    const at::Tensor& output, const at::Tensor& input, ReduceOp op) const {
  all_reduce_async(output, input, op).wait();
}

void Communicator::all_to_all(
    const at::Tensor& output, const at::Tensor& input) const {
  all_to_all_async(output, input).wait();
}

void Communicator::all_to_all_v(
    const at::Tensor& output, const at::Tensor& input,
    const std::vector<int64_t>& output_counts,
    const std::vector<int64_t>& input_counts) const {
  check_given(defined_impl(impl_), CallKind::kAllToAll, output_counts);
  check_given(defined_impl(impl_), CallKind::kAllToAll, input_counts);
  all_to_all_async(output, input, output_counts, input_counts).wait();
}

void Communicator::broadcast(const at::Tensor& tensor, int64_t root) const {
  broadcast_async(tensor, root).wait();
}

void Communicator::scatter(
    const at::Tensor& output, const at::Tensor& input, int64_t root) const {
  scatter_async(output, input, {}, root).wait();
}

void Communicator::scatter_v(
    const at::Tensor& output, const at::Tensor& input,
    const std::vector<int64_t>& counts, int64_t root) const {
  check_given(defined_impl(impl_), CallKind::kScatter, counts);
  scatter_async(output, input, counts, root).wait();
}

void Communicator::gather(
    const at::Tensor& output, const at::Tensor& input, int64_t root) const {
  gather_async(output, input, {}, root).wait();
}

void Communicator::gather_v(
    const at::Tensor& output, const at::Tensor& input,
    const std::vector<int64_t>& counts, int64_t root) const {
  check_given(defined_impl(impl_), CallKind::kGather, counts);
  gather_async(output, input, counts, root).wait();
}

void Communicator::send(
    const at::Tensor& tensor, int64_t dst, int64_t tag) const {
  send_async(tensor, dst, tag).wait();
}

void Communicator::recv(
    const at::Tensor& tensor, int64_t src, int64_t tag) const {
  recv_async(tensor, src, tag).wait();
}

void Communicator::barrier() const {
  submit(defined_impl(impl_), {.kind = CallKind::kBarrier}).wait();
}

Communicator Communicator::split(int64_t color, int64_t key) const {
  CommunicatorImpl& impl = defined_impl(impl_);
  const at::Tensor mine = at::empty({2}, at::kLong);
  const at::Tensor all = at::empty({size(), 2}, at::kLong);
  mine.mutable_data_ptr<int64_t>()[0] = color;
  mine.mutable_data_ptr<int64_t>()[1] = key;
  submit(
      impl, {.kind = CallKind::kSplit,
             .input = mine,
             .output = all,
             .output_counts = std::vector<int64_t>(impl.ranks().size(), 2)})
      .wait();
  if (color < 0) {
    return {};
  }
  const int64_t* pairs = all.const_data_ptr<int64_t>();
  std::vector<int64_t> group_ranks;
  for (int64_t group_rank = 0; group_rank < size(); ++group_rank) {
    if (pairs[2 * group_rank] == color) {
      group_ranks.push_back(group_rank);
    }
  }
  std::stable_sort(
      group_ranks.begin(), group_ranks.end(), [&](int64_t a, int64_t b) {
        return pairs[2 * a + 1] < pairs[2 * b + 1];
      });
  for (int64_t& group_rank : group_ranks) {
    group_rank = impl.ranks()[static_cast<size_t>(group_rank)];
  }
  auto group = impl.subgroup(group_ranks);
  group->random = impl.random;
  group->of_world = impl.of_world;
  return Communicator(std::move(group));
}

}  // namespace tessera
