#include "torch_part.h"

namespace tessera::cli {

std::vector<Check> inspect_torch();
void add_ranks_of_job();
LaunchedAs launched_as();
DemoResult train_demo(const DemoOptions& options, const DemoProgress& progress);
std::vector<std::string> list_rules();

}  // namespace tessera::cli

extern "C" __attribute__((visibility("default"))) const tessera::cli::TorchPart*
tessera_cli_torch_part() {
  static const tessera::cli::TorchPart part{
      &tessera::cli::inspect_torch, &tessera::cli::add_ranks_of_job,
      &tessera::cli::launched_as,   &tessera::cli::train_demo,
      &tessera::list_operators,     &tessera::cli::list_rules};
  return &part;
}
