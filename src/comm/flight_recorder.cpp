#include <tessera/comm/flight_recorder.h>

#include <c10/util/StringUtil.h>

#include "base/escape.h"
#include "base/text.h"
#include "comm/engine/engine.h"
#include "comm/this_rank.h"

namespace tessera {
namespace {

// "12.304 ms".
std::string milliseconds(std::chrono::microseconds time) {
  const int64_t count = time.count();
  return c10::str(
      count / 1000, ".", std::to_string(1000 + count % 1000).substr(1), " ms");
}

// Of a large group the first ranks, the last one, and how many there are.
std::string group_text(const std::vector<int64_t>& ranks) {
  constexpr size_t kShown = 16;
  if (ranks.size() <= kShown) {
    return detail::describe_group(ranks);
  }
  const std::vector<int64_t> first(ranks.begin(), ranks.begin() + kShown / 2);
  return c10::str(
      "group {", base::join(first, ", "), ", ..., ", ranks.back(), "} of ",
      ranks.size(), " ranks");
}

std::string state_text(const FlightEntry& entry) {
  const std::string after =
      entry.took ? " after " + milliseconds(*entry.took) : "";
  switch (entry.state) {
    case FlightState::kStarted:
      return entry.took ? "done" + after + ", not waited for" : "under way";
    case FlightState::kCompleted:
    case FlightState::kFailed:
    case FlightState::kRefused:
      return to_string(entry.state) + after;
    case FlightState::kGivenUp:
      return "given up" + after + " for an exception on this rank";
  }
  return "?";
}

// As the content of a JSON string.
std::string json_text(const std::string& text) {
  std::string result;
  for (const char c : base::escape(text)) {
    if (c == '"' || c == '\\') {
      result.push_back('\\');
    }
    result.push_back(c);
  }
  return result;
}

}  // namespace

std::vector<FlightEntry> flight_record() {
  return detail::this_rank()->logs()->flight->entries();
}

std::string to_string(FlightState state) {
  switch (state) {
    case FlightState::kStarted:
      return "started";
    case FlightState::kCompleted:
      return "completed";
    case FlightState::kFailed:
      return "failed";
    case FlightState::kGivenUp:
      return "given up";
    case FlightState::kRefused:
      return "refused";
  }
  return "?";
}

std::string to_string(const FlightEntry& entry) {
  return c10::str(
      "rank ", entry.rank, ": ",
      entry.sequence < 0 ? "message" : c10::str("call ", entry.sequence),
      " on ", group_text(entry.ranks), ": ", entry.call, ", ",
      base::escape(entry.cause), entry.in_backward ? " in backward" : "",
      ", started ", milliseconds(entry.started), ", ", state_text(entry),
      entry.error.empty() ? "" : ": ", base::escape(entry.error));
}

std::string to_json(const FlightEntry& entry) {
  return c10::str(
      "{\"rank\": ", entry.rank, ", \"ranks\": [",
      base::join(entry.ranks, ", "), "], \"number\": ", entry.number,
      ", \"sequence\": ", entry.sequence, ", \"kind\": \"", entry.kind,
      "\", \"call\": \"", entry.call, "\", \"cause\": \"",
      json_text(entry.cause),
      "\", \"in_backward\": ", entry.in_backward ? "true" : "false",
      ", \"state\": \"", to_string(entry.state),
      "\", \"started\": ", entry.started.count(),
      ", \"took\": ", entry.took ? std::to_string(entry.took->count()) : "null",
      ", \"error\": \"", json_text(entry.error), "\"}");
}

}  // namespace tessera
