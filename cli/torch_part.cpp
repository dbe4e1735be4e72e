#include "torch_part.h"

namespace tessera::cli {

std::vector<Check> inspect_torch();
void add_ranks_of_job();
LaunchedAs launched_as();
DemoResult train_demo(const DemoOptions& options, const DemoProgress& progress);
BenchRound bench_redistribute(const BenchOptions& options);
std::vector<CommTime> bench_comm(const CommBenchOptions& options);
std::vector<DispatchCost> bench_dispatch(const DispatchBenchOptions& options);
MissRound bench_misses(const MissBenchOptions& options);
std::optional<TrainTime> bench_train(const TrainBenchOptions& options);
std::vector<std::string> list_rules();

}  // namespace tessera::cli

extern "C" __attribute__((visibility("default"))) const tessera::cli::TorchPart*
tessera_cli_torch_part() {
  static const tessera::cli::TorchPart part{
      &tessera::cli::inspect_torch,      &tessera::cli::add_ranks_of_job,
      &tessera::cli::launched_as,        &tessera::cli::train_demo,
      &tessera::cli::bench_redistribute, &tessera::cli::bench_comm,
      &tessera::cli::bench_dispatch,     &tessera::cli::bench_misses,
      &tessera::cli::bench_train,        &tessera::list_operators,
      &tessera::cli::list_rules};
  return &part;
}
