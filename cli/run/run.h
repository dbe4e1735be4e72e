// The parts of `tessera run`: ranks as threads of one program, ranks as
// processes, and what stands between mpirun and a rank.
#pragma once

#include <string>
#include <vector>

namespace tessera::cli {

struct RunOptions {
  int ranks = 0;
  std::string engine = "threads";
  bool no_prefix = false;
  std::string join;  // for processes that mpirun starts: the job's folder
};

using Argv = std::vector<std::string>;

/// Runs a program on ranks that are processes; returns the exit code.
int run_processes(const RunOptions& options, const Argv& argv);
/// Is one of the processes that mpirun starts for run_processes(): runs the
/// program as this rank. See Note [Ranks under mpirun].
int join_job(const RunOptions& options);

/// What a rank's process is told in its environment.
void describe_rank(const RunOptions& options, int rank);

/// An mpirun; path is empty where there is none.
struct Mpirun {
  std::string path;
  std::string version;  // what it says about itself
  bool is_open_mpi() const {
    return version.find("Open MPI") != std::string::npos ||
           version.find("OpenRTE") != std::string::npos;
  }
};
Mpirun find_mpirun();

}  // namespace tessera::cli
