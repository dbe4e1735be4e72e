// 65,536 ranks as 256 x 256: what a mesh, layouts, a plan and its price, and a
// few moves cost one process, in time and memory.
#include <ctime>
#include <fstream>
#include <iostream>
#include <optional>

#include <harness/sharded_test.h>

namespace tessera {
namespace {

constexpr int64_t kSide = 256;
constexpr int64_t kRanks = kSide * kSide;
constexpr double kSlack = TESSERA_SANITIZED ? 20 : 1;

// A line of /proc/self/status in MB: "VmRSS", "VmHWM".
double status_mb(const std::string& name) {
  std::ifstream status("/proc/self/status");
  for (std::string line; std::getline(status, line);) {
    if (line.rfind(name + ":", 0) == 0) {
      return std::stod(line.substr(name.size() + 1)) / 1024;
    }
  }
  return 0;
}

// Processor time, all threads together: other work on the machine does not
// count.
class Stopwatch {
 public:
  explicit Stopwatch(std::string what) : what_(std::move(what)) {}
  ~Stopwatch() {
    std::cout << "  " << what_ << ": " << 1e3 * seconds()
              << " ms of processor time\n";
  }
  double seconds() const {
    return static_cast<double>(std::clock() - begin_) / CLOCKS_PER_SEC;
  }

 private:
  std::string what_;
  std::clock_t begin_ = std::clock();
};

std::vector<Placements> all_placements(int64_t dims) {
  Placements each{Replicate(), Partial()};
  for (int64_t d = 0; d < dims; ++d) {
    each.push_back(Shard(d));
  }
  std::vector<Placements> all;
  for (const Placement& a : each) {
    for (const Placement& b : each) {
      all.push_back({a, b});
    }
  }
  return all;
}

// The local shapes of all ranks; returns the elements of all shards.
int64_t elements_of_all_shards(const Layout& layout) {
  int64_t sum = 0;
  std::vector<int64_t> coordinate(2);
  for (coordinate[0] = 0; coordinate[0] < kSide; ++coordinate[0]) {
    for (coordinate[1] = 0; coordinate[1] < kSide; ++coordinate[1]) {
      sum += c10::multiply_integers(layout.local_shape(coordinate));
    }
  }
  return sum;
}

void lay_out() {
  const Stopwatch watch("layouts of 3 tensors in all placements");
  const MeshShape mesh({kSide, kSide}, {"dp", "tp"});
  for (const std::vector<int64_t>& shape :
       {std::vector<int64_t>{1048576, 4096}, {1000, 3, 777}, {50257}}) {
    for (const Placements& placements :
         all_placements(static_cast<int64_t>(shape.size()))) {
      const Layout layout(shape, mesh, placements);
      EXPECT_FALSE(layout.local_shape({255, 255}).empty());
    }
  }
}

void shard_everywhere() {
  const Stopwatch watch("shapes of all 65536 shards of an uneven layout");
  const Layout layout(
      {1000, 777}, MeshShape({kSide, kSide}), {Shard(0), Shard(1)});
  EXPECT_EQ(elements_of_all_shards(layout), 1000 * 777);
}

void plan_and_price() {
  const Stopwatch watch("plans and prices between all placements of a matrix");
  const MeshShape mesh({kSide, kSide}, {"dp", "tp"});
  const auto all = all_placements(2);
  for (const Placements& from : all) {
    for (const Placements& to : all) {
      const auto plan = plan_redistribution(
          Layout({16384, 8192}, mesh, from), Layout({16384, 8192}, mesh, to),
          2);
      EXPECT_EQ(plan.cost > 0, !plan.steps.empty());
    }
  }
}

void be_rank(int64_t rank) {
  std::cout << "  as rank " << rank << "\n";
  run_simulated({.rank = rank, .size = kRanks}, [&] {
    std::optional<Stopwatch> watch("mesh and groups");
    const auto mesh = init_device_mesh(at::kCPU, {kSide, kSide}, {"dp", "tp"});
    const auto flat = init_device_mesh(at::kCPU, {kRanks});
    EXPECT_EQ((*mesh.coordinate())[0], rank / kSide);
    EXPECT_EQ(mesh.whole().size(), kRanks);
    EXPECT_EQ(mesh["tp"].communicator().size(), kSide);
    CommLog log;

    watch.emplace("moves along mesh dims");
    const auto t = ones({1024, 768}, mesh, {Shard(0), Shard(1)});
    const auto rows = redistribute(t, {Shard(0), Replicate()});
    EXPECT_EQ(to_local(rows).sizes(), at::IntArrayRef({4, 768}));
    const auto turned = redistribute(t, {Shard(1), Shard(0)});
    EXPECT_EQ(to_local(turned).sizes(), at::IntArrayRef({4, 3}));

    watch.emplace("exchange with a mesh of another shape");
    const auto moved = redistribute(rows, flat, {Shard(0)});
    EXPECT_EQ(to_local(moved).size(0), rank < 1024 ? 1 : 0);

    watch.emplace("operators and backward");
    const auto leaf = t.detach().requires_grad_(true);
    const auto loss = (leaf * 2).sum();
    loss.backward();
    EXPECT_EQ(loss.item<float>(), 2 * 1024 * 768);
    EXPECT_EQ(placements(leaf.grad()), placements(leaf));

    watch.emplace("predicted times of the log");
    EXPECT_GT(predicted_times(log).size(), 2U);
  });
}

TEST(SimulatedScale, TakesLessThanASecondAnd200Megabytes) {
  // What a process has that has loaded LibTorch and made a tensor.
  at::ones({1}).add(1);
  const double before = status_mb("VmRSS");
  const Stopwatch watch("in all");
  lay_out();
  shard_everywhere();
  plan_and_price();
  be_rank(32896);
  be_rank(kRanks - 1);
  const double growth = status_mb("VmHWM") - before;
  std::cout << "  memory: " << growth << " MB beside the " << before
            << " MB of a process with LibTorch; at most " << status_mb("VmHWM")
            << " MB in all\n";
  EXPECT_LT(watch.seconds(), 1 * kSlack);
  if (!TESSERA_SANITIZED) {
    EXPECT_LT(growth, 200);
  }
}

}  // namespace
}  // namespace tessera
