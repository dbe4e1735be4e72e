// Modes of a thread, which hold in the backward passes that it starts too.
//
// Note [Modes follow autograd's threads]
// A backward pass may run on a thread that autograd made: the device's, or one
// of a pool where backward passes nest too deep. There LibTorch sets what
// at::ThreadLocalState took of the thread that called backward(). Ours travels
// in its table of objects by name, as a pointer that LibTorch copies and never
// looks into. (The other place for data of libraries, ThreadLocalDebugInfo, is
// a stack that modes and profilers, which may end in any order, cannot share.)
// What is set for one backward pass stays as it was when the pass began, so the
// table of our modes is immutable: a change installs a new one.
#pragma once

#include <atomic>
#include <cstdint>
#include <memory>

namespace tessera::detail::inline comm_layer {

/// All modes, and the types of their values.
enum class Mode : uint8_t {
  kRank,              // Guarded, of the innermost RankGuard
  kMesh,              // DeviceMesh, of the innermost MeshGuard
  kStrict,            // StrictOptions
  kGradientCheck,     // ReplicaCheckOptions
  kReplicationCheck,  // bool
  kMachineModel,      // MachineModel
  kRandomCounters,    // std::shared_ptr<RandomCounters>, of plain tensors
  kLossParallel,      // bool
  kProcessGroup,      // sharded_tensor::ProcessGroup
  kWorkerNames        // std::map<std::string, int64_t>
};
constexpr size_t kModes = 10;

/// The value of a mode; null where it is off.
using ModeValue = std::shared_ptr<const void>;

/// Gives a mode a value on this thread; returns the one before.
ModeValue exchange_mode(Mode mode, ModeValue value);
/// Ends all modes of this thread: a new rank has none.
void clear_modes();

/// The modes that a thread of this process has ever had, a bit for each.
extern std::atomic<uint32_t> modes_ever_on;
const ModeValue& find_mode(Mode mode);

/// Returns the value of a mode on this thread, or null; valid until the mode
/// changes. A mode that no thread ever had costs one load.
template <class T>
const T* mode_value(Mode mode) {
  const uint32_t ever = modes_ever_on.load(std::memory_order_relaxed);
  return (ever >> static_cast<uint32_t>(mode) & 1U) == 0
             ? nullptr
             : static_cast<const T*>(find_mode(mode).get());
}

}  // namespace tessera::detail::inline comm_layer
