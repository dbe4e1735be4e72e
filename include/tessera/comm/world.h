// The world: how many ranks there are, which one this is, and how they talk.
// The same program runs as threads of one process, under a launcher, or alone.
#pragma once

#include <chrono>
#include <cstdint>
#include <functional>
#include <memory>
#include <string>
#include <vector>

#include <tessera/comm/communicator.h>
#include <tessera/export.h>

namespace tessera {

namespace detail::inline comm_layer {
class RandomCounters;
class WorldImpl;
}  // namespace detail::inline comm_layer

/// How ranks are realised. kAuto finds out how the program was started.
enum class Engine : uint8_t { kAuto, kThreads, kMpi, kNccl, kC10d, kSimulated };

/// What init() and run_ranks() may be told.
struct InitOptions {
  Engine engine = Engine::kAuto;
  /// How long any wait for another rank may take.
  std::chrono::milliseconds deadline = std::chrono::minutes(5);
};

/// A handle to this rank's world.
class TESSERA_API World {
 public:
  explicit World(std::shared_ptr<detail::WorldImpl> impl);
  int64_t rank() const;
  int64_t size() const;
  /// Returns the group of all ranks.
  Communicator communicator() const;
  /// Returns the group of the given global ranks, in that order. Every rank of
  /// the group must ask for it with the same list; others need not.
  Communicator communicator(const std::vector<int64_t>& ranks) const;
  /// Makes a broken group whole again: the way on after a failure. Every rank
  /// of the group calls this, as often as the others; all handles to the group,
  /// those in meshes and tensors too, then use the new connections. After the
  /// end of a rank, rebuild a group of those that are left.
  /// Example: catch (const c10::DistBackendError&) { world.rebuild({0, 1}); }
  Communicator rebuild(const std::vector<int64_t>& ranks) const;
  /// Returns the engine's name: "threads", "mpi", "gloo", ...
  std::string engine() const;
  std::chrono::milliseconds deadline() const;
  void set_deadline(std::chrono::milliseconds deadline) const;
  /// Returns how far this rank has come in its random numbers; for the library.
  const std::shared_ptr<detail::RandomCounters>& random_counters() const;
  friend bool operator==(const World&, const World&) = default;

 private:
  friend class RankGuard;
  std::shared_ptr<detail::WorldImpl> impl_;
};

/// Returns this rank's world: inside run_ranks(), run_simulated() or run() the
/// one of this thread; alone, a world of one rank. Repeated calls return the
/// same world. Engine::kSimulated makes sure that it is a simulated one. While
/// ranks run as threads, a thread that is none of them needs a RankGuard.
/// Example: init().rank().
TESSERA_API World init(InitOptions options = {});

/// Runs `body` on `n` ranks that are threads of this process, and returns when
/// all have ended. An exception on one rank frees the others at once and is
/// rethrown here with its rank.
/// Example: run_ranks(4, [] { std::cout << tessera::rank(); });
TESSERA_API void run_ranks(
    int n, const std::function<void()>& body, InitOptions options = {});

/// One rank of a world whose other ranks are not there.
struct SimulatedRank {
  int64_t rank = 0;
  /// The number of ranks of the world.
  int64_t size = 1;
};

/// Runs `body` as one rank of a world of any size, on a thread of its own.
/// Collectives return at once; the others are taken to hold and to send what
/// this rank does, so shapes are right everywhere, and values where this rank
/// holds them. split() is refused: it asks for what the others pass.
/// The same for a whole process: TESSERA_ENGINE=simulated, TESSERA_RANK=17,
/// TESSERA_WORLD_SIZE=65536 in its environment.
/// Example: run_simulated({.rank = 17, .size = 65536}, [] {
///   auto mesh = init_device_mesh(at::kCPU, {256, 256}); });
TESSERA_API void run_simulated(
    const SimulatedRank& which, const std::function<void()>& body);

/// Runs `body` once per rank that this process hosts: on N threads when started
/// by `tessera run -n N`, else once. The usual content of main().
TESSERA_API void run(const std::function<void()>& body);

/// Makes a thread that a rank has started itself part of that rank while it
/// lives: init(), rank(), new meshes, seeds and logs are the rank's, and
/// backward runs on this thread. Made and destroyed on the thread concerned.
/// Ranks compare the name of the guard under which a collective is called, so
/// threads of one rank that call a group need names that differ.
/// Example: std::thread([world = init()] { RankGuard guard(world); ... });
class TESSERA_API RankGuard {
 public:
  explicit RankGuard(const World& world, const std::string& name = "helper");
  ~RankGuard();
  RankGuard(const RankGuard&) = delete;
  RankGuard& operator=(const RankGuard&) = delete;

 private:
  struct State;
  std::unique_ptr<State> state_;
};

/// Returns this rank; 0 when the program runs alone.
TESSERA_API int64_t rank();
/// Returns the number of ranks; 1 when the program runs alone.
TESSERA_API int64_t world_size();

}  // namespace tessera
