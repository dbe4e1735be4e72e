// Asynchronous calls between processes go on while the program computes: a
// gather of 64 MiB hides behind matrix products. For ranks that are processes.
#include <algorithm>
#include <chrono>
#include <functional>
#include <iostream>

#include <harness/ranks.h>
#include <tessera/tessera.h>
#include <torch/torch.h>

namespace tessera {
namespace {

constexpr int64_t kNumel = 16 << 20;  // f32, of the result
constexpr int kProducts = 30;
constexpr int kRounds = 3;

double seconds(const std::function<void()>& body) {
  const auto began = std::chrono::steady_clock::now();
  body();
  const std::chrono::duration<double> took =
      std::chrono::steady_clock::now() - began;
  return took.count();
}

// What a gather took at least, over a few rounds, with `work` between its call
// and its wait. A call may do a part of the copying before it returns, by the
// time at which the other rank arrives, so the wait alone says little of the
// gather.
struct Times {
  double wait = 1e9;
  double call_and_wait = 1e9;
};

Times gather_around(const std::function<void()>& work) {
  const Communicator all = init().communicator();
  const at::Tensor mine =
      at::full({kNumel / all.size()}, static_cast<double>(rank() + 1));
  const at::Tensor whole = at::zeros({kNumel});
  Times least;
  for (int round = 0; round < kRounds; ++round) {
    whole.zero_();
    all.barrier();
    Communicator::Work gather;
    const double call =
        seconds([&] { gather = all.all_gather_async(whole, mine); });
    work();
    const double wait = seconds([&] { gather.wait(); });
    least.wait = std::min(least.wait, wait);
    least.call_and_wait = std::min(least.call_and_wait, call + wait);
    EXPECT_EQ(whole[0].item<double>(), 1);
    EXPECT_EQ(whole[-1].item<double>(), static_cast<double>(all.size()));
  }
  return least;
}

void expect_hidden(const std::function<void()>& product) {
  if (!harness::on_processes()) {
    harness::skip_test("needs ranks that are processes");
  }
  const double alone = gather_around([] {}).call_and_wait;
  const double behind = gather_around([&] {
                          for (int i = 0; i < kProducts; ++i) {
                            product();
                          }
                        }).wait;
  std::cout << "rank " << rank() << ": a gather of 64 MiB takes " << 1e3 * alone
            << " ms alone, the wait for it " << 1e3 * behind << " ms behind "
            << kProducts << " products\n";
  EXPECT_LT(behind, 0.2 * alone);
}

TEST(Progress, OfAGatherHappensInOperatorsOnShardedTensors) {
  const DeviceMesh mesh = init_device_mesh(at::kCPU, {world_size()});
  const at::Tensor a = ones({512, 512}, mesh, {Replicate()});
  at::Tensor c;
  expect_hidden([&] { c = at::mm(a, a); });
}

TEST(Progress, IsMadeByHandBetweenPlainOperators) {
  const at::Tensor a = at::ones({512, 512});
  at::Tensor c;
  expect_hidden([&] {
    c = at::mm(a, a);
    progress();
  });
}

TEST(Progress, WithoutACallUnderWayDoesNothing) {
  progress();
}

}  // namespace
}  // namespace tessera
