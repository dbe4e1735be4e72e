// The random numbers that a rank has drawn so far, as counters: what names a
// draw, and what ranks compare in every collective. Which numbers a draw gives
// is the business of a higher layer.
#pragma once

#include <cstdint>
#include <map>
#include <memory>
#include <mutex>
#include <string>
#include <utility>
#include <vector>

#include <ATen/core/Generator.h>

#include "comm/call/call.h"

namespace tessera::detail::inline comm_layer {

/// Names one draw. Equal draws give equal numbers.
struct RandomOffset {
  uint64_t seed = 0;
  uint64_t stream = 0;  // 0: the world's own
  uint64_t operation = 0;
  friend bool operator==(const RandomOffset&, const RandomOffset&) = default;
};

/// One rank's counters. Ranks that are threads have one each; the threads of a
/// program that runs alone share one.
class RandomCounters {
 public:
  /// Sets the seed and starts all counters but those of generators again.
  void set_seed(uint64_t seed);
  /// Names the next draw: of the innermost scope or stream, else the world's.
  RandomOffset next();
  /// Names the next draw from a generator. Its operations are counted here, per
  /// rank and object, from 0 again when its seed changes.
  RandomOffset next(const at::Generator& generator);
  /// Returns what all ranks must agree on.
  RandomStamp stamp() const;

  /// Draws come from a named stream between push and pop. Scopes nest.
  void push_stream(const std::string& name);
  /// Draws come from a sequence of their own, which `offset` starts.
  void push_scope(const RandomOffset& offset);
  void pop();

  struct State {
    uint64_t seed = 0;
    uint64_t operations = 0;
    std::map<std::string, uint64_t> streams;
  };
  State state() const;
  void set_state(State state);

  /// Returns how many draws there were, of whatever sequence.
  uint64_t draws() const;
  class Snapshot;
  /// Returns all that the next draws depend on, scopes and generators included.
  std::shared_ptr<const Snapshot> snapshot() const;
  /// Goes back to a snapshot of these counters.
  void restore(const Snapshot& snapshot);

 private:
  struct Scope {
    std::string stream;  // empty: a sequence of its own
    RandomOffset next;
  };
  struct Counted {
    c10::weak_intrusive_ptr<c10::GeneratorImpl> generator;
    RandomOffset next;
  };

  // What a snapshot holds.
  struct All {
    State state = {};
    std::vector<Scope> scopes = {};
    std::map<const c10::GeneratorImpl*, Counted> generators = {};
    uint64_t draws = 0;
  };

  mutable std::mutex mutex_;
  All all_;
};

/// The counters at one moment.
class RandomCounters::Snapshot {
 private:
  friend class RandomCounters;
  explicit Snapshot(All all) : all_(std::move(all)) {}
  All all_;
};

/// Returns the number of a named stream; never 0. FNV-1a, so that it is equal
/// on all machines.
uint64_t stream_number(const std::string& name);

}  // namespace tessera::detail::inline comm_layer
