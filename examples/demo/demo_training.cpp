// The demo's training: one GPT that knows nothing of ranks, once as it is and
// once on a mesh, from one start and with the same batches.
#include "demo_training.h"

#include <tessera/checkpoint/checkpoint.h>
#include <tessera/parallel/data_parallel.h>
#include <tessera/parallel/loss_parallel.h>
#include <tessera/parallel/parallelize_module.h>

#include <algorithm>
#include <chrono>
#include <functional>
#include <optional>
#include <string>
#include <vector>

#include "demo_checkpoint.h"
#include "demo_model.h"
#include "demo_ranks.h"
#include "demo_records.h"

namespace tessera::cli {
namespace {

using Clock = std::chrono::steady_clock;

// The rate falls to nothing over the steps, and gradients that are rounding
// errors make no steps: else differences in the last bit grow, in any two runs,
// until f32 curves part.
constexpr double kLearningRate = 6e-3;
constexpr double kEpsilon = 1e-6;

// The first run of an operator without a sharding rule says so once, in the
// middle of the progress bar.
struct NoWarnings final : c10::WarningHandler {
  void process(const c10::Warning&) override {}
};

void set_rate(torch::optim::AdamW& optimizer, double rate) {
  for (auto& group : optimizer.param_groups()) {
    group.options().set_lr(rate);
  }
}

torch::optim::AdamW new_optimizer(const Gpt& model) {
  return torch::optim::AdamW(
      model->parameters(),
      torch::optim::AdamWOptions(kLearningRate).eps(kEpsilon));
}

/// Steps begin + 1 to end.
struct Steps {
  int begin = 0;
  int end = 0;
};

using Report = std::function<void(int step, double loss)>;

/// The same steps for both runs; `parallel` where gradients are to be summed.
void train(
    Gpt& model, torch::optim::AdamW& optimizer, const Task& task,
    const Steps& steps, const Place& place, DataParallel* parallel,
    const Report& report) {
  for (int step = steps.begin + 1; step <= steps.end; ++step) {
    const Batch batch =
        task.corpus.batch(step, kDemoSizes.batch, kDemoSizes.length);
    optimizer.zero_grad();
    set_rate(optimizer, kLearningRate * (task.steps - step + 1) / task.steps);
    std::optional<LossParallel> over_the_cut_vocabulary;
    if (place.mesh) {
      over_the_cut_vocabulary.emplace();
    }
    const at::Tensor loss = torch::nn::functional::cross_entropy(
        model(place(batch.inputs, Shard(0))).flatten(0, 1),
        place(batch.targets, Shard(0)).flatten());
    loss.backward();
    if (parallel != nullptr) {
      parallel->reduce_gradients();
    }
    optimizer.step();
    report(step, whole(loss.detach()).item<double>());
  }
}

double seconds_since(Clock::time_point begin) {
  return std::chrono::duration<double>(Clock::now() - begin).count();
}

/// Notes a step in the run, where this rank reports.
Report report_to(DemoRun* run, DemoStep step, const DemoProgress& progress) {
  const auto begin = Clock::now();
  const double before = run != nullptr ? run->seconds : 0;
  return [=](int number, double loss) mutable {
    if (run != nullptr) {
      run->losses.push_back(loss);
      run->seconds = before + seconds_since(begin);
      step.step = number;
      step.loss = loss;
      step.seconds = run->seconds;
      progress(step);
    }
  };
}

void run_plain(const Task& task, DemoRun& run, const DemoProgress& progress) {
  Gpt model = new_model(task);
  torch::optim::AdamW optimizer = new_optimizer(model);
  const Place place;
  train(
      model, optimizer, task, {0, task.steps}, place, nullptr,
      report_to(&run, {}, progress));
  run.text = write_line(model, task, place);
}

/// The model on a mesh, at the common start.
struct Sharded {
  Sharded(const Task& task, const DemoMesh& shape)
      : mesh(at::kCPU, ranks_of(shape), {"dp", "tp"}), model(new_model(task)) {
    parallelize_module(model, mesh, tensor_parallel());
    optimizer.emplace(new_optimizer(model));
  }
  static at::Tensor ranks_of(const DemoMesh& shape) {
    return at::arange(shape.ranks(), at::kLong).view({shape.dp, shape.tp});
  }
  checkpoint::StateDict state() {
    return checkpoint::state_dict(*model, *optimizer);
  }
  void train(const Task& task, const Steps& steps, const Report& report) {
    DataParallel parallel(*model, mesh);
    cli::train(model, *optimizer, task, steps, Place{mesh}, &parallel, report);
  }

