// One rank's part of `tessera bench checkpoint`, on whatever engine started it.
//
// Before a save everything written earlier is on the disk, so that no side pays
// for another's files, and the memory that its files will take in the system
// has just been in use. Each save makes new files, and returns when files and
// folders are on the disk. A load reads the files that its side has just
// written, which the system has in memory, into tensors that are there.
#include <tessera/checkpoint/checkpoint.h>
#include <tessera/comm/world.h>
#include <tessera/tensor/dtensor.h>
#include <tessera/tensor/factories.h>

#include <algorithm>
#include <chrono>
#include <cstring>
#include <ctime>
#include <filesystem>
#include <stdexcept>

#include <ATen/core/grad_mode.h>
#include <ATen/ops/arange.h>
#include <ATen/ops/tensor.h>
#include <ATen/ops/zeros.h>

#include "bench_checkpoint.h"
#include "raw_files.h"

namespace tessera::cli {

namespace {

using Clock = std::chrono::steady_clock;

constexpr int64_t kColumns = 1024;

double cpu_seconds() {
  timespec time{};
  clock_gettime(CLOCK_PROCESS_CPUTIME_ID, &time);
  return static_cast<double>(time.tv_sec) +
         1e-9 * static_cast<double>(time.tv_nsec);
}

/// The tensors of one state, and this rank's parts of them.
struct State {
  State(const DeviceMesh& mesh, int64_t tensors, int64_t rows) {
    for (int64_t t = 0; t < tensors; ++t) {
      const at::Tensor tensor = zeros({rows, kColumns}, mesh, {Shard(0)});
      dict.set("layers." + std::to_string(t) + ".weight", tensor);
      locals.push_back(to_local(tensor));
    }
  }

  void fill(int64_t rows) {
    const int64_t ranks = init().size();
    const int64_t part = (rows + ranks - 1) / ranks;
    const int64_t first = std::min(part * rank(), rows) * kColumns;
    for (size_t t = 0; t < locals.size(); ++t) {
      at::Tensor values =
          at::arange(first, first + locals[t].numel(), at::kLong);
      values.mul_(7919).add_(static_cast<int64_t>(t)).remainder_(16777213);
      locals[t].copy_(values.view(locals[t].sizes()));
    }
  }

  void clear() {
    for (const at::Tensor& local : locals) {
      local.zero_();
    }
  }

  void copy_from(const State& other) const {
    for (size_t t = 0; t < locals.size(); ++t) {
      std::memcpy(
          locals[t].mutable_data_ptr(), other.locals[t].const_data_ptr(),
          locals[t].nbytes());
    }
  }

  checkpoint::StateDict dict;
  std::vector<at::Tensor> locals;
};

class Round {
 public:
  Round(const CheckpointBenchOptions& options, int64_t tensors, int64_t rows)
      : options_(options),
        mesh_(init_device_mesh(at::kCPU, {init().size()})),
        saved_(mesh_, tensors, rows),
        loaded_(mesh_, tensors, rows) {
    saved_.fill(rows);
  }

  CheckpointRound run() {
    CheckpointRound round;
    if (options_.raw_first) {
      measure_raw(round.times);
    }
    measure_ours(round.times);
    if (!options_.raw_first) {
      measure_raw(round.times);
    }
    measure_async(round.times);
    at::Tensor sum = at::zeros({1}, at::kDouble);
    for (const at::Tensor& local : saved_.locals) {
      sum += local.sum(at::kDouble);
    }
    all_.all_reduce(sum);
    round.sum = sum.item<double>();
    return round;
  }

 private:
  void measure_ours(CheckpointTimes& times) {
    const std::string path = options_.folder + "/checkpoint";
    settle();
    times["save"] = measure([&] { checkpoint::save(saved_.dict, path); });
    loaded_.clear();
    times["load"] = measure([&] { checkpoint::load(loaded_.dict, path); });
    compare("checkpoint::load");
    remove(path);
  }

