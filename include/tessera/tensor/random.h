// Random numbers that do not depend on the mesh: a draw is named by the seed
// and the number of draws before it, and each element by its place in the
// global shape. Every rank makes its own elements; nothing is communicated, and
// the values are those of a program with one rank. docs/03_random.md
#pragma once

#include <cstdint>
#include <map>
#include <memory>
#include <string>

#include <tessera/export.h>

namespace tessera {

namespace detail::inline comm_layer {
class RandomCounters;
}  // namespace detail::inline comm_layer
namespace detail::inline tensor_layer {
class ReplicatedRandomImpl;
}  // namespace detail::inline tensor_layer

/// Sets this rank's seed and starts its counters again. All ranks must pass the
/// same seed: collectives compare it. Without a call the seed is 0.
TESSERA_API void manual_seed(uint64_t seed);

/// How far a rank has come: what to save to continue with the same numbers.
struct RandomState {
  uint64_t seed = 0;
  /// Draws so far, those from streams and generators aside.
  uint64_t operations = 0;
  /// Draws so far from each RandomStream.
  std::map<std::string, uint64_t> streams = {};
  friend bool operator==(const RandomState&, const RandomState&) = default;
};

/// Returns this rank's state.
TESSERA_API RandomState random_state();
/// Continues from a state.
TESSERA_API void set_random_state(const RandomState& state);

/// While it lives, this rank draws from a sequence of its own that the seed and
/// the name choose, and that goes on where the last RandomStream of that name
/// ended. For programs whose ranks differ: its draws do not count among those
/// that ranks compare. Example: RandomStream stream("stage 2").
class TESSERA_API RandomStream {
 public:
  explicit RandomStream(const std::string& name);
  ~RandomStream();
  RandomStream(const RandomStream&) = delete;
  RandomStream& operator=(const RandomStream&) = delete;

 private:
  std::shared_ptr<detail::RandomCounters> counters_;
};

/// While it lives on this thread, random operators on plain tensors draw these
/// numbers too, so that all ranks get equal values, and plain tensors may mix
/// with sharded ones as under ImplicitReplication. For making modules before
/// they are sharded, and for torch::nn::init::orthogonal_ and sparse_, which
/// draw into plain tensors of their own.
class TESSERA_API ReplicatedRandom {
 public:
  ReplicatedRandom();
  ~ReplicatedRandom();
  ReplicatedRandom(const ReplicatedRandom&) = delete;
  ReplicatedRandom& operator=(const ReplicatedRandom&) = delete;

 private:
  std::unique_ptr<detail::ReplicatedRandomImpl> impl_;
};

}  // namespace tessera
