// A training that saves and ends when it is told to, as schedulers do by
// SIGTERM, and that goes on where it was when it is started again: weights,
// optimizer, random numbers and the place in the data.
//
//   build/bin/tessera run -n 4 -- build/bin/08_stop_and_go_on runs 300
//   kill -TERM ...                    ends with 75: saved, start it again
//   build/bin/tessera run -n 2 -- build/bin/08_stop_and_go_on runs 300
#include <atomic>
#include <csignal>
#include <filesystem>
#include <iomanip>
#include <iostream>
#include <memory>
#include <sstream>
#include <string>

#include <tessera/tessera.h>
#include <torch/torch.h>

namespace {

using namespace tessera;

constexpr int kSavedStartAgain = 75;  // EX_TEMPFAIL of sysexits.h
constexpr int64_t kSamples = 100;
constexpr int64_t kBatch = 16;

std::atomic<bool> is_told_to_stop = false;
static_assert(std::atomic<bool>::is_always_lock_free);  // for the handler

// The signal may reach one rank only, and each between other steps: all stop
// behind the step in which the first of them has it.
bool all_stop_here() {
  const at::Tensor votes = at::full({1}, is_told_to_stop ? 1 : 0, at::kInt);
  init().communicator().all_reduce(votes, ReduceOp::kMax);
  return votes.item<int>() != 0;
}

// load() gives the number back.
checkpoint::StateValue kept(int64_t& number) {
  return checkpoint::StateValue(number).on_load(
      [&number](const checkpoint::StateValue& read) {
        number = read.to_int();
      });
}

// Every epoch has an order of its own, by its number alone: epoch and offset
// are the place in the data.
struct Sampler {
  int64_t epoch = 0;
  int64_t offset = 0;

  at::Tensor next() {
    if (offset + kBatch > kSamples) {
      ++epoch;
      offset = 0;
    }
    const at::Tensor order = at::randperm(
        kSamples, at::detail::createCPUGenerator(static_cast<uint64_t>(epoch)),
        at::TensorOptions(at::kLong));
    offset += kBatch;
    return order.narrow(0, offset - kBatch, kBatch);
  }
};

struct Net : torch::nn::Module {
  Net()
      : up(register_module("up", torch::nn::Linear(8, 24))),
        drop(register_module("drop", torch::nn::Dropout(0.1))),
        down(register_module("down", torch::nn::Linear(24, 1))) {
    to(at::kDouble);
  }
  at::Tensor forward(const at::Tensor& x) {
    return down(drop(torch::tanh(up(x))));
  }
  torch::nn::Linear up;
  torch::nn::Dropout drop;
  torch::nn::Linear down;
};

struct Training {
  explicit Training(const DeviceMesh& on) : mesh(on) {
    manual_seed(1);
    {
      const ReplicatedRandom equal;
      net = std::make_shared<Net>();
    }
    parallelize_module(
        net, mesh, {{"up", ColwiseParallel()}, {"down", RowwiseParallel()}});
    optimizer = std::make_unique<torch::optim::AdamW>(net->parameters(), 0.01);
    samples = at::linspace(-1, 1, kSamples * 8, at::kDouble).view({-1, 8});
  }

  double run_step() {
    const at::Tensor rows = samples.index_select(0, sampler.next());
    const at::Tensor x = distribute_tensor(
        rows, mesh, {Shard(0), Replicate()}, {.src_data_rank = std::nullopt});
    optimizer->zero_grad();
    const at::Tensor loss =
        (net->forward(x) - x.sin().sum(1, true)).pow(2).mean();
    loss.backward();
    optimizer->step();
    ++step;
    return loss.item<double>();
  }

  checkpoint::StateDict state() {
    return {
        {"training", checkpoint::state_dict(*net, *optimizer)},
        {"random", checkpoint::random_state_dict()},
        {"data",
         checkpoint::StateDict{
             {"epoch", kept(sampler.epoch)}, {"offset", kept(sampler.offset)}}},
        {"step", kept(step)}};
  }

  DeviceMesh mesh;
  std::shared_ptr<Net> net;
  std::unique_ptr<torch::optim::AdamW> optimizer;
  at::Tensor samples;
  Sampler sampler;
  int64_t step = 0;
};

void print(const std::string& line) {
  std::cout << (rank() == 0 ? line + "\n" : "") << std::flush;
}

// Returns the exit code.
int train(const std::string& folder, int64_t steps) {
  const int64_t n = world_size();
  const int64_t dp = n % 2 == 0 ? 2 : 1;
  Training training(init_device_mesh(at::kCPU, {dp, n / dp}, {"dp", "tp"}));
  std::filesystem::create_directories(folder);
  if (const auto path = checkpoint::latest(folder)) {
    checkpoint::StateDict state = training.state();
    checkpoint::load(state, *path);
    print(c10::str("goes on after step ", training.step));
  }
  while (training.step < steps) {
    const double loss = training.run_step();
    std::ostringstream line;
    line << "step " << training.step << " loss " << std::setprecision(17)
         << loss;
    print(line.str());
    const bool stops = all_stop_here();
    if (stops || training.step == steps) {
      const std::string path =
          checkpoint::save_step(training.state(), folder, training.step, 2);
      print((stops ? "SIGTERM: saved " : "saved ") + path);
    }
    if (stops) {
      return kSavedStartAgain;
    }
  }
  print("done");
  return 0;
}

}  // namespace

int main(int argc, char** argv) {
  std::signal(SIGTERM, [](int) { is_told_to_stop = true; });
  std::atomic<int> exit_code = 0;
  tessera::run([&] {
    const std::string folder =
        argc > 1 ? argv[1]
                 : std::filesystem::temp_directory_path() /
                       ("tessera_steps_" + std::to_string(world_size()));
    exit_code = train(folder, argc > 2 ? std::stol(argv[2]) : 30);
    init().communicator().barrier();
    if (argc == 1 && rank() == 0) {
      std::filesystem::remove_all(folder);
    }
  });
  return exit_code;
}
