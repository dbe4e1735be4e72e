// Parameters that say how they are used.
//
// Note [Styles without hooks]
// A C++ module's forward() is not virtual and cannot be intercepted, so a
// parallel style is kept with the parameter: in its meta, where views of it
// (weight.t(), of which C++ linear layers are made) find it too. The calls that
// multiply, look up, normalise or convolve with such a parameter bring their
// input into the placement that it names, and their result, by differentiable
// moves: autograd then moves gradients the other way, once, where the calls of
// a backward pass would each move what they need.
//
// Such a tensor carries a dispatch key above autograd for which LibTorch itself
// has no kernels. Ours stand at the operators that take parameters, all others
// pass it; so calls without such a tensor do not come here, and inference
// mode, which leaves autograd out, does not leave us out. Deferred tensors
// carry the key too, and a DeferredInit adds it to all calls of its thread:
// they are recorded here (deferred/record.h).
//
// Placements never change values, so a use can only cost or save
// communication. Calls inside a backward pass ask for nothing, and calls inside
// such a call do not ask again.
#pragma once

#include <memory>
#include <optional>
#include <string>
#include <vector>

#include <tensor/call/op_registry.h>
#include <tessera/layout/placement.h>

namespace tessera::detail::inline tensor_layer {

/// A move in the mesh dim of a style. Negative tensor dims count from the end.
struct UseStep {
  /// Only tensors in this placement are moved; all, where it is not set.
  std::optional<Placement> from = {};
  Placement to = Replicate();
};

struct ParameterUse {
  /// "layers.0.q, ColwiseParallel": for errors, and as a cause.
  std::string name;
  /// The dim of the parameter's mesh that the style is about.
  int64_t mesh_dim = 0;
  /// What a plain input is taken for in that dim; not said where it is not set.
  std::optional<Placement> plain_input = Replicate();
  std::vector<UseStep> input = {};
  std::vector<UseStep> output = {};
  /// Products element by element ask too: norms are often written by hand.
  bool scales = false;
  /// What calls that look rows up ask for, where one tensor is the weight of an
  /// embedding and of a projection.
  std::shared_ptr<const ParameterUse> lookup = nullptr;
};

/// Attaches a use to a sharded parameter, in place of any other; nullptr
/// removes it.
void set_parameter_use(
    const at::Tensor& parameter, std::shared_ptr<const ParameterUse> use);
/// Returns what set_parameter_use() attached, or nullptr.
std::shared_ptr<const ParameterUse> parameter_use(const at::Tensor& parameter);

/// Gives `to` the use of `from`, of which it is to take the place, and its
/// place in a group.
void keep_use(const at::Tensor& from, const at::Tensor& to);

/// Forgets the last move of this thread, so that the next call that asks for it
/// moves again, and its result's history goes.
void forget_last_move();

/// Adds the operators that take parameters.
void add_parameter_uses(OpRegistry& ops);
/// Registers the kernels of operators that have a run_as_used.
void register_use_kernels(std::vector<c10::RegistrationHandleRAII>& handles);

}  // namespace tessera::detail::inline tensor_layer
