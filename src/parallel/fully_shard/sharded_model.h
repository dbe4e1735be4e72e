// What fully_shard() makes of a module: groups, and when each is whole.
//
// Note [When a group is whole]
// A group is gathered when a call uses one of its members (Note [Members of
// groups], member_use.h), or when a tensor that autograd saved is used whose
// memory was given back (GatheredMemory, sharded_impl.h). Nothing says that the
// forward of a group is over; but a use of another group does, unless one of
// the two modules lies in the other: siblings end each other, and the root ends
// never. A wrong guess costs a gather, never a value. The backward of a group
// is over when autograd runs its node (unshard_node.h), and at the end of a
// backward pass all is given back: an optimizer never writes a shard that other
// ranks still read.
//
// All of this is decided by calls, recorded orders and counts of versions,
// which ranks have in common; never by who holds a tensor, or by time.
#pragma once

#include <cstdint>
#include <memory>
#include <string>
#include <vector>

#include <ATen/core/Tensor.h>
#include <parallel/fully_shard/member_group.h>
#include <parallel/fully_shard/reductions.h>
#include <parallel/fully_shard/unshard_node.h>
#include <parallel/fully_shard/use_order.h>
#include <tensor/uses/member_use.h>
#include <tensor/uses/parameter_use.h>
#include <tessera/parallel/fully_shard.h>

namespace tessera::detail::inline parallel_layer {

/// A group before it serves: its path, and its members.
struct GroupPlace {
  std::string path;
  std::vector<GroupMember> members;
};

class ShardedModel final : public UnshardedParameterOwner,
                           public GradientReducer,
                           public std::enable_shared_from_this<ShardedModel> {
 public:
  using Keep = FullyShard::Accumulate::Keep;

  static std::shared_ptr<ShardedModel> make(
      GroupingRules rules, std::vector<GroupPlace> places);
  ~ShardedModel() override;

  /// Returns the tensor that calls take in the place of a member.
  at::Tensor gathered(size_t group, size_t member, const at::Tensor& parameter);
  void before_write(size_t group, size_t member);
  void fill(size_t group) override;
  void note_backward() override;
  torch::autograd::variable_list reduce(
      size_t group, torch::autograd::variable_list&& gradients) override;

  /// Tells whether all parameters are gone, but for what the model holds.
  bool is_orphaned() const;
  /// Forgets them. Weak references keep what a parameter is made of, and that
  /// owns the model.
  void forget_parameters();

  void unshard(const std::string& path);
  void reshard(const std::string& path);
  void begin_accumulating(Keep keep);
  void end_accumulating();
  FullyShardReport report() const;

 private:
  /// What calls took in the place of members, in the forward that goes on.
  struct Gathered {
    std::vector<at::Tensor> with_history;
    std::vector<bool> needs_grad;  // as with_history was made
    std::vector<at::Tensor> without_history;
  };
  /// Gradients of the passes of an Accumulate.
  struct KeptGradients {
    std::vector<MemberGradient> unreduced;  // one per member, or empty
    std::vector<at::Tensor> scattered;      // likewise

    bool empty() const { return unreduced.empty() && scattered.empty(); }
  };

  explicit ShardedModel(GroupingRules rules);

  void enter(size_t group, bool in_backward);
  void note(size_t group, bool in_backward);
  void take_new_shards(size_t group);
  void bring(size_t group);
  void wait_for(size_t group);
  void start(size_t group);
  void prefetch(const UseOrder& order);
  void close_others(size_t group, bool in_backward);
  void close(size_t group);
  void release(size_t group);
  bool are_related(size_t a, size_t b) const;
  std::vector<size_t> groups_at(
      const char* call, const std::string& path) const;
  void end_pass_later();
  void end_pass();
  void reduce_left_over();

  bool has_right_history(size_t group) const;
  void make_gathered(size_t group, bool with_history);
  at::Tensor wrap_member(const GroupMember& member) const;

  MemberGradient prepared(
      const GroupMember& member, size_t number,
      const at::Tensor& gradient) const;
  void keep_unreduced(size_t group, std::vector<MemberGradient> gradients);
  void keep_scattered(
      size_t group, const std::vector<MemberGradient>& gradients);
  void add_kept(size_t group, std::vector<MemberGradient>& gradients);
  void fill_unused(size_t group, std::vector<MemberGradient>& gradients) const;
  /// Until the last pass of such an Accumulate.
  bool keeps_weights() const { return keeping_weights_; }

  GroupingRules rules_;
  std::vector<MemberGroup> groups_;
  std::vector<Gathered> gathered_;
  std::vector<KeptGradients> kept_;
  std::shared_ptr<const ParameterUse> use_;  // of members without a style
  UseOrder forward_;
  UseOrder backward_;
  Reductions reductions_;
  size_t last_ = SIZE_MAX;  // the group that was entered last
  int pass_ = -1;           // the backward pass whose end is awaited
  int accumulating_ = 0;
  Keep keep_ = Keep::kShards;
  bool keeping_weights_ = false;
  int64_t gathers_ = 0;
  int64_t last_gathers_ = 0;
  int64_t last_reductions_ = 0;
  int64_t bytes_ = 0;
  int64_t peak_bytes_ = 0;
};

}  // namespace tessera::detail::inline parallel_layer
