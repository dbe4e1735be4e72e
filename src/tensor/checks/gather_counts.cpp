#include <tensor/checks/gather_counts.h>

#include <algorithm>
#include <map>
#include <mutex>

#include <c10/util/Exception.h>
#include <comm/log/call_cause.h>
#include <tensor/call/gathers.h>
#include <tensor/impl/sharded_impl.h>
#include <tensor/move/view_copies.h>
#include <tessera/layout/notation.h>
#include <tessera/tensor/gather_counts.h>

namespace tessera {

namespace {

// The counts of a process, by operator.
struct Gathers {
  std::mutex mutex;
  std::map<std::string, GatherCount> counts;
};

Gathers& counted_gathers() {
  static auto* instance = new Gathers();  // for threads that outlive main()
  return *instance;
}

}  // namespace

std::vector<GatherCount> gather_counts() {
  std::vector<GatherCount> result;
  {
    const std::lock_guard<std::mutex> lock(counted_gathers().mutex);
    for (const auto& [op, count] : counted_gathers().counts) {
      result.push_back(count);
    }
  }
  std::stable_sort(
      result.begin(), result.end(),
      [](const auto& a, const auto& b) { return a.bytes > b.bytes; });
  return result;
}

namespace detail::inline tensor_layer {

namespace {

// Returns whether it is the operator's first.
bool add_gather(const std::string& op, int64_t bytes) {
  const std::lock_guard<std::mutex> lock(counted_gathers().mutex);
  GatherCount& count = counted_gathers().counts[op];
  count.op = op;
  count.bytes += bytes;
  return ++count.count == 1;
}

void count_moves(
    const OpCall& call, const std::vector<Move>& moves, bool warns) {
  const CallCause* cause = CallCause::current();
  if (cause != nullptr && cause->asked()) {
    return;
  }
  for (const Move& move : moves) {
    if (!is_gather(move)) {
      continue;
    }
    const int64_t bytes = gained_bytes(*move.source, move.target);
    if (add_gather(full_name(call.op().operator_name()), bytes) && warns) {
      TORCH_WARN(
          call.describe(), ": gathers ",
          call.schema().arguments()[move.argument].name(),
          move.is_refresh ? ", a view into a copy that was written since, "
                          : ", ",
          to_string(move.source->placements()), " -> ", to_string(move.target),
          ", ", bytes,
          " bytes more on this rank; right, but slow and large (said once per "
          "operator; gather_counts() counts on, StrictMode({.gathers = true}) "
          "makes it an error)");
    }
  }
}

bool has_view_into_copy(const OpCall& call) {
  bool found = false;
  call.for_each_argument_tensor([&](const at::Tensor& t) {
    found = found || (is_sharded(t) && meta_nowait(t).copy != nullptr);
  });
  return found;
}

}  // namespace

void count_gathers(
    const OpCall& call, const OpTraits& traits, const Decision& decision) {
  // Kernels that move nothing are many and cheap: views, detach.
  const bool is_custom = decision.strategy == Strategy::kCustomKernel;
  if (is_custom && traits.custom_kernel_moves == nullptr) {
    return;
  }
  if (call.mesh()->coordinate() &&
      (is_custom || decision.gathers || has_view_into_copy(call))) {
    count_moves(
        call, moves_of(call, traits, decision),
        /*warns=*/!decision.is_fallback);
  }
}

void count_gathers(const OpCall& call, const std::vector<Move>& moves) {
  if (call.mesh()->coordinate()) {
    count_moves(call, moves, /*warns=*/true);
  }
}

}  // namespace detail::inline tensor_layer
}  // namespace tessera
