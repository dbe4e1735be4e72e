// What doctor asks LibTorch and the engines.
#include <ATen/Context.h>
#include <ATen/Parallel.h>
#include <ATen/Version.h>
#include <ATen/ops/full.h>
#include <c10/util/Exception.h>

#include <chrono>
#include <string>

#include <tessera/comm/world.h>

#include "torch_part.h"

namespace tessera::cli {
namespace {

using Status = Check::Status;

/// Returns the version that the loaded library states about itself.
std::string loaded_version() {
  const std::string config = at::show_config();
  const std::string key = "TORCH_VERSION=";
  const size_t begin = config.find(key);
  if (begin == std::string::npos) {
    return "unknown";
  }
  const size_t from = begin + key.size();
  return config.substr(from, config.find_first_of(", \n", from) - from);
}

Check check_version() {
  const std::string loaded = loaded_version();
  const std::string built = TESSERA_BUILD_TORCH;
  if (loaded == built) {
    return {"libtorch", Status::kOk, loaded + " loaded, as built", ""};
  }
  return {
      "libtorch", Status::kFail, loaded + " loaded, built with " + built,
      "build against the LibTorch that is loaded: Torch_DIR when building, "
      "LD_LIBRARY_PATH when running"};
}

Check check_threads_engine() {
  try {
    double sum = 0;
    InitOptions options;
    options.engine = Engine::kThreads;
    options.deadline = std::chrono::seconds(20);
    run_ranks(
        2,
        [&sum] {
          at::Tensor value = at::full({1}, static_cast<double>(rank() + 1));
          init().communicator().all_reduce(value);
          if (rank() == 0) {
            sum = value.item<double>();
          }
        },
        options);
    const bool right = sum == 3;
    return {
        "engine threads", right ? Status::kOk : Status::kFail,
        right ? "2 ranks added 1 and 2" : "2 ranks added 1 and 2 wrongly",
        right ? "" : "report this, with the output of tessera doctor --json"};
  } catch (const c10::Error& error) {
    return {
        "engine threads", Status::kFail, error.what_without_backtrace(),
        "report this, with the output of tessera doctor --json"};
  }
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
  return {"cuda", Status::kOk, std::to_string(devices) + " device(s)", ""};
}

Check check_threads() {
  const int threads = at::get_num_threads();
  return {
      "intra-op", Status::kOk,
      std::to_string(threads) + " thread(s), divided by the ranks of a process",
      ""};
}

}  // namespace

std::vector<Check> inspect_torch() {
  return {
      check_version(), check_threads(), check_cuda(), check_threads_engine()};
}

}  // namespace tessera::cli
