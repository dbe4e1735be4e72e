#include "comm/log/flight_print.h"

#include <fcntl.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <climits>
#include <cstring>
#include <ctime>
#include <mutex>
#include <string_view>

#include <c10/util/Exception.h>
#include <c10/util/StringUtil.h>

#include "base/environment.h"
#include "base/escape.h"

namespace tessera::detail::inline comm_layer {
namespace {

constexpr const char* kVariable = "TESSERA_FLIGHT_RECORDER";

std::string wanted_output() {
  const std::string output = base::environment(kVariable);
  return output == "0" ? "" : output == "1" ? "stderr" : output;
}

// "2026-03-01 12:00:00.250 UTC".
std::string time_text(std::chrono::system_clock::time_point when) {
  const auto ms = std::chrono::duration_cast<std::chrono::milliseconds>(
                      when.time_since_epoch())
                      .count();
  const std::time_t seconds = ms / 1000;
  std::tm utc{};
  gmtime_r(&seconds, &utc);
  char date[32];
  std::strftime(date, sizeof(date), "%F %T", &utc);
  const std::string fraction = std::to_string(1000 + ms % 1000).substr(1);
  return c10::str(date, ".", fraction, " UTC");
}

bool went_wrong(FlightState state) {
  return state == FlightState::kFailed || state == FlightState::kGivenUp ||
         state == FlightState::kRefused;
}

// A line for why, then one per entry: "rank 2:   call 16", "rank 2: > call 17".
std::string text_of(const FlightRecord& record) {
  const FlightEntry& last = record.entries.back();
  const std::string rank = c10::str("rank ", last.rank, ": ");
  std::string text = c10::str(
      rank, "flight record, ", record.entries.size(), " of ", last.number + 1,
      " calls, times since ", time_text(record.begin), "; ",
      base::escape(record.why), "\n");
  for (const FlightEntry& entry : record.entries) {
    text += rank + (went_wrong(entry.state) ? "> " : "  ") +
            to_string(entry).substr(rank.size()) + "\n";
  }
  return text;
}

std::string json_of(const std::vector<FlightEntry>& entries) {
  std::string text;
  for (const FlightEntry& entry : entries) {
    text += to_json(entry) + "\n";
  }
  return text;
}

// Writes whole lines at a time, as many as a pipe takes at once, so that those
// of several processes do not mix.
bool write_lines(int file, std::string_view text) {
  while (!text.empty()) {
    size_t size = std::min<size_t>(text.size(), PIPE_BUF);
    const size_t line = text.rfind('\n', size - 1);
    size = line == std::string_view::npos ? size : line + 1;
    const ssize_t written = ::write(file, text.data(), size);
    if (written < 0 && errno != EINTR) {
      return false;
    }
    text.remove_prefix(static_cast<size_t>(std::max<ssize_t>(written, 0)));
  }
  return true;
}

// Replaces an earlier record. What else is at that name, a link included, is
// never written through.
void write_file(const std::string& path, const std::string& text) {
  ::unlink(path.c_str());
  const int file = ::open(
      path.c_str(), O_WRONLY | O_CREAT | O_EXCL | O_NOFOLLOW | O_CLOEXEC, 0600);
  const bool written = file >= 0 && write_lines(file, text);
  const int error = errno;
  if (file >= 0) {
    ::close(file);
  }
  TORCH_CHECK_VALUE(
      written, kVariable, ": cannot write ", base::escape(path), ": ",
      std::strerror(error));
}

void write_record(const std::string& output, const FlightRecord& record) {
  if (output == "stderr") {
    write_lines(STDERR_FILENO, text_of(record));
    return;
  }
  write_file(
      c10::str(output, ".rank", record.entries.back().rank),
      output.ends_with(".json") ? json_of(record.entries) : text_of(record));
}

}  // namespace

void print_flight_record(const std::function<FlightRecord()>& make) noexcept {
  static std::mutex mutex;
  try {
    const std::string output = wanted_output();
    if (output.empty()) {
      return;
    }
    const FlightRecord record = make();
    if (!record.entries.empty()) {
      const std::lock_guard<std::mutex> lock(mutex);
      write_record(output, record);
    }
  } catch (const c10::Error& error) {
    write_lines(STDERR_FILENO, c10::str(error.what_without_backtrace(), "\n"));
  } catch (...) {
    write_lines(STDERR_FILENO, "the flight record could not be printed\n");
  }
}

}  // namespace tessera::detail::inline comm_layer
