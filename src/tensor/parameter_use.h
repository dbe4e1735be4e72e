// Parameters that say how they are used.
//
// Note [Styles without hooks]
// A C++ module's forward() is not virtual and cannot be intercepted, so a
// parallel style is kept with the parameter: in its meta, where views of it
// (weight.t(), of which C++ linear layers are made) find it too. The calls that
// multiply, look up, normalise or convolve with a parameter ask for it, bring
// their input into the placement that it names, and their result, by
// differentiable moves: autograd then moves gradients the other way, once,
// where the calls of a backward pass would each move what they need.
//
// Placements never change values, so a use can only cost or save
// communication. Calls inside a backward pass ask for nothing, and calls inside
// such a call do not ask again.
#pragma once

#include <memory>
#include <optional>
#include <string>

#include <tensor/op_call.h>
#include <tessera/layout/placement.h>

namespace tessera::detail {

/// What one end of a call should look like in the mesh dim of a style. Negative
/// tensor dims count from the end.
struct UseLayout {
  /// What a plain tensor is taken for.
  Placement plain = Replicate();
  /// Only tensors in this placement are moved; all, where it is not set.
  std::optional<Placement> from = {};
  /// Where they are moved to; not at all, where it is not set.
  std::optional<Placement> to = {};
};

struct ParameterUse {
  /// "layers.0.q, ColwiseParallel": for errors.
  std::string name;
  /// The dim of the parameter's mesh that the style is about.
  int64_t mesh_dim = 0;
  UseLayout input;
  UseLayout output;
  /// Results leave as this rank's part, plain.
  bool local_output = false;
};

/// Attaches a use to a sharded parameter, in place of any other; nullptr
/// removes it.
void set_parameter_use(
    const at::Tensor& parameter, std::shared_ptr<const ParameterUse> use);
/// Returns what set_parameter_use() attached, or nullptr.
std::shared_ptr<const ParameterUse> parameter_use(const at::Tensor& parameter);

/// Tells whether a use was ever attached in this process.
bool has_parameter_uses();

/// Tells whether run_as_used() knows where the operator takes a parameter.
bool may_take_parameter(const c10::OperatorHandle& op);

/// Runs a call as one of its parameters asks for; returns false, and does
/// nothing, where none does.
bool run_as_used(const OpCall& call);

}  // namespace tessera::detail
