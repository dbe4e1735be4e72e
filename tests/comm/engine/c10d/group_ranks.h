// Ranks of a ready process group as threads of this process: each has a Gloo
// group over a store in memory, as a program would have made it.
#pragma once

#include <gtest/gtest.h>

#include <chrono>
#include <functional>
#include <string>
#include <thread>
#include <vector>

#include <tessera/comm/from_process_group.h>
#include <torch/csrc/distributed/c10d/HashStore.hpp>
#include <torch/csrc/distributed/c10d/PrefixStore.hpp>
#include <torch/csrc/distributed/c10d/ProcessGroup.hpp>
#include <torch/csrc/distributed/c10d/ProcessGroupGloo.hpp>

#include "comm/engine/c10d/plain_backend.h"
#include "comm/expect_error.h"

namespace tessera::testing {

using GroupPtr = c10::intrusive_ptr<::c10d::ProcessGroup>;

/// What the process group of the tests is like.
enum class GroupKind : uint8_t {
  kGloo,     // Gloo and a store: connections are made beside it
  kPlain,    // another backend and a store: the same
  kNoStore,  // another backend alone: it carries the calls
};

inline std::string name_of(GroupKind kind) {
  return kind == GroupKind::kGloo    ? "Gloo"
         : kind == GroupKind::kPlain ? "PlainBackend"
                                     : "NoStore";
}

inline GroupPtr make_group(
    GroupKind kind, const c10::intrusive_ptr<::c10d::Store>& store, int rank,
    int size) {
  using ::c10d::ProcessGroup;
  using ::c10d::ProcessGroupGloo;
  auto options = ProcessGroupGloo::Options::create(std::chrono::seconds(20));
  options->devices.push_back(
      ProcessGroupGloo::createDeviceForHostname("127.0.0.1"));
  c10::intrusive_ptr<::c10d::Backend> backend =
      c10::make_intrusive<ProcessGroupGloo>(store, rank, size, options);
  auto type = ProcessGroup::BackendType::GLOO;
  if (kind != GroupKind::kGloo) {
    backend = c10::make_intrusive<PlainBackend>(backend);
    type = ProcessGroup::BackendType::CUSTOM;
  }
  auto group = kind == GroupKind::kNoStore
                   ? c10::make_intrusive<ProcessGroup>(rank, size)
                   : c10::make_intrusive<ProcessGroup>(store, rank, size);
  group->setBackend(at::kCPU, type, backend);
  group->setDefaultBackend(type);
  return group;
}

/// Runs `body` on `n` ranks with their groups; fails the test with what a rank
/// throws.
inline void run_group_ranks(
    GroupKind kind, int n, const std::function<void(const GroupPtr&)>& body) {
  const auto store = c10::make_intrusive<::c10d::HashStore>();
  std::vector<std::string> errors(static_cast<size_t>(n));
  std::vector<std::thread> threads;
  for (int r = 0; r < n; ++r) {
    threads.emplace_back([&, r] {
      errors[static_cast<size_t>(r)] =
          error_of([&] { body(make_group(kind, store, r, n)); });
    });
  }
  for (std::thread& thread : threads) {
    thread.join();
  }
  for (int r = 0; r < n; ++r) {
    EXPECT_EQ(errors[static_cast<size_t>(r)], "") << "rank " << r;
  }
}

/// Sums rank + 1 by the process group itself, which must still be whole.
inline void expect_group_works(const GroupPtr& group) {
  std::vector<at::Tensor> sum = {at::full({1}, group->getRank() + 1)};
  group->getBackend(at::kCPU)->allreduce(sum)->wait();
  const int64_t n = group->getSize();
  EXPECT_EQ(sum[0].item<int64_t>(), n * (n + 1) / 2);
}

}  // namespace tessera::testing
