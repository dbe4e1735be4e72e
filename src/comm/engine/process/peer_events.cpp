#include "comm/engine/process/peer_events.h"

#include <iterator>
#include <sstream>

namespace tessera::detail::inline comm_layer {

// "RANK WORLD GROUP SEQUENCES sequence calls sequence calls text"
std::string to_bytes(const PeerEvent& event) {
  std::ostringstream out;
  out << event.rank << ' ' << event.world << ' ' << event.group << ' '
      << event.calls.size() << ' ';
  for (const auto& [sequence, calls] : event.calls) {
    out << sequence << ' ' << calls << ' ';
  }
  out << event.text;
  return out.str();
}

PeerEvent event_from(const std::string& bytes) {
  std::istringstream in(bytes);
  PeerEvent event;
  size_t sequences = 0;
  in >> event.rank >> event.world >> event.group >> sequences;
  for (size_t i = 0; i < sequences && in; ++i) {
    uint64_t sequence = 0;
    uint64_t calls = 0;
    in >> sequence >> calls;
    event.calls[sequence] = calls;
  }
  in.get();
  event.text.assign(std::istreambuf_iterator<char>(in), {});
  return event;
}

}  // namespace tessera::detail::inline comm_layer
