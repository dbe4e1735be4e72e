#include "comm/engine/launch.h"

#include <charconv>
#include <cstdlib>
#include <sstream>
#include <vector>

#include <base/environment.h>
#include <c10/util/Exception.h>

namespace tessera::detail::inline comm_layer {
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
  const char* local_size;  // none where it has a form of its own: Slurm
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
       nullptr},
  };
  return all;
}

// Nodes in a row that have as many tasks each: "4(x2)" is two of 4, "3" is one.
struct Nodes {
  int64_t tasks;
  int64_t count;
};

Nodes nodes_of(const std::string& name, const std::string& text) {
  const size_t open = text.find("(x");
  if (open == std::string::npos) {
    return {number(name, text), 1};
  }
  TORCH_CHECK_VALUE(
      text.back() == ')', "init: ", name, " must close its (; got '", text,
      "'");
  const size_t times = open + 2;
  return {
      number(name, text.substr(0, open)),
      number(name, text.substr(times, text.size() - times - 1))};
}

// The tasks of this step on this node; 0 where Slurm does not tell.
// Of "4(x2),3", nodes 0 and 1 have 4 and node 2 has 3.
int64_t slurm_local_size(int64_t size, const Environment& get) {
  const std::string name = get("SLURM_STEP_TASKS_PER_NODE").empty()
                               ? "SLURM_TASKS_PER_NODE"
                               : "SLURM_STEP_TASKS_PER_NODE";
  const std::string node = get("SLURM_NODEID");
  const int64_t index = node.empty() ? -1 : number("SLURM_NODEID", node);
  int64_t nodes = 0;
  int64_t tasks = 0;
  int64_t mine = 0;
  bool even = true;
  int64_t first_tasks = -1;
  std::istringstream list(get(name));
  for (std::string part; std::getline(list, part, ',');) {
    const Nodes run = nodes_of(name, part);
    if (run.tasks > size || run.count > size) {
      return 0;  // of another step
    }
    first_tasks = first_tasks < 0 ? run.tasks : first_tasks;
    even = even && run.tasks == first_tasks;
    mine = index >= nodes && index < nodes + run.count ? run.tasks : mine;
    nodes += run.count;
    tasks += run.count * run.tasks;
  }
  if (tasks != size) {
    return 0;  // of another step, or not set
  }
  return even ? first_tasks : mine;
}

int64_t local_size_of(
    const Source& source, int64_t size, const Environment& get) {
  if (source.local_size == nullptr) {
    return slurm_local_size(size, get);
  }
  const std::string text = get(source.local_size);
  return text.empty() ? size : number(source.local_size, text);
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
  launch.local_rank =
      local_rank.empty() ? launch.rank : number(source.local_rank, local_rank);
  launch.local_size = local_size_of(source, launch.size, get);
  return launch;
}

}  // namespace

std::string environment(const std::string& name) {
  return base::environment(name);
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
      get("PMIX_RANK").empty() || get("PMIX_RANK") == "0",
      "init: PMIX_RANK=", get("PMIX_RANK"),
      " says that this is one of several processes, but nothing says of how "
      "many; set RANK and WORLD_SIZE");
  return std::nullopt;
}

}  // namespace tessera::detail::inline comm_layer
