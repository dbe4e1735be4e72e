// What ranks tell each other about their ends and about broken groups, past
// the channels.
#pragma once

#include <cstdint>
#include <map>
#include <string>

namespace tessera::detail::inline comm_layer {

/// Something that happened to a rank or to a group.
struct PeerEvent {
  int64_t rank = 0;       // who says so, or who died
  uint64_t world = 0;     // which of the worlds that share the network
  uint64_t group = 0;     // the number of a broken group; 0: the rank has ended
  std::string text = {};  // why; empty: it ended normally
  /// How many calls a rank made that ended normally, by call sequence: its last
  /// data may arrive behind this.
  std::map<uint64_t, uint64_t> calls = {};
};

/// Returns an event as bytes, and back.
std::string to_bytes(const PeerEvent& event);
PeerEvent event_from(const std::string& bytes);

}  // namespace tessera::detail::inline comm_layer
