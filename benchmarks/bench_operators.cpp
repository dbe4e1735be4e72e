// tessera bench operators: operators along sharded dims that keep the shards,
// beside the plain operator and beside gathering first; ranks are threads.
#include <tessera/tessera.h>
#include <torch/torch.h>
#include <unistd.h>
#include <CLI/CLI.hpp>
#include <nlohmann/json.hpp>

#include <algorithm>
#include <atomic>
#include <chrono>
#include <functional>
#include <memory>

#include "bench.h"
#include "cli/command.h"
#include "cli/text/progress.h"
#include "cli/text/terminal.h"
#include "cli/text/text_table.h"

namespace tessera::cli {
namespace {

using nlohmann::ordered_json;

constexpr int kRanks = 4;
constexpr double kGatherTarget = 2;  // of the convolution of one large image

struct OperatorsOptions {
  int rounds = 3;
  bool json = false;
};

using Run = std::function<at::Tensor(const at::Tensor&)>;

struct Case {
  std::string name;
  at::Tensor input;
  std::vector<int64_t> mesh;
  Placements on;
  Run run;
};

struct Row {
  std::string name;
  std::string on;
  int64_t bytes = 0;           // that the busiest rank sends or receives
  int64_t gathered_bytes = 0;  // the same where it is gathered first
  std::vector<double> plain = {}, sharded = {}, gathered = {};  // s, per round
};

at::Tensor values(at::IntArrayRef shape, at::ScalarType dtype = at::kFloat) {
  return at::arange(c10::multiply_integers(shape), at::kDouble)
      .mul(0.7390851)
      .sin()
      .reshape(shape)
      .to(dtype);
}

// A plain tensor as each rank has it, beside sharded ones.
at::Tensor beside(const at::Tensor& x, const at::Tensor& t) {
  return is_dtensor(x) ? distribute_tensor(
                             t, device_mesh(x),
                             Placements(placements(x).size(), Replicate()),
                             {.src_data_rank = std::nullopt})
                       : t;
}

Run convolution(const at::Tensor& weight) {
  return [weight](const at::Tensor& x) {
    return at::conv2d(x, beside(x, weight), {}, 1, weight.size(2) / 2);
  };
}

std::vector<Case> cases() {
  const Placements grid{Shard(2), Shard(3)};
  const at::Tensor image = values({2, 16, 512, 512});
  const at::Tensor up = values({16, 8, 2, 2});
  return {
      {"conv2d 3x3 of one image",
       values({1, 1, 2048, 2048}, at::kDouble),
       {2, 2},
       grid,
       convolution(values({1, 1, 3, 3}, at::kDouble))},
      {"conv2d 3x3", image, {2, 2}, grid, convolution(values({16, 16, 3, 3}))},
      {"conv_transpose2d 2x2 by 2",
       image,
       {2, 2},
       grid,
       [up](const at::Tensor& x) {
         return at::conv_transpose2d(x, beside(x, up), {}, 2);
       }},
      {"max_pool2d 2x2",
       image,
       {2, 2},
       grid,
       [](const at::Tensor& x) { return at::max_pool2d(x, 2); }},
      {"max_pool2d 3x3 by 2",
       image,
       {2, 2},
       grid,
       [](const at::Tensor& x) { return at::max_pool2d(x, 3, 2, 1); }},
      {"upsample_bilinear2d by 2",
       image,
       {2, 2},
       grid,
       [](const at::Tensor& x) {
         return at::upsample_bilinear2d(x, {1024, 1024}, false);
       }},
      {"select",
       values({1024, 4096}),
       {4},
       {Shard(0)},
       [](const at::Tensor& x) { return x.select(0, 700) + 1; }},
      {"roll by 1",
       values({1024, 4096}),
       {4},
       {Shard(0)},
       [](const at::Tensor& x) { return at::roll(x, {1}, {0}); }},
      {"fftn",
       at::complex(values({512, 512}), values({512, 512})),
       {4},
       {Shard(0)},
       [](const at::Tensor& x) { return at::fft_fftn(x); }},
  };
}

double seconds_of(const std::function<void()>& f) {
  const auto start = std::chrono::steady_clock::now();
  f();
  return std::chrono::duration<double>(std::chrono::steady_clock::now() - start)
      .count();
}

// The slowest rank's time of a run, and the most bytes that one moves. The
// second run counts: the first one prepares what is kept.
double on_ranks(const Case& c, bool gathers, int64_t& bytes) {
  std::atomic<int64_t> most = 0;
  std::atomic<double> slowest = 0;
  run_ranks(kRanks, [&] {
    at::set_num_threads(1);
    const torch::NoGradGuard no_gradient;
    const auto mesh = init_device_mesh(at::kCPU, c.mesh);
    const at::Tensor x =
        distribute_tensor(c.input, mesh, c.on, {.src_data_rank = std::nullopt});
    const auto run = [&] {
      return c.run(
          gathers ? redistribute(x, Placements(c.mesh.size(), Replicate()))
                  : x);
    };
    run();
    const Communicator all = init().communicator();
    all.barrier();
    const CommLog log;
    const double seconds = seconds_of(run);
    for (int64_t now = most; now < log.bytes();) {
      most.compare_exchange_weak(now, log.bytes());
    }
    for (double now = slowest; now < seconds;) {
      slowest.compare_exchange_weak(now, seconds);
    }
    all.barrier();
  });
  bytes = most;
  return slowest;
}

void add_round(const Case& c, Row& row) {
  const torch::NoGradGuard no_gradient;
  c.run(c.input);
  row.plain.push_back(seconds_of([&] { c.run(c.input); }));
  row.sharded.push_back(on_ranks(c, false, row.bytes));
  row.gathered.push_back(on_ranks(c, true, row.gathered_bytes));
}

std::string placements_text(const Case& c) {
  return to_string(c.on);
}

std::vector<Target> targets_of(const std::vector<Row>& rows) {
  const double times = median_ratio(rows[0].gathered, rows[0].sharded);
  return {
      {rows[0].name + " " + formatted("%.1f", times) +
           " x as fast as gathered, below " + formatted("%.1f", kGatherTarget),
       times >= kGatherTarget}};
}

ordered_json json_of(const std::vector<Row>& rows) {
  ordered_json json = ordered_json::array();
  for (const Row& row : rows) {
    json.push_back(
        {{"operator", row.name},
         {"placements", row.on},
         {"bytes", row.bytes},
         {"gathered_bytes", row.gathered_bytes},
         {"plain_seconds", row.plain},
         {"sharded_seconds", row.sharded},
         {"gathered_seconds", row.gathered}});
  }
  return json;
}

int run_operators(const OperatorsOptions& options) {
  at::set_num_threads(1);
  std::vector<Row> rows;
  for (const Case& c : cases()) {
    rows.push_back({.name = c.name, .on = placements_text(c)});
    Progress progress(
        c.name, static_cast<uint64_t>(options.rounds), false, "rounds");
    for (int round = 0; round < options.rounds; ++round) {
      add_round(c, rows.back());
      progress.advance();
    }
  }
  const std::vector<Target> targets = targets_of(rows);
  if (options.json) {
    const ordered_json json = {
        {"ranks", kRanks},
        {"operators", json_of(rows)},
        {"missed", missed(targets)}};
    print(json.dump(2) + "\n");
    return 0;
  }
  TextTable table(
      {"", "placements", "bytes", "ms", "over plain", "gathered: bytes",
       "over plain"});
  for (const Row& row : rows) {
    table.add(
        {row.name, row.on, std::to_string(row.bytes),
         formatted("%.1f", 1e3 * median(row.sharded)),
         formatted("%.2f", median_ratio(row.sharded, row.plain)),
         std::to_string(row.gathered_bytes),
         formatted("%.2f", median_ratio(row.gathered, row.plain))});
  }
  const Terminal terminal = detect_terminal(STDOUT_FILENO, false);
  print(wrapped(
      std::to_string(kRanks) +
          " ranks that are threads, one thread each; bytes of the busiest "
          "rank; times of the slowest, medians of " +
          std::to_string(options.rounds) +
          " rounds, over the plain operator on one thread\n\n" +
          table.draw(terminal) + "\n" + targets_text(targets),
      terminal));
  return 0;
}

}  // namespace

void add_bench_operators(CLI::App& bench, int& exit_code) {
  CLI::App* operators = bench.add_subcommand(
      "operators", "operators along sharded dims, beside plain and gathered");
  const auto options = std::make_shared<OperatorsOptions>();
  operators->add_option("--rounds", options->rounds, "3 unless told")
      ->check(CLI::Range(1, 1000));
  operators->add_flag("--json", options->json, "print JSON");
  operators->callback(
      [options, &exit_code] { exit_code = run_operators(*options); });
}

}  // namespace tessera::cli
