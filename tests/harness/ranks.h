// Tests that run on ranks, whatever the ranks are: threads, or with
// TESSERA_RUN_RANKS=processes the processes of the job that runs the test.
#pragma once

#include <gtest/gtest.h>
#include <tessera/comm/world.h>

#include <algorithm>
#include <cstdlib>
#include <cstring>
#include <functional>
#include <numeric>
#include <string>
#include <vector>

#include <ATen/ops/empty.h>
#include <c10/util/Exception.h>

namespace tessera::harness {

/// Tells whether ranks are processes; one alone is, too, if a launcher says so.
inline bool on_processes() {
  const char* how = std::getenv("TESSERA_RUN_RANKS");
  return how != nullptr && std::string(how) == "processes" &&
         init().engine() != "threads";
}

/// Ends the test here; it counts as skipped.
[[noreturn]] inline void skip_test(const std::string& why) {
  [&] { GTEST_SKIP() << why; }();
  throw ::testing::AssertionException(::testing::TestPartResult(
      ::testing::TestPartResult::kSkip, __FILE__, __LINE__, why.c_str()));
}

/// tessera::run_ranks(); the test is skipped where a job has fewer processes.
inline void run_ranks(
    int n, const std::function<void()>& body, InitOptions options = {}) {
  if (on_processes() && n > init().size()) {
    skip_test("needs " + std::to_string(n) + " ranks");
  }
  tessera::run_ranks(n, body, options);
}

/// Returns the texts of all processes of the job, in rank order.
inline std::vector<std::string> gather_texts(const std::string& mine) {
  const Communicator all = init().communicator();
  const at::Tensor length = at::empty({1}, at::kLong);
  const at::Tensor lengths = at::empty({all.size()}, at::kLong);
  *length.mutable_data_ptr<int64_t>() = static_cast<int64_t>(mine.size());
  all.all_gather(lengths, length);
  const int64_t* begin = lengths.const_data_ptr<int64_t>();
  const std::vector<int64_t> counts(begin, begin + all.size());
  const at::Tensor text =
      at::empty({static_cast<int64_t>(mine.size())}, at::kByte);
  const at::Tensor texts = at::empty(
      {std::accumulate(counts.begin(), counts.end(), int64_t{0})}, at::kByte);
  std::copy(mine.begin(), mine.end(), text.mutable_data_ptr<uint8_t>());
  all.all_gather_v(texts, text, counts);
  std::vector<std::string> result;
  const uint8_t* next = texts.const_data_ptr<uint8_t>();
  for (const int64_t count : counts) {
    result.emplace_back(next, next + count);
    next += count;
  }
  return result;
}

/// What a program on ranks came to, known to all processes of the job.
struct Outcome {
  std::vector<std::string> texts;  // what each rank's body returned
  std::string error;               // what run_ranks() threw
};

/// Runs a body that returns a text on `n` ranks.
inline Outcome outcome_of(
    int n, const std::function<std::string()>& body, InitOptions options = {}) {
  Outcome outcome;
  outcome.texts.resize(static_cast<size_t>(n));
  try {
    harness::run_ranks(
        n,
        [&] {
          std::string text = body();
          outcome.texts[static_cast<size_t>(rank())] = std::move(text);
        },
        options);
  } catch (const c10::Error& error) {
    outcome.error = error.what_without_backtrace();
  }
  if (on_processes()) {
    const auto me = static_cast<size_t>(init().rank());
    const auto all =
        gather_texts(me < outcome.texts.size() ? outcome.texts[me] : "");
    std::copy_n(all.begin(), outcome.texts.size(), outcome.texts.begin());
  }
  return outcome;
}

}  // namespace tessera::harness
