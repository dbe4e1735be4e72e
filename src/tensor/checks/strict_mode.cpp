#include <algorithm>
#include <iterator>
#include <map>
#include <mutex>
#include <sstream>

#include <base/text.h>
#include <c10/util/Exception.h>
#include <comm/engine/inherited_modes.h>
#include <comm/log/call_cause.h>
#include <tensor/call/moves.h>
#include <tensor/checks/strict_mode.h>
#include <tessera/layout/notation.h>

namespace tessera {

namespace {
const StrictOptions* strict_options() {
  return detail::mode_value<StrictOptions>(detail::Mode::kStrict);
}

// The counts of a process: operator -> calls.
struct Fallbacks {
  std::mutex mutex;
  std::map<std::string, int64_t> counts;
};

Fallbacks& fallbacks() {
  static auto* instance = new Fallbacks();  // for threads that outlive main()
  return *instance;
}
}  // namespace

StrictMode::StrictMode(const StrictOptions& options)
    : outer_(detail::exchange_mode(
          detail::Mode::kStrict,
          std::make_shared<const StrictOptions>(options))) {}

StrictMode::~StrictMode() {
  detail::exchange_mode(detail::Mode::kStrict, std::move(outer_));
}

std::vector<FallbackCount> fallback_counts() {
  std::vector<FallbackCount> result;
  {
    const std::lock_guard<std::mutex> lock(fallbacks().mutex);
    for (const auto& [op, count] : fallbacks().counts) {
      result.push_back({op, count});
    }
  }
  std::stable_sort(
      result.begin(), result.end(),
      [](const auto& a, const auto& b) { return a.count > b.count; });
  return result;
}

namespace detail::inline tensor_layer {

bool is_strict() {
  if (strict_options() == nullptr) {
    return false;
  }
  const CallCause* cause = CallCause::current();
  return cause == nullptr || !cause->asked();
}

namespace {

// Prints what the moves would cost: the largest over ranks, so that all ranks
// say the same.
std::string price_of(const OpCall* call, const std::vector<Move>& moves) {
  std::ostringstream out;
  int64_t bytes = 0;
  std::string separator;
  for (const Move& move : moves) {
    if (move.exchange) {
      bytes += move.exchange->bytes;
      out << separator
          << base::with_bytes(move.exchange->text, move.exchange->bytes);
      separator = "; ";
      continue;
    }
    const RedistributePlan plan = plan_of(move);
    bytes += plan.bytes;
    for (const Step& step : plan.steps) {
      if (!communicates(step)) {
        continue;
      }
      out << separator;
      if (call != nullptr) {
        out << call->schema().arguments()[move.argument].name() << ' ';
      }
      out << base::with_bytes(describe(step), step.bytes);
      separator = "; ";
    }
  }
  return c10::str("it would cost ", bytes, " bytes per rank (", out.str(), ")");
}

std::vector<Move> gathers_among(const std::vector<Move>& moves) {
  std::vector<Move> found;
  std::copy_if(
      moves.begin(), moves.end(), std::back_inserter(found),
      [](const Move& move) { return is_gather(move); });
  return found;
}

// Prints "mat2: S(1) -> R, self: S(0) -> R".
std::string gathered(const OpCall& call, const std::vector<Move>& gathers) {
  std::string text;
  for (const Move& move : gathers) {
    text += c10::str(
        text.empty() ? "" : ", ",
        call.schema().arguments()[move.argument].name(), ": ",
        to_string(move.source->placements()), " -> ", to_string(move.target));
  }
  return text;
}

void refuse(const std::string& text) {
  if (strict_options()->warn) {
    TORCH_WARN(text);
  } else {
    TORCH_CHECK_VALUE(false, text);
  }
}

}  // namespace

void check_strict(
    const OpCall& call, const OpTraits& traits, const Decision& decision) {
  const std::vector<Move> moves = moves_of(call, traits, decision);
  if (strict_options()->fallbacks && decision.is_fallback) {
    refuse(c10::str(
        call.describe(), ": StrictMode forbids fallbacks, and this call runs ",
        "on whole values: ", decision.reason, "; ", price_of(&call, moves),
        "; redistribute() the arguments to Replicate first"));
  } else {
    check_strict(call, moves);
  }
}

void check_strict(const OpCall& call, const std::vector<Move>& moves) {
  const std::vector<Move> gathers =
      strict_options()->gathers ? gathers_among(moves) : std::vector<Move>();
  if (!gathers.empty()) {
    refuse(c10::str(
        call.describe(), ": StrictMode forbids gathers, and this call makes ",
        "whole what was cut: ", gathered(call, gathers), "; ",
        price_of(&call, gathers),
        "; cut the arguments so that the operator's rule can keep the cut, ",
        "or redistribute() them first"));
  } else if (strict_options()->communication && communicates(moves)) {
    refuse(c10::str(
        call.describe(), ": StrictMode forbids implied communication; ",
        price_of(&call, moves),
        "; redistribute() the arguments first, or let StrictMode(",
        "{.communication = false}) allow it here"));
  }
}

void check_strict_gradient(const SpecPtr& gradient, const DTensorSpec& leaf) {
  if (strict_options() == nullptr || !strict_options()->leaf_gradients) {
    return;
  }
  const std::vector<Move> moves = {{0, gradient, leaf.placements()}};
  if (strict_options()->gathers && is_gather(moves[0])) {
    return refuse(c10::str(
        "gradient of a leaf, ", to_string(leaf), ", rank ",
        leaf.mesh().world().rank(),
        ": StrictMode forbids gathers, and the gradient arrives cut where its ",
        "leaf is whole; got ", to_string(gradient->placements()), "; ",
        price_of(nullptr, moves),
        "; StrictMode({.leaf_gradients = false}) allows it"));
  }
  if (!strict_options()->communication) {
    return;
  }
  if (communicates(moves)) {
    refuse(c10::str(
        "gradient of a leaf, ", to_string(leaf), ", rank ",
        leaf.mesh().world().rank(),
        ": StrictMode forbids implied communication, and the gradient has ",
        "other placements than its leaf; got ",
        to_string(gradient->placements()), "; ", price_of(nullptr, moves),
        "; StrictMode({.leaf_gradients = false}) allows it"));
  }
}

void count_fallback(const OpCall& call) {
  if (call.mesh()->size() == 1 || !has_sharded_argument(call)) {
    return;
  }
  bool first = false;
  {
    const std::lock_guard<std::mutex> lock(fallbacks().mutex);
    first = ++fallbacks().counts[full_name(call.op().operator_name())] == 1;
  }
  if (first) {
    TORCH_WARN(
        call.describe(),
        ": no sharding rule serves this call, so it runs on gathered whole "
        "values; right, but slow (said once per operator; fallback_counts() "
        "counts on, StrictMode makes it an error)");
  }
}

}  // namespace detail::inline tensor_layer
}  // namespace tessera
