// The demo's training: one GPT that knows nothing of ranks, once as it is and
// once on a mesh, from one start and with the same batches.
#include "demo_training.h"

#include <tessera/checkpoint/checkpoint.h>
#include <tessera/parallel/data_parallel.h>
#include <tessera/parallel/fully_shard.h>
#include <tessera/parallel/parallelize_module.h>

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

// The first run of an operator without a sharding rule says so once, in the
// middle of the progress bar.
struct NoWarnings final : c10::WarningHandler {
  void process(const c10::Warning&) override {}
};

/// Steps begin + 1 to end.
struct Steps {
  int begin = 0;
  int end = 0;
};

using Report = std::function<void(int step, double loss)>;

/// The same steps for both runs; `parallel` where gradients are to be summed.
void train(
    Training& training, const Task& task, const Steps& steps,
    const Place& place, DataParallel* parallel, const Report& report) {
  for (int step = steps.begin + 1; step <= steps.end; ++step) {
    const Batch batch =
        task.corpus.batch(step, kDemoSizes.batch, kDemoSizes.length);
    const at::Tensor loss = training.loss(batch, task, place);
    training.step(step, loss, task, parallel);
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

void run_plain(
    const Task& task, DemoResult& result, const DemoProgress& progress) {
  Training training(new_model(task));
  const Place place;
  train(
      training, task, {0, task.steps}, place, nullptr,
      report_to(&result.plain, {}, progress));
  result.replicated_bytes = held_bytes(training.optimizer);
  result.plain.text = write_line(training.model, task, place);
}

/// The model on a mesh, at the common start.
struct Sharded {
  Sharded(const Task& task, const DemoMesh& shape, const DemoOptions& options)
      : mesh(at::kCPU, ranks_of(shape), {"dp", "tp"}), model(new_model(task)) {
    place = {.mesh = mesh, .has_cut_logits = !options.fsdp || shape.tp > 1};
    if (place.has_cut_logits) {
      parallelize_module(model, mesh, tensor_parallel());
    }
    if (options.fsdp) {
      fully_sharded =
          fully_shard(*model, mesh, {.mesh_dim = "dp", .groups = {"blocks.*"}});
    }
    if (options.recompute) {
      recompute_blocks(model);
    }
    training.emplace(model);
  }
  static at::Tensor ranks_of(const DemoMesh& shape) {
    return at::arange(shape.ranks(), at::kLong).view({shape.dp, shape.tp});
  }
  void train(const Task& task, const Steps& steps, const Report& report) {
    std::optional<DataParallel> parallel;
    if (!fully_sharded) {
      parallel.emplace(*model, mesh);
    }
    cli::train(
        *training, task, steps, place, parallel ? &*parallel : nullptr, report);
  }

  DeviceMesh mesh;
  Gpt model;
  Place place;
  std::optional<FullyShard> fully_sharded;
  std::optional<Training> training;
};

/// Returns what every rank of the mesh holds of the training.
std::vector<int64_t> bytes_by_rank(const Sharded& sharded) {
  const at::Tensor mine =
      at::full({1}, held_bytes(sharded.training->optimizer), at::kLong);
  const Communicator all = sharded.mesh.whole();
  const at::Tensor bytes = at::empty({all.size()}, at::kLong);
  all.all_gather(bytes, mine);
  const auto* begin = bytes.const_data_ptr<int64_t>();
  return {begin, begin + bytes.numel()};
}

void finish(Sharded& sharded, const Task& task, DemoResult* result) {
  const std::string text = write_line(sharded.model, task, sharded.place);
  if (result != nullptr) {
    result->sharded.text = text;
  }
}

/// The steps on the first mesh, on one rank of the world; `result` is null on
/// all but rank 0.
void run_sharded(
    const Task& task, const DemoOptions& options, const std::string& path,
    DemoResult* result, const DemoProgress& progress) {
  Sharded sharded(task, options.mesh, options);
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
  const std::vector<int64_t> bytes = bytes_by_rank(sharded);
  if (result != nullptr) {
    result->rank_bytes = bytes;
    result->mesh = to_string(sharded.mesh);
    result->engine = init().engine();
    for (const auto& item : sharded.model->named_parameters()) {
      result->parameters.push_back(
          describe(item.key(), item.value(), options.fsdp ? 0 : 1));
    }
  }
  if (!options.restart) {
    return finish(sharded, task, result);
  }
  const auto begin = Clock::now();
  checkpoint::save(sharded.training->state(task), path);
  if (result != nullptr) {
    result->restart.save_seconds = seconds_since(begin);
    result->restart.checkpoint_bytes = checkpoint_bytes(path);
  }
}

/// The others, on the second mesh, from the checkpoint.
void go_on(
    const Task& task, const DemoOptions& options, const std::string& path,
    DemoResult* result, const DemoProgress& progress) {
  Sharded sharded(task, *options.restart, options);
  const auto begin = Clock::now();
  checkpoint::StateDict state = sharded.training->state(task);
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
    run_plain(task, result, progress);
  }
  run_on_meshes(task, options, result, progress);
  return result;
}

}  // namespace tessera::cli
