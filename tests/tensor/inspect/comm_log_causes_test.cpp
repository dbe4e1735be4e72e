// What a CommLog says of the calls that led to a collective.
#include <harness/sharded_test.h>
#include <tensor/inspect/comm_lines.h>
#include <tessera/comm/flight_recorder.h>

#include <thread>

namespace tessera {
namespace {

using testing::counting;
using testing::f64;
using testing::Lines;
using testing::lines_of;
using testing::mesh_of;
using testing::same;

// The causes, each once, in order; "!" where implied, "'" where in backward.
std::string causes_of(const CommLog& log) {
  std::string text;
  std::string last;
  for (const CommLogEntry& entry : log.entries()) {
    const std::string cause =
        entry.cause + (entry.asked ? "" : "!") + (entry.in_backward ? "'" : "");
    if (cause != last) {
      text += (text.empty() ? "" : ", ") + cause;
      last = cause;
    }
  }
  return text;
}

template <class F>
std::string causes_in(F body) {
  CommLog log;
  static_cast<void>(body());
  return causes_of(log);
}

TEST(CommLogCauses, NamesTheFunctionThatWasCalled) {
  run_ranks(4, [&] {
    const auto mesh = mesh_of({2, 2}, {"dp", "tp"});
    CommLog log;
    auto a = distribute_tensor(counting({4, 4}), mesh, {Replicate(), Shard(0)});
    EXPECT_EQ(
        lines_of(log.entries()),
        (Lines{"broadcast dp, 128 bytes", "scatter tp, 64 bytes"}));
    EXPECT_EQ(causes_of(log), "distribute_tensor");
    auto m = counting({4, 4});
    EXPECT_EQ(
        causes_in([&] {
          make_dtensor_(m, mesh, {Shard(1), Shard(0)});
          return m;
        }),
        "make_dtensor_");
    EXPECT_EQ(causes_in([&] { return full_tensor(a); }), "full_tensor");
    EXPECT_EQ(
        causes_in([&] {
          return redistribute(a, {Shard(0), Shard(1)});
        }),
        "redistribute");
    EXPECT_EQ(
        causes_in([&] {
          return from_local(
              counting({2}), mesh, {Replicate(), Shard(0)},
              {.run_check = true});
        }),
        "from_local");
    const auto view = a.unfold(0, 2, 1);  // of a copy: dim 0 is cut
    a.add_(1);
    EXPECT_EQ(causes_in([&] { return to_local(view); }), "to_local");
  });
}

TEST(CommLogCauses, NamesTheOperatorThatImpliesIt) {
  run_ranks(2, [&] {
    const auto mesh = mesh_of({2});
    auto a = distribute_tensor(counting({4, 4}), mesh, {Shard(0)});
    auto b = distribute_tensor(counting({4, 4}), mesh, {Shard(1)});
    EXPECT_EQ(causes_in([&] { return at::mm(a, b); }), "aten::mm!");
    EXPECT_EQ(causes_in([&] { return a + b; }), "aten::add.Tensor!");
    EXPECT_EQ(causes_in([&] { return a + a; }), "");
    EXPECT_EQ(causes_in([&] { return a.copy_(b); }), "aten::copy_!");
    EXPECT_EQ(
        causes_in([&] { return at::linear(a, b.cumsum(1)); }),
        "aten::cumsum!, aten::mm!")
        << "each operator that ATen makes of it";
    CommLog log;
    static_cast<void>(at::mm(a, b));
    static_cast<void>(full_tensor(a));
    static_cast<void>(at::mm(a, a));
    const auto sums = log.by_cause();
    ASSERT_EQ(sums.size(), 2U);
    EXPECT_EQ(
        sums[0],
        (CommLogSum{
            .cause = "aten::mm", .asked = false, .count = 2, .bytes = 128}));
    EXPECT_EQ(sums[1].cause, "full_tensor");
  });
}

TEST(CommLogCauses, TellsGradients) {
  run_ranks(2, [&] {
    const auto mesh = mesh_of({2});
    auto a = distribute_tensor(
        counting({4, 4}).requires_grad_(true), mesh, {Shard(0)});
    auto moved = redistribute(a, {Shard(1)});
    auto sum = to_local(moved).sum();
    EXPECT_EQ(
        causes_in([&] {
          sum.backward();
          return 0;
        }),
        "gradient of redistribute'");
    auto local = counting({4, 4}).requires_grad_(true);
    auto from = from_local(
        local, mesh, {Replicate()}, {.grad_placements = Placements{Partial()}});
    auto used = to_local(redistribute(from, {Shard(0)})).sum();
    EXPECT_EQ(
        causes_in([&] {
          used.backward();
          return 0;
        }),
        "gradient of redistribute'");
  });
}

TEST(CommLogCauses, SeesABackwardOnAnotherThread) {
  run_ranks(2, [&] {
    auto a = distribute_tensor(
        counting({4, 4}).requires_grad_(true), mesh_of({2}), {Shard(0)});
    auto y = to_local(redistribute(a * 1, {Shard(1)})).sum();
    CommLog log;
    std::thread([&] {
      // One device thread for all ranks could not serve them.
      c10::AutogradState::get_tls_state().set_multithreading_enabled(false);
      y.backward();
    }).join();
    EXPECT_NE(
        causes_of(log).find("gradient of redistribute'"), std::string::npos)
        << causes_of(log);
    EXPECT_TRUE(a.grad().defined());
  });
}

TEST(FlightRecordCauses, AreThoseOfTheLog) {
  run_ranks(2, [&] {
    auto a = distribute_tensor(
        counting({4, 4}).requires_grad_(true), mesh_of({2}), {Shard(0)});
    CommLog log;
    const auto skip = flight_record().size();
    to_local(redistribute(a * 1, {Shard(1)})).sum().backward();
    const auto entries = log.entries();
    const auto record = flight_record();
    ASSERT_EQ(record.size(), skip + entries.size());
    bool backward = false;
    for (size_t i = 0; i < entries.size(); ++i) {
      EXPECT_EQ(record[skip + i].cause, entries[i].cause.substr(0, 39));
      EXPECT_EQ(record[skip + i].in_backward, entries[i].in_backward);
      backward = backward || entries[i].in_backward;
    }
    EXPECT_TRUE(backward);
  });
}

}  // namespace
}  // namespace tessera
