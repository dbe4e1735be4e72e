#include "comm/launch.h"

#include <charconv>
#include <cstdlib>
#include <vector>

#include <c10/util/Exception.h>

namespace tessera::detail {
namespace {

int64_t number(const std::string& name, const std::string& text) {
  int64_t value = 0;
  const char* end = text.data() + text.size();
  const auto [stop, error] = std::from_chars(text.data(), end, value);
  TORCH_CHECK_VALUE(
      error == std::errc() && stop == end && value >= 0, "init: ", name,
      " must be a number of at least 0; got '", text, "'");
  return value;
}

// The variables of one launcher. A source counts as soon as one of the first
// two is set; then both must be.
struct Source {
  const char* name;
  const char* engine;
  const char* rank;
  std::vector<const char*> size;  // the first one that is set
  const char* local_rank;
  const char* local_size;
};

const std::vector<Source>& sources() {
  static const std::vector<Source> all = {
      {"tessera run",
       "gloo",
       "TESSERA_RANK",
       {"TESSERA_WORLD_SIZE"},
       "TESSERA_LOCAL_RANK",
       "TESSERA_LOCAL_SIZE"},
      {"torchrun",
       "gloo",
       "RANK",
       {"WORLD_SIZE"},
       "LOCAL_RANK",
       "LOCAL_WORLD_SIZE"},
      {"Open MPI",
       "mpi",
       "OMPI_COMM_WORLD_RANK",
       {"OMPI_COMM_WORLD_SIZE"},
       "OMPI_COMM_WORLD_LOCAL_RANK",
       "OMPI_COMM_WORLD_LOCAL_SIZE"},
      {"PMI",
       "mpi",
       "PMI_RANK",
       {"PMI_SIZE"},
       "MPI_LOCALRANKID",
       "MPI_LOCALNRANKS"},
      {"Slurm",
       "mpi",
       "SLURM_PROCID",
       {"SLURM_STEP_NUM_TASKS", "SLURM_NTASKS"},
       "SLURM_LOCALID",
       "SLURM_TASKS_PER_NODE"},
  };
  return all;
}

std::optional<Launch> read(const Source& source, const Environment& get) {
  const std::string rank = get(source.rank);
  std::string size_name = source.size[0];
  std::string size;
  for (const char* name : source.size) {
    if (size.empty() && !get(name).empty()) {
      size_name = name;
      size = get(name);
    }
  }
  if (rank.empty() && size.empty()) {
    return std::nullopt;
  }
  TORCH_CHECK_VALUE(
      !rank.empty() && !size.empty(), "init: ", source.name,
      " is set by half: ", source.rank, "='", rank, "', ", size_name, "='",
      size, "'; set both or neither");
  Launch launch{
      .source = source.name,
      .rank = number(source.rank, rank),
      .size = number(size_name, size),
      .engine = source.engine};
  TORCH_CHECK_VALUE(
      launch.rank < launch.size, "init: ", source.rank, "=", rank,
      " must be less than ", size_name, "=", size);
  const std::string local_rank = get(source.local_rank);
  const std::string local_size = get(source.local_size);
  launch.local_rank =
      local_rank.empty() ? launch.rank : number(source.local_rank, local_rank);
  // "4(x2)" in Slurm.
  launch.local_size =
      local_size.empty()
          ? launch.size
          : number(
                source.local_size,
                local_size.substr(0, local_size.find_first_of("(,")));
  return launch;
}

}  // namespace

std::string environment(const std::string& name) {
  const char* value = std::getenv(name.c_str());
  return value == nullptr ? "" : value;
}

std::optional<Launch> find_launch(const Environment& get) {
  for (const Source& source : sources()) {
    // Outside of a step, Slurm describes the batch script: a lone process.
    if (std::string(source.name) == "Slurm" && get("SLURM_STEP_ID").empty()) {
      continue;
    }
    if (const auto launch = read(source, get)) {
      return launch;
    }
  }
  TORCH_CHECK_VALUE(
      get("PMIX_RANK").empty() || get("PMIX_RANK") == "0" ||
          !get("TESSERA_WORLD_SIZE").empty(),
      "init: PMIX_RANK=", get("PMIX_RANK"),
      " says that this is one of several processes, but nothing says of how "
      "many; set RANK and WORLD_SIZE");
  return std::nullopt;
}

}  // namespace tessera::detail