  DeviceMesh mesh;
  Gpt model;
  std::optional<torch::optim::AdamW> optimizer;
};

void finish(Sharded& sharded, const Task& task, DemoResult* result) {
  const std::string text = write_line(sharded.model, task, Place{sharded.mesh});
  if (result != nullptr) {
    result->sharded.text = text;
  }
}

/// The steps on the first mesh, on one rank of the world; `result` is null on
/// all but rank 0.
void run_sharded(
    const Task& task, const DemoOptions& options, const std::string& path,
    DemoResult* result, const DemoProgress& progress) {
  Sharded sharded(task, options.mesh);
  {
    const CommLog log;
    sharded.train(
        task, {0, options.steps_before_restart()},
        report_to(
            result ? &result->sharded : nullptr, {.sharded = true}, progress));
    if (result != nullptr) {
      result->traffic = sum_up(log.entries());
    }
  }
  if (result != nullptr) {
    result->mesh = to_string(sharded.mesh);
    result->engine = init().engine();
    for (const auto& item : sharded.model->named_parameters()) {
      result->parameters.push_back(describe(item.key(), item.value()));
    }
  }
  if (!options.restart) {
    return finish(sharded, task, result);
  }
  const auto begin = Clock::now();
  checkpoint::save({{"training", sharded.state()}}, path);
  if (result != nullptr) {
    result->restart.save_seconds = seconds_since(begin);
    result->restart.checkpoint_bytes = checkpoint_bytes(path);
  }
}

/// The others, on the second mesh, from the checkpoint.
void go_on(
    const Task& task, const DemoOptions& options, const std::string& path,
    DemoResult* result, const DemoProgress& progress) {
  Sharded sharded(task, *options.restart);
  const auto begin = Clock::now();
  checkpoint::StateDict state{{"training", sharded.state()}};
  checkpoint::load(state, path);
  if (result != nullptr) {
    result->restart.load_seconds = seconds_since(begin);
    result->restart.mesh = to_string(sharded.mesh);
  }
  if (sharded.mesh.coordinate()) {  // processes may be more than its ranks
    sharded.train(
        task, {options.steps_before_restart(), options.steps},
        report_to(
            result ? &result->sharded : nullptr,
            {.sharded = true, .restarted = true}, progress));
    finish(sharded, task, result);
  }
}

void run_on_meshes(
    const Task& task, const DemoOptions& options, DemoResult& result,
    const DemoProgress& progress) {
  const DemoCheckpoint checkpoint(options);
  const auto on_rank = [&](auto run) {
    return [&, run] {
      NoWarnings quiet;
      const c10::WarningUtils::WarningHandlerGuard guard(&quiet);
      run(task, options, checkpoint.path(), rank() == 0 ? &result : nullptr,
          progress);
    };
  };
  on_ranks(options, options.mesh.ranks(), on_rank(run_sharded));
  if (options.restart) {
    on_ranks(options, options.restart->ranks(), on_rank(go_on));
    wait_for_all_ranks(options);  // those without a part for the others
  }
}

}  // namespace

DemoResult train_demo(
    const DemoOptions& options, const DemoProgress& progress) {
  // Ranks share the cores, so each has one thread, and so has the plain run.
  at::set_num_threads(1);
  const Task task = make_task(options);
  DemoResult result;
  result.characters = task.corpus.size();
  result.vocabulary = task.corpus.vocabulary();
  result.prompt = kDemoPrompt;
  if (!options.processes || rank() == 0) {
    run_plain(task, result.plain, progress);
  }
  run_on_meshes(task, options, result, progress);
  return result;
}

}  // namespace tessera::cli
