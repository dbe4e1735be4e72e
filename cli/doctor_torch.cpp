// What doctor asks LibTorch and the engines; see doctor.h.
#include <ATen/Context.h>
#include <ATen/Parallel.h>
#include <ATen/Version.h>
#include <ATen/ops/arange.h>
#include <ATen/ops/equal.h>
#include <ATen/ops/full.h>
#include <c10/util/Exception.h>
#include <CLI/CLI.hpp>
#include <nlohmann/json.hpp>

#include <chrono>
#include <functional>
#include <stdexcept>
#include <string>
#include <vector>

#include <tessera/comm/device_mesh.h>
#include <tessera/comm/world.h>
#include <tessera/tensor/dtensor.h>

#include "cli/text/terminal.h"
#include "command.h"
#include "doctor.h"

namespace tessera::cli {
namespace {

using Status = Check::Status;

constexpr auto kDeadline = std::chrono::seconds(20);

/// Returns the version that the loaded library states about itself.
std::string loaded_version() {
  const std::string config = at::show_config();
  const std::string key = "TORCH_VERSION=";
  const size_t begin = config.find(key);
  if (begin == std::string::npos) {
    return "unknown";
  }
  const size_t from = begin + key.size();
  // "2.11.0+cu130" and "2.11.0" are one version.
  return config.substr(from, config.find_first_of("+, \n", from) - from);
}

Check check_version() {
  const std::string loaded = loaded_version();
  std::string built = TESSERA_BUILD_TORCH;
  built = built.substr(0, built.find('+'));
  if (loaded == built) {
    return {"libtorch", Status::kOk, loaded + " loaded, as built", ""};
  }
  return {
      "libtorch", Status::kFail, loaded + " loaded, built with " + built,
      "build against the LibTorch that is loaded: Torch_DIR when building, "
      "LD_LIBRARY_PATH when running"};
}

/// Runs `body` on two thread ranks; what it throws is the finding.
Check check_on_two_ranks(
    const char* name, const char* done, const std::function<void()>& body) {
  try {
    InitOptions options;
    options.engine = Engine::kThreads;
    options.deadline = kDeadline;
    run_ranks(2, body, options);
    return {name, Status::kOk, done, ""};
  } catch (const c10::Error& error) {
    return {
        name, Status::kFail, error.what_without_backtrace(),
        "report this, with the output of tessera doctor --json"};
  }
}

void add_ranks() {
  const at::Tensor value = at::full({1}, static_cast<double>(rank() + 1));
  init().communicator().all_reduce(value);
  TORCH_CHECK(
      value.item<double>() == 3, "2 ranks added 1 and 2 to ",
      value.item<double>());
}

/// Goes through dispatch once, so a dispatch key that another library holds
/// shows here.
void double_sharded() {
  const DeviceMesh mesh = init_device_mesh(at::kCPU, {2});
  const at::Tensor plain = at::arange(6.0).view({3, 2});
  const at::Tensor sharded = distribute_tensor(plain, mesh, {Shard(0)});
  TORCH_CHECK(
      at::equal(full_tensor(sharded.add(sharded)), plain.add(plain)),
      "a sharded sum differs from the plain one");
}

Check check_threads_engine() {
  return check_on_two_ranks(
      "engine threads", "2 ranks added 1 and 2", add_ranks);
}

Check check_sharded_tensors() {
  return check_on_two_ranks(
      "sharded tensors", "2 ranks added a sharded matrix to itself",
      double_sharded);
}

Check check_cuda() {
  if (!at::hasCUDA()) {
    return {"cuda", Status::kOk, "none; tensors live on the CPU", ""};
  }
  const size_t devices = at::getNumGPUs();
  if (devices == 0) {
    return {
        "cuda", Status::kWarn, "LibTorch has CUDA, but no device was found",
        "check the driver with nvidia-smi"};
  }
  return {
      "cuda", Status::kOk,
      std::to_string(devices) + (devices == 1 ? " device" : " devices"), ""};
}

Check check_threads() {
  const int threads = at::get_num_threads();
  return {
      "intra-op", Status::kOk,
      std::to_string(threads) + (threads == 1 ? " thread" : " threads") +
          ", divided by the ranks of a process",
      ""};
}

void print_checks() {
  auto list = nlohmann::json::array();
  for (const Check& check :
       {check_version(), check_threads(), check_cuda(), check_threads_engine(),
        check_sharded_tensors()}) {
    list.push_back(
        {check.name, static_cast<int>(check.status), check.found,
         check.advice});
  }
  print(list.dump() + "\n");
}

void add_ranks_of_job() {
  run([] {
    const World world = init();
    world.set_deadline(kDeadline);
    const at::Tensor value = at::full({1}, static_cast<double>(rank() + 1));
    world.communicator().all_reduce(value);
    const auto ranks = static_cast<double>(world.size());
    TORCH_CHECK(
        value.item<double>() == ranks * (ranks + 1) / 2, ranks,
        " ranks added 1, 2, ... to ", value.item<double>());
  });
}

/// Adds a command that fails, other than by a mistake of its user, when
/// LibTorch throws.
void set_up_work(CLI::App& command, void (*work)()) {
  command.callback([work] {
    try {
      work();
    } catch (const c10::Error& error) {
      throw std::runtime_error(error.what_without_backtrace());
    }
  });
}

const Command kChecks{kDoctorTorch, [](CLI::App& command, Invocation&) {
                        set_up_work(command, print_checks);
                      }};
const Command kAddRanks{kDoctorAddRanks, [](CLI::App& command, Invocation&) {
                          set_up_work(command, add_ranks_of_job);
                        }};

}  // namespace
}  // namespace tessera::cli
