// Parameters of which each rank keeps a shard, and calls are given the whole.
//
// Note [Members of groups]
// A member of a group is cut along a mesh dim. A call that computes with it
// takes a gathered tensor in its place: the dispatch key of parameter uses
// brings every call with the parameter here first, whatever its operator is.
// Three kinds of calls mean the shard:
//   1. calls that write the parameter: p.copy_(x), an optimizer's p.add_(g)
//   2. second tensors over the shard: p.detach(), of which optimizers and
//      averages are made
//   3. calls in which nothing else is laid out differently: p.norm(),
//      grad.add(p, decay), average.lerp_(p, w), and operators on lists
// Placements never change values, so the third rule is about cost alone. Views
// are views of the gathered tensor, since C++ layers multiply with weight.t();
// what is written through one is written back to the shards.
#pragma once

#include <memory>

#include <tensor/call/op_call.h>

namespace tessera::detail::inline tensor_layer {

/// What stands behind a member: its group.
struct ParameterMember {
  virtual ~ParameterMember() = default;
  /// Returns the gathered tensor for a call with the parameter; collective.
  virtual at::Tensor gathered(const at::Tensor& parameter) = 0;
  /// Says that a call is about to write the parameter.
  virtual void before_write(const at::Tensor& parameter) = 0;
};

/// Makes a sharded parameter a member; nullptr ends that.
void set_member(
    const at::Tensor& parameter, std::shared_ptr<ParameterMember> member);
/// Returns what set_member() set, or nullptr.
std::shared_ptr<ParameterMember> member_of(const at::Tensor& parameter);

/// Puts gathered tensors in the place of the members that a call computes with.
void use_members(const OpCall& call);

}  // namespace tessera::detail::inline tensor_layer
