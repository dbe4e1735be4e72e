// Hooks around the waits of ranks for each other.
#include <tessera/comm/wait_hooks.h>

#include <atomic>

#include <ATen/ops/ones.h>
#include <gtest/gtest.h>
#include <tessera/comm/world.h>

#include "comm/expect_error.h"

namespace tessera {
namespace {

std::atomic<int> before_count = 0;
std::atomic<int> after_count = 0;
int token = 0;

void* before() {
  ++before_count;
  return &token;
}

void after(void* state) {
  EXPECT_EQ(state, &token);
  ++after_count;
}

class WaitHooksTest : public ::testing::Test {
 protected:
  void SetUp() override {
    before_count = 0;
    after_count = 0;
  }
  void TearDown() override { set_wait_hooks({}); }
};

TEST_F(WaitHooksTest, SurroundEveryWait) {
  set_wait_hooks({.before = &before, .after = &after});
  run_ranks(3, [] {
    const at::Tensor x = at::ones({2});
    init().communicator().all_reduce(x);
    init().communicator().barrier();
  });
  // A Work that is dropped waits once more.
  EXPECT_GE(before_count, 6);
  EXPECT_EQ(after_count, before_count);
}

TEST_F(WaitHooksTest, AreCalledAfterAWaitThatThrows) {
  set_wait_hooks({.before = &before, .after = &after});
  EXPECT_ANY_THROW(run_ranks(
      2, [] { init().communicator().all_reduce(at::ones({2 + rank()})); }));
  EXPECT_EQ(before_count, after_count);
  EXPECT_GT(after_count, 0);
}

TEST_F(WaitHooksTest, CanBeRemoved) {
  set_wait_hooks({.before = &before, .after = &after});
  set_wait_hooks({});
  run_ranks(2, [] { init().communicator().barrier(); });
  EXPECT_EQ(before_count, 0);
}

TEST_F(WaitHooksTest, AreSetBothOrNot) {
  expect_error<c10::ValueError>(
      [] { set_wait_hooks({.before = &before}); },
      {"set_wait_hooks: both functions are needed", "got 'before' alone"});
  expect_error<c10::ValueError>(
      [] { set_wait_hooks({.after = &after}); }, {"got 'after' alone"});
}

}  // namespace
}  // namespace tessera