  void measure_raw(CheckpointTimes& times) {
    const std::string folder = options_.folder + "/raw";
    const std::string path = folder + "/" + std::to_string(rank());
    if (rank() == 0) {
      std::filesystem::create_directory(folder);
    }
    settle();
    times["raw save"] = measure([&] {
      write_raw(path, saved_.locals);
      all_.barrier();
      if (rank() == 0) {
        sync_folder(folder);
      }
    });
    loaded_.clear();
    uint64_t checksum = 0;
    times["raw load"] =
        measure([&] { checksum = read_raw(path, loaded_.locals); });
    compare(checksum == 0 ? "a checksum of 0" : "read");
    remove(folder);
  }

  /// The loop waits while save_async() copies the rank's bytes; beside it one
  /// copy of them. The first save makes the memory that later ones keep.
  void measure_async(CheckpointTimes& times) {
    const std::string path = options_.folder + "/async";
    checkpoint::save_async(saved_.dict, path).wait();
    remove(path);
    settle();
    if (options_.raw_first) {
      times["copy"] = measure([&] { loaded_.copy_from(saved_); });
    }
    checkpoint::Handle saving;
    times["async"] =
        measure([&] { saving = checkpoint::save_async(saved_.dict, path); });
    saving.wait();
    if (!options_.raw_first) {
      times["copy"] = measure([&] { loaded_.copy_from(saved_); });
    }
    loaded_.clear();
    checkpoint::load(loaded_.dict, path);
    compare("checkpoint::load after save_async");
    remove(path);
  }

  /// Gives every save the same disk and the same memory.
  void settle() {
    if (rank() == 0) {
      sync_file_system(options_.folder);
      touch_file_memory(
          options_.folder, static_cast<size_t>(options_.mebibytes) << 20);
    }
    all_.barrier();
  }

  void remove(const std::string& path) {
    all_.barrier();
    if (rank() == 0) {
      std::filesystem::remove_all(path);
    }
  }

  /// Throws unless what was loaded is what was saved.
  void compare(const std::string& what) const {
    for (size_t t = 0; t < saved_.locals.size(); ++t) {
      if (!saved_.locals[t].equal(loaded_.locals[t])) {
        throw std::runtime_error(
            what + " gave other values than were saved, in tensor " +
            std::to_string(t));
      }
    }
  }

  template <class F>
  CheckpointTime measure(const F& body) const {
    all_.barrier();
    const double cpu = cpu_seconds();
    const auto begin = Clock::now();
    body();
    const std::chrono::duration<double> taken = Clock::now() - begin;
    all_.barrier();
    // Ranks that are threads see the time of one process.
    const int64_t sharing = init().engine() == "threads" ? all_.size() : 1;
    at::Tensor seconds = at::tensor({taken.count()}, at::kDouble);
    at::Tensor cpu_of_all = at::tensor(
        {(cpu_seconds() - cpu) / static_cast<double>(sharing)}, at::kDouble);
    all_.all_reduce(seconds, ReduceOp::kMax);
    all_.all_reduce(cpu_of_all);
    return {seconds.item<double>(), cpu_of_all.item<double>()};
  }

  const CheckpointBenchOptions& options_;
  Communicator all_ = init().communicator();
  DeviceMesh mesh_;
  State saved_;
  State loaded_;
};

}  // namespace

std::optional<CheckpointRound> bench_checkpoint(
    const CheckpointBenchOptions& options) {
  std::optional<CheckpointRound> result;
  run([&] {
    const at::NoGradGuard no_grad;
    // What is done for the first time is not counted.
    Round(options, 1, init().size()).run();
    CheckpointRound round =
        Round(
            options, kCheckpointTensors,
            (options.mebibytes << 18) / (kColumns * kCheckpointTensors))
            .run();
    if (rank() == 0) {
      result = std::move(round);
    }
  });
  return result;
}

}  // namespace tessera::cli
