// Where a rank prints its flight record: TESSERA_FLIGHT_RECORDER.
#pragma once

#include <chrono>
#include <functional>
#include <string>
#include <vector>

#include <tessera/comm/flight_recorder.h>

namespace tessera::detail::inline comm_layer {

/// What a rank prints.
struct FlightRecord {
  std::vector<FlightEntry> entries;
  std::string why;
  /// The wall clock's time from which the entries count theirs.
  std::chrono::system_clock::time_point begin;
};

/// Prints what `make` returns where TESSERA_FLIGHT_RECORDER says; does not ask
/// for it where nothing is to be printed. Records of ranks that are threads
/// follow each other. What goes wrong is said on stderr.
void print_flight_record(const std::function<FlightRecord()>& make) noexcept;

}  // namespace tessera::detail::inline comm_layer
