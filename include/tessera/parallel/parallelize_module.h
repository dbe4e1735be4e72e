// parallelize_module: tensor and sequence parallelism for any torch::nn module,
// its class and forward() untouched.
//
// A plan names modules, or parameters, and says how each is parallel. Weights
// are cut in place, and each remembers how it is used: the call that multiplies
// with it brings its input and its result into the layouts of the style
// (src/tensor/uses/parameter_use.h). Tensors have their global shapes
// everywhere, so forward() needs no numbers of local heads or columns.
#pragma once

#include <optional>
#include <string>
#include <utility>
#include <vector>

#include <tessera/comm/device_mesh.h>
#include <tessera/export.h>
#include <tessera/layout/placement.h>
#include <tessera/parallel/parallel_style.h>

namespace torch::nn {
class Module;
}

namespace tessera {

/// Cuts a layer by its outputs: Linear and Conv by rows of the weight,
/// Embedding by columns, MultiheadAttention by heads (its packed projection).
/// Inputs become replicated. Results are sharded tensors: to_local() has this
/// rank's part.
struct TESSERA_API ColwiseParallel {
  static constexpr const char* kName = "ColwiseParallel";
  /// What plain inputs are taken for, cut evenly.
  Placement input_layouts = Replicate();
  /// What results become; where not set they stay cut by the layer's outputs.
  std::optional<Placement> output_layouts = {};
  void apply(StyledModule& target) const;
};

/// Cuts a layer by its inputs: Linear and Conv by columns of the weight,
/// Embedding by rows, that is by vocabulary. Each rank has a partial value of
/// the result, which becomes `output_layouts`: Replicate() adds them up on all
/// ranks, Shard(1) adds them up by parts of the sequence.
struct TESSERA_API RowwiseParallel {
  static constexpr const char* kName = "RowwiseParallel";
  /// What plain inputs are taken for; where not set, cut as the layer needs.
  std::optional<Placement> input_layouts = {};
  Placement output_layouts = Replicate();
  void apply(StyledModule& target) const;
};

/// Keeps a layer whole and gives each rank a part of the sequence: norms, also
/// those that a user wrote as `x * weight`. Layers without parameters, such as
/// Dropout, follow their input anyway.
struct TESSERA_API SequenceParallel {
  static constexpr const char* kName = "SequenceParallel";
  int64_t sequence_dim = 1;
  void apply(StyledModule& target) const;
};

/// Says what layout arrives at a module, and in which one its parameters are to
/// meet it: where a parameter of the module is used on an input in
/// `input_layouts`, that becomes `desired_input_layouts` first.
struct TESSERA_API PrepareModuleInput {
  static constexpr const char* kName = "PrepareModuleInput";
  Placement input_layouts = Replicate();
  Placement desired_input_layouts = Replicate();
  void apply_around(StyledModule& target) const;
};

/// The same for what leaves a module: results of its parameters in
/// `output_layouts` become `desired_output_layouts`.
struct TESSERA_API PrepareModuleOutput {
  static constexpr const char* kName = "PrepareModuleOutput";
  Placement output_layouts = Replicate();
  Placement desired_output_layouts = Replicate();
  void apply_around(StyledModule& target) const;
};

/// Places one parameter of a module of your own, by its name, and says what
/// layouts the calls that multiply with it should have.
struct TESSERA_API ParameterParallel {
  static constexpr const char* kName = "ParameterParallel";
  Placement placement = Replicate();
  std::optional<Placement> input_layouts = {};
  std::optional<Placement> output_layouts = {};
  void apply(StyledParameter& target) const;
};

/// Paths and styles, those above or your own (parallel_style.h). A path names a
/// module, "" the whole one, or for ParameterParallel a parameter; its parts
/// may be globs: "layers.*.attn.q".
using ParallelPlan = std::vector<std::pair<std::string, ParallelStyle>>;

struct ParallelizeOptions {
  /// The mesh dim that the styles are about: by default "tp" where the mesh has
  /// a dim of that name, else its last one. In all others the module is whole.
  std::string mesh_dim = {};
};

/// Makes a module parallel by a plan, in place, then replicates every parameter
/// and buffer that the plan does not name. The whole plan is checked before any
/// parameter is touched. Values are those of the mesh's first rank. Example:
///   parallelize_module(*model, mesh, {
///     {"layers.*.up", ColwiseParallel()},
///     {"layers.*.down", RowwiseParallel()}});
TESSERA_API void parallelize_module(
    torch::nn::Module& module, const DeviceMesh& mesh, const ParallelPlan& plan,
    const ParallelizeOptions& options = {});

/// The same for a shared_ptr to a module, or a holder made by TORCH_MODULE.
template <class M>
requires requires(const M& module) {
  *module;
}
void parallelize_module(
    const M& module, const DeviceMesh& mesh, const ParallelPlan& plan,
    const ParallelizeOptions& options = {}) {
  M handle = module;  // holders pass their own constness on
  parallelize_module(
      static_cast<torch::nn::Module&>(*handle), mesh, plan, options);
}

}  // namespace tessera
