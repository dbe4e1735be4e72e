// The predicted time of collectives, against formulas written out by hand.
#include <harness/sharded_test.h>

namespace tessera {
namespace {

using testing::mesh_of;

// 1 s per message, 1 byte per s and link, memory 1000 times faster.
const MachineModel kSlow{
    .link = {.latency = 1, .bandwidth = 1}, .copy_bandwidth = 1000};

std::vector<double> times_of(const CommLog& log, const MachineModel& model) {
  std::vector<double> times;
  for (const CommLogEntry& entry : log.entries()) {
    times.push_back(predicted_time(entry, model));
  }
  return times;
}

TEST(PredictedTime, IsTheFormulaOfEveryKind) {
  run_simulated({.rank = 1, .size = 4}, [] {
    const Communicator all = init().communicator();
    const auto f32 = [](int64_t count) { return at::zeros({count}); };
    CommLog log;
    all.all_gather(f32(8), f32(2));
    all.reduce_scatter(f32(2), f32(8));
    all.all_reduce(f32(8));
    all.all_to_all(f32(8), f32(8));
    all.broadcast(f32(8), 0);
    all.broadcast(f32(8), 1);
    all.scatter(f32(2), {}, 0);
    all.gather({}, f32(2), 0);
    all.send(f32(8), 0);
    all.recv(f32(8), 0);
    all.barrier();
    // messages + bytes + written / 1000; 8 elements are 32 bytes, 3/4 of them
    // 24
    const std::vector<double> wanted = {
        2 + 24 + 0.032, 2 + 24 + 0.008, 4 + 48 + 0.032, 2 + 24 + 0.032,
        2 + 32 + 0.032, 2 + 32 + 0,     2 + 8 + 0.008,  2 + 8 + 0,
        1 + 32 + 0,     1 + 32 + 0.032, 2 + 0 + 0};
    const auto times = times_of(log, kSlow);
    ASSERT_EQ(times.size(), wanted.size());
    for (size_t i = 0; i < wanted.size(); ++i) {
      EXPECT_NEAR(times[i], wanted[i], 1e-9) << log.entries()[i].line();
    }
  });
}

TEST(PredictedTime, HasTheWorkedRowOfItsHeader) {
  run_simulated({.rank = 3, .size = 4}, [] {
    CommLog log;
    init().communicator().all_gather(at::zeros({1000}), at::zeros({250}));
    EXPECT_NEAR(predicted_time(log.entries()[0]), 1.05e-5, 1e-12);
    EXPECT_EQ(
        to_string(predicted_times(log)),
        "all_gather: 1 call, 3000 bytes, 1.05e-05 s\n"
        "total: 1 call, 3000 bytes, 1.05e-05 s\n");
  });
}

TEST(PredictedTime, UsesTheLinkOfTheMeshDims) {
  run_simulated({.rank = 5, .size = 8}, [] {
    const MachineModel model{
        .links =
            {{.latency = 1, .bandwidth = 1}, {.latency = 2, .bandwidth = 4}},
        .copy_bandwidth = 1e30};
    set_machine_model(model);
    const auto mesh = mesh_of({2, 4}, {"dp", "tp"});
    const auto t = ones({8, 8}, mesh, {Shard(0), Shard(1)});
    CommLog log;
    redistribute(t, {Shard(0), Replicate()});  // 4 x 8 of 4 x 2: 96 bytes
    redistribute(t, {Replicate(), Shard(1)});  // 8 x 2 of 4 x 2: 32 bytes
    const auto times = times_of(log, model);
    ASSERT_EQ(times.size(), 2U);
    EXPECT_DOUBLE_EQ(times[0], 2 * 2 + 96.0 / 4);
    EXPECT_DOUBLE_EQ(times[1], 1 * 1 + 32.0 / 1);
    EXPECT_EQ(
        to_string(predicted_times(log)),
        "all_gather dp: 1 call, 32 bytes, 33 s\n"
        "all_gather tp: 1 call, 96 bytes, 28 s\n"
        "total: 2 calls, 128 bytes, 61 s\n");
  });
}

// Layouts that divide evenly: every rank has the largest shard.
TEST(PredictedTime, IsThePriceOfThePlan) {
  const std::vector<Placements> all = {
      {Shard(0), Shard(1)},       {Shard(1), Shard(0)},
      {Shard(0), Shard(0)},       {Replicate(), Shard(0)},
      {Replicate(), Replicate()}, {Partial(), Shard(1)},
      {Partial(), Partial()}};
  for (const int64_t r : {0, 9, 15}) {
    run_simulated({.rank = r, .size = 16}, [&] {
      const auto mesh = mesh_of({4, 4}, {"dp", "tp"});
      int64_t compared = 0;
      for (const Placements& from : all) {
        for (const Placements& to : all) {
          const RedistributePlan plan = plan_redistribution(
              Layout({32, 32}, mesh.mesh_shape(), from),
              Layout({32, 32}, mesh.mesh_shape(), to), 4, machine_model());
          double wanted = 0;
          for (const Step& step : plan.steps) {
            // An exchange is priced by the rank that moves most.
            const int64_t less = step.bytes - bytes_on_rank(step, 4, r);
            EXPECT_TRUE(less == 0 || step.kind == StepKind::kExchange);
            wanted += step.is_local()
                          ? 0
                          : step.cost - static_cast<double>(less) /
                                            machine_model().link.bandwidth;
          }
          const auto t = zeros({32, 32}, mesh, from);
          CommLog log;
          redistribute(t, to);
          double predicted = 0;
          for (const double time : times_of(log, machine_model())) {
            predicted += time;
          }
          EXPECT_NEAR(predicted, wanted, 1e-12) << plan;
          compared += wanted > 0 ? 1 : 0;
        }
      }
      EXPECT_GT(compared, 20);
    });
  }
}

}  // namespace
}  // namespace tessera
