#include "comm/engine/mpi/failed_ranks.h"

#include <dlfcn.h>

#include <algorithm>
#include <numeric>

namespace tessera::detail::inline comm_layer {
namespace {

using Acknowledge = int (*)(MPI_Comm);
using Acknowledged = int (*)(MPI_Comm, MPI_Group*);

template <class Function>
Function find(const char* name) {
  return reinterpret_cast<Function>(dlsym(RTLD_DEFAULT, name));
}

std::vector<int> ranks_of(MPI_Group dead, MPI_Comm comm) {
  int count = 0;
  MPI_Group_size(dead, &count);
  std::vector<int> among(static_cast<size_t>(count));
  std::iota(among.begin(), among.end(), 0);
  std::vector<int> ranks(among.size(), MPI_UNDEFINED);
  MPI_Group all = MPI_GROUP_NULL;
  MPI_Comm_group(comm, &all);
  if (count > 0) {
    MPI_Group_translate_ranks(dead, count, among.data(), all, ranks.data());
  }
  MPI_Group_free(&all);
  return ranks;
}

}  // namespace

bool FailedRanks::poll(MPI_Comm comm) {
  static const auto acknowledge = find<Acknowledge>("MPIX_Comm_failure_ack");
  static const auto acknowledged =
      find<Acknowledged>("MPIX_Comm_failure_get_acked");
  MPI_Group dead = MPI_GROUP_NULL;
  if (acknowledge == nullptr || acknowledged == nullptr ||
      acknowledge(comm) != MPI_SUCCESS ||
      acknowledged(comm, &dead) != MPI_SUCCESS) {
    return false;
  }
  const size_t before = ranks_.size();
  for (const int64_t rank : ranks_of(dead, comm)) {
    if (std::find(ranks_.begin(), ranks_.end(), rank) == ranks_.end()) {
      ranks_.push_back(rank);
    }
  }
  if (dead != MPI_GROUP_EMPTY) {
    MPI_Group_free(&dead);
  }
  return ranks_.size() > before;
}

}  // namespace tessera::detail::inline comm_layer
