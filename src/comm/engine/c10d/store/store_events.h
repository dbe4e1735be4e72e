// Events of failures between processes that share a store.
//
// Note [Who is alive]
// Gloo tells the two neighbours of a process that died, and nobody else. So
// each process writes its id into the store when it starts; while a rank waits,
// it looks whether the processes of its host still exist. What ranks have to
// say about their end goes through the store too.
#pragma once

#include <sys/types.h>

#include <chrono>
#include <cstdint>
#include <map>
#include <set>
#include <vector>

#include "comm/engine/c10d/store/store_ptr.h"
#include "comm/engine/process/transport.h"

namespace tessera::detail::inline comm_layer {

class StoreEvents {
 public:
  StoreEvents(StorePtr store, int64_t rank, int64_t size);
  /// See Network.
  void notify(const PeerEvent& event) noexcept;
  std::vector<PeerEvent> poll_events(uint64_t world);

  /// Says that this rank will not use the store any more.
  void mark_dead() noexcept;
  /// Tells whether no other rank that has started will.
  bool others_are_dead();

 private:
  void poll();
  void read_events();
  void poll_processes();
  void mark_known_processes_dead();
  bool is_alive(int64_t rank);

  StorePtr store_;
  int64_t rank_;
  int64_t size_;
  std::chrono::steady_clock::time_point next_poll_ = {};
  int64_t told_ = 0;                                  // by this rank
  std::map<int64_t, int64_t> read_;                   // by rank
  std::map<uint64_t, std::vector<PeerEvent>> heard_;  // by world
  std::map<int64_t, bool> ended_;
  std::set<int64_t> dead_;                         // ended without an event
  std::map<uint64_t, std::set<int64_t>> mourned_;  // the dead, by world told
  std::map<int64_t, pid_t> processes_;
};

}  // namespace tessera::detail::inline comm_layer
