// How long a log's collectives take by the machine model: of a real run to
// compare with a clock, of a simulated rank instead of one.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include <tessera/comm/comm_log.h>
#include <tessera/export.h>
#include <tessera/tensor/machine_model.h>

namespace tessera {

/// Returns the seconds of a recorded collective among n ranks: messages x
/// latency + bytes / bandwidth + bytes written / copy bandwidth, by the link of
/// its mesh dims, as plans are priced. Messages: as message_count() says, 1 for
/// send and recv.
/// Example: an all_gather of 1000 to 4000 bytes among 4 ranks, by the default
/// model: 2 * 5e-6 + 3000 / 10e9 + 4000 / 20e9 = 1.05e-5.
TESSERA_API double predicted_time(
    const CommLogEntry& entry, const MachineModel& model = machine_model());

/// The collectives of one kind along the same mesh dims, summed.
struct PredictedTime {
  std::string kind;
  /// As in CommLogEntry; "" where they are not known.
  std::string mesh_dims;
  int64_t count = 0;
  int64_t bytes = 0;
  double seconds = 0;
};

/// Returns one sum per kind and mesh dims, the longest first.
/// Example: CommLog log; step(); std::cout << to_string(predicted_times(log));
TESSERA_API std::vector<PredictedTime> predicted_times(
    const CommLog& log, const MachineModel& model = machine_model());

/// Prints one line per sum, "all_gather tp: 3 calls, 4096 bytes, 1.55e-05 s",
/// then the total.
TESSERA_API std::string to_string(const std::vector<PredictedTime>& times);

}  // namespace tessera
