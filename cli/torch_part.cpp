#include "torch_part.h"

namespace tessera::cli {

std::vector<Check> inspect_torch();
DemoResult train_demo(const DemoOptions& options, const DemoProgress& progress);
BenchRound bench_redistribute(const BenchOptions& options);
std::vector<CommTime> bench_comm(const CommBenchOptions& options);

}  // namespace tessera::cli

extern "C" __attribute__((visibility("default"))) const tessera::cli::TorchPart*
tessera_cli_torch_part() {
  static const tessera::cli::TorchPart part{
      &tessera::cli::inspect_torch, &tessera::cli::train_demo,
      &tessera::cli::bench_redistribute, &tessera::cli::bench_comm};
  return &part;
}
