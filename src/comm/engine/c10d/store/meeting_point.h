// Where the processes of a job find each other, from what their launcher says.
#pragma once

#include <cstdint>
#include <string>

#include "comm/engine/launch.h"

namespace tessera::detail::inline comm_layer {

/// A store that all ranks can reach: a folder, or a server.
struct MeetingPoint {
  std::string folder;   // "": a server
  std::string address;  // of the server
  uint16_t port = 0;
  bool serves = false;  // this rank is the server
};

/// Finds it, in this order: the folder TESSERA_STORE; MASTER_ADDR and
/// MASTER_PORT; 127.0.0.1 where all ranks run on one host; in Slurm, the first
/// host of the step; else an error that says what to set. Rank 0 serves unless
/// torchrun's agent does. Without MASTER_PORT the port follows from the job's
/// id; see port_of().
MeetingPoint find_meeting_point(
    const Launch& launch, const Environment& get = environment);

/// Returns the first host of a list as Slurm writes it.
/// Example: "n[01-04,7],m2" -> "n01"; "rack[2-3]-n[5,6]" -> "rack2-n5".
std::string first_host(const std::string& list);

/// Returns a port for a job's id: 10000 + h % 20000, below those that systems
/// give out, where h = 31 h + c for each character c.
/// Example: "12.0" -> h = ((49 * 31 + 50) * 31 + 46) * 31 + 48 -> 19283.
uint16_t port_of(const std::string& job_id);

/// Returns the network interface that Gloo listens at; "": loopback. An error
/// where the ranks are on several hosts and none is named.
std::string gloo_interface(
    const Launch& launch, const Environment& get = environment);

}  // namespace tessera::detail::inline comm_layer
