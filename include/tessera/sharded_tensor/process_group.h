// ProcessGroup: the ranks that share a sharded tensor.
#pragma once

#include <cstdint>
#include <initializer_list>
#include <map>
#include <string>
#include <vector>

#include <tessera/comm/communicator.h>
#include <tessera/export.h>

namespace tessera::sharded_tensor {

/// The global ranks of a group, in group order. A rank outside may describe it
/// too, but not communicate in it.
class TESSERA_API ProcessGroup {
 public:
  /// The current group: see current_process_group().
  ProcessGroup();
  /// The group of a communicator.
  ProcessGroup(Communicator communicator);
  /// The group of these ranks of this rank's world. Members may join one that
  /// others describe: no communication. Example: ProcessGroup({1, 2, 3}).
  ProcessGroup(std::vector<int64_t> ranks);
  ProcessGroup(std::initializer_list<int64_t> ranks)
      : ProcessGroup(std::vector<int64_t>(ranks)) {}

  const std::vector<int64_t>& ranks() const { return ranks_; }
  int64_t size() const { return static_cast<int64_t>(ranks_.size()); }
  /// Tells whether a global rank is a member.
  bool contains(int64_t global_rank) const;
  /// Returns a member's place in the group; throws for other ranks.
  int64_t group_rank(int64_t global_rank) const;
  /// Returns this rank's place, or -1.
  int64_t rank() const;
  /// Returns the communicator; throws on a rank outside.
  const Communicator& communicator() const;

  /// Compares the ranks and their order.
  friend bool operator==(const ProcessGroup& a, const ProcessGroup& b) {
    return a.ranks_ == b.ranks_;
  }

 private:
  std::vector<int64_t> ranks_;
  Communicator communicator_;
};

/// Prints "group {1, 2, 3}".
TESSERA_API std::string to_string(const ProcessGroup& group);

/// Returns the group of the WithProcessGroup in effect, else all ranks.
TESSERA_API ProcessGroup current_process_group();

/// While it lives on this thread, sharded tensors are restored into `group`,
/// and functions that are told no group use it. Does not nest.
class TESSERA_API WithProcessGroup {
 public:
  explicit WithProcessGroup(ProcessGroup group);
  ~WithProcessGroup();
  WithProcessGroup(const WithProcessGroup&) = delete;
  WithProcessGroup& operator=(const WithProcessGroup&) = delete;

 private:
  ProcessGroup group_;
};

/// While it lives on this thread, placements may name workers: "worker1/cpu" is
/// the rank that the table says. Does not nest.
/// Example: WorkerNames names({{"worker0", 0}, {"worker1", 1}}).
class TESSERA_API WorkerNames {
 public:
  /// Throws for a rank outside the world, or one named twice.
  explicit WorkerNames(std::map<std::string, int64_t> ranks);
  ~WorkerNames();
  WorkerNames(const WorkerNames&) = delete;
  WorkerNames& operator=(const WorkerNames&) = delete;

 private:
  std::map<std::string, int64_t> ranks_;
};

}  // namespace tessera::sharded_tensor
