// Modes of a thread hold in its backward passes on threads that autograd made.
#include <functional>
#include <thread>

#include <c10/core/AutogradState.h>
#include <c10/core/GradMode.h>

#include "numeric_gradient.h"

namespace tessera {
namespace {

using namespace testing;  // NOLINT(google-build-using-namespace)

// Autograd runs backward passes that nest deeper than this on other threads.
constexpr int kMostNested = 60;

void nest(int depth, const std::function<void()>& body) {
  const c10::AutoGradMode on(true);  // off inside of a backward pass
  const at::Tensor x = at::ones({1}).requires_grad_();
  const at::Tensor y = x * 1;
  y.register_hook(
      [&](const at::Tensor&) { depth == 0 ? body() : nest(depth - 1, body); });
  y.backward();
}

// Runs `body` in a backward pass, on a thread that autograd made.
void on_thread_of_autograd(const std::function<void()>& body) {
  const auto mine = std::this_thread::get_id();
  bool ran = false;
  nest(kMostNested + 1, [&] {
    ASSERT_NE(std::this_thread::get_id(), mine);
    ran = true;
    const c10::AutoGradMode on(true);
    body();
  });
  EXPECT_TRUE(ran);
}

TEST(BackwardThreads, AreHeldAgainstStrictMode) {
  run_ranks(2, [] {
    const auto mesh = mesh_of({2});
    const auto a = distribute_tensor(distinct({4, 4}), mesh, {Shard(0)});
    const auto b = distribute_tensor(distinct({4, 4}), mesh, {Shard(1)});
    const auto leaf = leaf_of(distinct({4, 4}), mesh, {Replicate()});
    {
      const StrictMode strict;
      on_thread_of_autograd([&] {
        EXPECT_ERROR("StrictMode forbids implied communication", a.mm(b));
        EXPECT_ERROR(
            "StrictMode forbids implied communication, and the gradient",
            leaf.mul(a).sum().backward());
        const StrictMode gap({.communication = false});
        EXPECT_EQ(error_of([&] { a.mm(b); }), "");
      });
      EXPECT_ERROR("StrictMode forbids implied communication", a.mm(b));
    }
    on_thread_of_autograd([&] { EXPECT_EQ(error_of([&] { a.mm(b); }), ""); });
  });
}

// Where ranks are processes, a backward pass runs on a thread of the GPU. Ranks
// that are threads keep it on their own, since one thread could not serve ranks
// that wait for each other: here none waits.
TEST(BackwardThreads, OfADeviceAreHeldAgainstStrictMode) {
  if (!at::hasCUDA()) {
    GTEST_SKIP() << "no GPU";
  }
  run_ranks(2, [] {
    c10::AutogradState::get_tls_state().set_multithreading_enabled(true);
    const auto mesh = init_device_mesh(at::kCUDA, {2});
    const auto value = distinct({4, 4}).cuda();
    const auto a = distribute_tensor(value, mesh, {Shard(0)});
    const auto b = distribute_tensor(value, mesh, {Shard(1)});
    const auto leaf = at::ones({1}, value.options()).requires_grad_();
    const auto mine = std::this_thread::get_id();
    int ran = 0;
    const at::Tensor y = leaf * 1;
    y.register_hook([&](const at::Tensor&) {
      ASSERT_NE(std::this_thread::get_id(), mine);
      EXPECT_ERROR("StrictMode forbids implied communication", a.mm(b));
      ++ran;
    });
    const StrictMode strict;
    y.backward();
    EXPECT_EQ(ran, 1);
  });
}

TEST(BackwardThreads, CompareGradients) {
  run_ranks(2, [] {
    const auto mesh = mesh_of({2});
    const auto w = leaf_of(distinct({4}), mesh, {Replicate()});
    const auto differ = [&] {
      (to_local(w) * static_cast<double>(mesh.local_rank(0) + 1))
          .sum()
          .backward();
    };
    {
      const GradientCheck check;
      on_thread_of_autograd([&] { EXPECT_ERROR("differ", differ()); });
      const GradientCheck tolerant({.tolerance = 2});
      on_thread_of_autograd([&] { EXPECT_EQ(error_of(differ), ""); });
    }
    on_thread_of_autograd([&] { EXPECT_EQ(error_of(differ), ""); });
  });
}

TEST(BackwardThreads, ComparePlainTensors) {
  run_ranks(2, [] {
    const auto mesh = mesh_of({2});
    const auto mine =
        at::full({2}, static_cast<double>(mesh.local_rank(0)), f64());
    const auto place = [&] {
      distribute_tensor(
          mine, mesh, {Replicate()}, {.src_data_rank = std::nullopt});
    };
    {
      const ReplicationCheck check;
      on_thread_of_autograd([&] { EXPECT_ERROR("equal on all", place()); });
    }
    on_thread_of_autograd([&] { EXPECT_EQ(error_of(place), ""); });
  });
}

// Where messages are dear, one collective over both mesh dims is cheapest;
// where a link is slow, less travels there if the other dim reduces first.
const MachineModel kDearMessages{.link = {.latency = 1, .bandwidth = 1e12}};
const MachineModel kSlowLink{
    .link = {.latency = 0, .bandwidth = 1e12},
    .links = {
        {.latency = 0, .bandwidth = 1e12}, {.latency = 0, .bandwidth = 1e3}}};

TEST(BackwardThreads, PlanForTheMachineOfTheirCaller) {
  run_ranks(4, [] {
    const auto mesh = mesh_of({2, 2});
    const CommLog log;
    const auto x = from_local(distinct({64, 64}), mesh, {Partial(), Partial()});
    const auto reduce = [&] {
      const int64_t before = log.count();
      redistribute(x, {Replicate(), Replicate()});
      return log.count() - before;
    };
    // Twice, so that plans which such a thread has kept are out of date.
    for (const bool dear : {true, false, true, false}) {
      set_machine_model(dear ? kDearMessages : kSlowLink);
      const int64_t calls = reduce();
      EXPECT_EQ(calls == 1, dear);
      on_thread_of_autograd([&] {
        EXPECT_EQ(machine_model().link.latency, dear ? 1 : 0);
        EXPECT_EQ(reduce(), calls);
      });
    }
  });
}

// A small factor that is partial beside a large one that is cut: to gather the
// large one is one message, to reduce the small one are two that send less.
TEST(BackwardThreads, DecideForTheMachineOfTheirCaller) {
  run_ranks(2, [] {
    const auto mesh = mesh_of({2});
    const auto a = from_local(distinct({4, 8}), mesh, {Partial()});
    const auto b = distribute_tensor(distinct({8, 6400}), mesh, {Shard(1)});
    for (const bool dear : {true, false, true, false}) {
      set_machine_model(dear ? kDearMessages : kSlowLink);
      const Placements mine{dear ? Partial() : Shard(1)};
      EXPECT_EQ(spec(a.mm(b)).placements(), mine);
      on_thread_of_autograd(
          [&] { EXPECT_EQ(spec(a.mm(b)).placements(), mine); });
    }
  });
}

TEST(BackwardThreads, DrawEqualNumbersWhereAsked) {
  run_ranks(2, [] {
    const Communicator all = init().communicator();
    manual_seed(7);
    const ReplicatedRandom equal;
    on_thread_of_autograd([&] {
      const at::Tensor mine = at::rand({4}, f64());
      at::Tensor sum = mine.clone();
      all.all_reduce(sum);
      EXPECT_TRUE(at::allclose(sum, 2 * mine));
    });
  });
}

TEST(BackwardThreads, HaveTheCurrentMesh) {
  run_ranks(2, [] {
    const auto mesh = mesh_of({2}, {"tp"});
    {
      const MeshGuard guard(mesh);
      on_thread_of_autograd([&] { EXPECT_EQ(current_mesh(), mesh); });
    }
    on_thread_of_autograd([] { EXPECT_ERROR("has none", current_mesh()); });
  });
}

TEST(BackwardThreads, ArePartOfTheirCallersRank) {
  run_ranks(2, [] {
    const World world = init();
    std::thread([&] {
      const RankGuard guard(world, "second");
      on_thread_of_autograd([&] {
        EXPECT_EQ(rank(), world.rank());
        at::Tensor one = at::ones({1});
        world.communicator().all_reduce(one);
        EXPECT_EQ(one.item<double>(), 2);
      });
    }).join();
  });
}

TEST(BackwardThreads, OfRanksDoNotInheritFromTheProgram) {
  const StrictMode strict;
  run_ranks(2, [] {
    const auto mesh = mesh_of({2});
    const auto a = distribute_tensor(distinct({4, 4}), mesh, {Shard(0)});
    const auto b = distribute_tensor(distinct({4, 4}), mesh, {Shard(1)});
    EXPECT_EQ(error_of([&] { a.mm(b); }), "");
  });
}

}  // namespace
}  // namespace tessera
