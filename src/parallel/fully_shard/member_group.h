// A group of parameters that are gathered together.
#pragma once

#include <cstdint>
#include <memory>
#include <string>
#include <utility>
#include <vector>

#include <ATen/core/Tensor.h>
#include <parallel/fully_shard/unsharded_parameter.h>
#include <tensor/move/group_move.h>
#include <tessera/parallel/fully_shard.h>

namespace tessera::detail::inline parallel_layer {

/// A parameter of a group; the leaf may die before the group.
struct GroupMember {
  std::string name;  // its path in the module
  c10::weak_intrusive_ptr<c10::TensorImpl> leaf;
  at::Tensor shard;
  SpecPtr spec;  // of the leaf
  std::shared_ptr<UnshardedParameter> unsharded = nullptr;

  /// Returns the parameter, or nothing where it is dead.
  at::Tensor parameter() const {
    auto alive = leaf.lock();
    return alive ? at::Tensor(std::move(alive)) : at::Tensor();
  }
  bool needs_grad() const {
    const at::Tensor alive = parameter();
    return alive.defined() && alive.requires_grad();
  }
};

/// What all groups of a module have in common.
struct GroupingRules {
  DeviceMesh mesh;
  int64_t mesh_dim = 0;
  int64_t replicate_dim = -1;  // of none
  FullyShardOptions options;
  std::weak_ptr<UnshardedParameterOwner> owner = {};
};

/// The members, and where their gathered memory is.
class MemberGroup {
 public:
  MemberGroup(
      std::string path, size_t number, std::vector<GroupMember> members);

  const std::string& path() const { return path_; }
  std::vector<GroupMember>& members() { return members_; }
  const std::vector<GroupMember>& members() const { return members_; }
  /// Prints "'blocks.3' {weight, bias}" of some members, by their numbers.
  std::string names_of(const std::vector<size_t>& members) const;
  bool has_trainable_member() const;

  /// Tells whether a parameter got another dtype, or another shard.
  bool has_new_shards() const;
  /// Takes what has become of the parameters; while it holds no memory.
  void update(const GroupingRules& rules);

  /// Tells whether all memory holds the values that the shards have.
  bool is_filled() const;
  bool is_arriving() const { return !moving_.empty(); }
  /// Tells whether some memory is held, or on its way.
  bool has_memory() const { return has_memory_; }
  /// Begins to gather; collective.
  void start(const GroupingRules& rules);
  /// Completes what start() began; returns the bytes that lay in buffers
  /// beside the gathered memory.
  int64_t wait();
  /// Gives the memory back, after what is on its way has arrived.
  void release();

  int64_t unsharded_bytes() const;

  // Set by who decides when the group is used.
  bool open = false;   // used in a forward that goes on
  bool ahead = false;  // gathered before its use
  bool reshard_after_forward = true;
  int64_t last_gathers = 0;

 private:
  struct Gathering {
    std::shared_ptr<const GroupPlan> plan;
    std::vector<size_t> members;
  };
  void plan(const GroupingRules& rules);

  std::string path_;
  size_t number_;
  std::vector<GroupMember> members_;
  std::vector<Gathering> gatherings_;  // one per dtype
  std::vector<std::shared_ptr<MovingGroup>> moving_;
  bool has_memory_ = false;
};

}  // namespace tessera::detail::inline parallel_layer
