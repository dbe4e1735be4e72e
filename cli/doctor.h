// What doctor finds, and how its executables hand findings on: `tessera doctor`
// runs `tessera-torch doctor-torch`, which prints the findings about LibTorch
// as one line of JSON, so that a LibTorch which cannot be loaded, or crashes,
// is a finding too.
#pragma once

#include <cstdint>
#include <string>

namespace tessera::cli {

/// One finding of doctor.
struct Check {
  enum class Status : uint8_t { kOk, kWarn, kFail };
  std::string name;
  Status status = Status::kOk;
  std::string found;
  std::string advice;  // what to do; empty when ok
};

/// The executable that checks LibTorch, and its commands.
inline constexpr const char* kTorchExecutable = "tessera-torch";
/// Prints the findings as a JSON list of [name, status, found, advice].
inline constexpr const char* kDoctorTorch = "doctor-torch";
/// Adds 1, 2, ... over the processes of a job; fails where the sum is wrong.
inline constexpr const char* kDoctorAddRanks = "doctor-add-ranks";

}  // namespace tessera::cli
