#include <tessera/comm/comm_log.h>

#include <algorithm>
#include <cstdio>
#include <ostream>

#include <ATen/ops/empty.h>
#include <c10/util/Exception.h>
#include <tessera/comm/world.h>

#include "base/text.h"
#include "comm/agreement.h"
#include "comm/engine/engine.h"
#include "comm/log/call_cause.h"
#include "comm/log/call_records.h"
#include "comm/this_rank.h"

namespace tessera {

namespace {

const char* reason_of(bool asked) {
  return asked ? "asked for" : "implied";
}

int64_t sum_of_bytes(const std::vector<CommLogEntry>& entries) {
  int64_t sum = 0;
  for (const CommLogEntry& entry : entries) {
    sum += entry.bytes;
  }
  return sum;
}

std::vector<CommLogSum> sums_of(const std::vector<CommLogEntry>& entries) {
  std::vector<CommLogSum> sums;
  for (const CommLogEntry& entry : entries) {
    auto at = std::find_if(sums.begin(), sums.end(), [&](const auto& sum) {
      return sum.cause == entry.cause && sum.asked == entry.asked;
    });
    if (at == sums.end()) {
      at = sums.insert(at, {entry.cause, entry.asked, 0, 0});
    }
    ++at->count;
    at->bytes += entry.bytes;
  }
  std::stable_sort(sums.begin(), sums.end(), [](const auto& a, const auto& b) {
    return a.bytes > b.bytes;
  });
  return sums;
}

// What a rank recorded, bytes apart: how many entries, then a line each. Equal
// on ranks that recorded the same calls.
std::string calls_of(const std::vector<CommLogEntry>& entries) {
  std::string text = c10::str(entries.size(), " entries");
  for (const CommLogEntry& entry : entries) {
    // A group that is named by its ranks differs between ranks.
    const bool is_named = entry.mesh_dims.empty() && entry.from.empty();
    text += "\n" + entry.cause + "\n" + (is_named ? entry.kind : entry.text);
  }
  return text;
}

void check_same_calls(
    const std::vector<CommLogEntry>& entries, const Communicator& group) {
  const auto different = detail::find_difference(group, calls_of(entries));
  const auto count = [](const std::string& calls) {
    return calls.substr(0, calls.find('\n'));
  };
  TORCH_CHECK_VALUE(
      !different, "CommLog::largest_over on ",
      detail::describe_group(group.ranks()), ", rank ", rank(),
      ": the ranks recorded different calls; rank ", different->rank, " has ",
      count(different->text), ", rank ", different->other_rank, " has ",
      count(different->other_text), "; compare entries() of these ranks");
}

}  // namespace

std::string CommLogEntry::line() const {
  return base::with_bytes(text, bytes);
}

CommLog::CommLog()
    : logs_(detail::this_rank()->logs()),
      records_(std::make_shared<detail::CallRecords>()) {
  logs_->add(records_);
}

CommLog::~CommLog() {
  logs_->remove(records_);
}

std::vector<CommLogEntry> CommLog::entries() const {
  return records_->entries();
}

int64_t CommLog::count() const {
  return static_cast<int64_t>(entries().size());
}

int64_t CommLog::bytes() const {
  return sum_of_bytes(entries());
}

std::vector<CommLogSum> CommLog::by_cause() const {
  return sums_of(entries());
}

void CommLog::clear() {
  records_->clear();
}

std::vector<CommLogEntry> CommLog::largest_over(
    const Communicator& group) const {
  const detail::Unrecorded unrecorded;
  std::vector<CommLogEntry> merged = entries();
  check_same_calls(merged, group);
  const at::Tensor bytes =
      at::empty({static_cast<int64_t>(merged.size())}, at::kLong);
  int64_t* of = bytes.mutable_data_ptr<int64_t>();
  for (size_t i = 0; i < merged.size(); ++i) {
    of[i] = merged[i].bytes;
  }
  group.all_reduce(bytes, ReduceOp::kMax);
  for (size_t i = 0; i < merged.size(); ++i) {
    merged[i].bytes = of[i];
  }
  return merged;
}

std::string to_string(const CommLogEntry& entry) {
  return entry.line() + "; " + entry.cause +
         (entry.in_backward ? " in backward, " : ", ") + reason_of(entry.asked);
}

std::string to_string(const CommLog& log) {
  const auto entries = log.entries();
  std::string text;
  for (const CommLogEntry& entry : entries) {
    text += to_string(entry) + "\n";
  }
  for (const CommLogSum& sum : sums_of(entries)) {
    text += base::with_bytes(
                c10::str(
                    sum.cause, " (", reason_of(sum.asked), "): ", sum.count,
                    sum.count == 1 ? " collective" : " collectives"),
                sum.bytes) +
            "\n";
  }
  return text +
         base::with_bytes(
             c10::str(
                 "total: ", entries.size(),
                 entries.size() == 1 ? " collective" : " collectives"),
             sum_of_bytes(entries)) +
         "\n";
}

namespace {

// A JSON string, quotes included.
std::string json_string(const std::string& text) {
  std::string result = "\"";
  for (const char c : text) {
    if (c == '"' || c == '\\') {
      result.append({'\\', c});
    } else if (static_cast<unsigned char>(c) < ' ') {
      char code[8] = {};
      std::snprintf(code, sizeof(code), "\\u%04x", c);
      result += code;
    } else {
      result.push_back(c);
    }
  }
  return result + "\"";
}

std::string to_json(const CommLogEntry& entry) {
  const auto flag = [](bool value) { return value ? "true" : "false"; };
  return c10::str(
      "{\"cause\": ", json_string(entry.cause),
      ", \"asked\": ", flag(entry.asked),
      ", \"in_backward\": ", flag(entry.in_backward),
      ", \"kind\": ", json_string(entry.kind), ", \"ranks\": [",
      base::join(entry.ranks, ", "),
      "], \"mesh_dims\": ", json_string(entry.mesh_dims),
      ", \"from\": ", json_string(entry.from),
      ", \"to\": ", json_string(entry.to), ", \"dtype\": \"",
      entry.kind == "barrier" ? "" : detail::dtype_name(entry.dtype),
      "\", \"bytes\": ", entry.bytes, ", \"line\": ", json_string(entry.line()),
      "}");
}

}  // namespace

std::string to_json(const CommLog& log) {
  const auto entries = log.entries();
  std::vector<std::string> lines;
  for (const CommLogEntry& entry : entries) {
    lines.push_back(to_json(entry));
  }
  std::vector<std::string> sums;
  for (const CommLogSum& sum : sums_of(entries)) {
    sums.push_back(c10::str(
        "{\"cause\": ", json_string(sum.cause),
        ", \"asked\": ", sum.asked ? "true" : "false",
        ", \"count\": ", sum.count, ", \"bytes\": ", sum.bytes, "}"));
  }
  return c10::str(
      "{\"entries\": [", base::join(lines, ", "), "], \"by_cause\": [",
      base::join(sums, ", "), "], \"count\": ", entries.size(),
      ", \"bytes\": ", sum_of_bytes(entries), "}");
}

std::ostream& operator<<(std::ostream& out, const CommLog& log) {
  return out << to_string(log);
}

}  // namespace tessera
