// How a call will be run, decided before any data move. Execution, explain()
// and StrictMode use the same decision, so they agree.
//
// Precondition of decide(): all sharded arguments are on one mesh, and plain
// ones are numbers or may count as replicated. Effect: none on tensors; it
// reads specs and static arguments only, never data, so every rank decides
// alike without communication. Lifetime: a Decision is immutable but for caches
// that its own thread fills (`local_keys`, `templates`) and holds no shards,
// so it may be kept for as long as its specs are.
//
// Example: at::mm(a, b), a: f32[8, 4] S(1), b: f32[4, 6] S(0), mesh(tp=2)
//   strategy   kByRule, "rule aten::mm: S(1), S(0) -> P(sum)"
//   operands   a: target S(1), b: target S(0); neither moves
//   outputs    P(sum), and no sharded dim: sharded_sizes {0}
// With b: f32[4, 6] R the row is the same and b's target is S(0): b.moves is
// true, and moves_of() lists R -> S(0), a slice without communication.
#pragma once

#include <memory>
#include <optional>
#include <string>
#include <unordered_set>
#include <vector>

#include <rules/choose.h>
#include <tensor/call/local_kernel.h>
#include <tensor/call/op_traits.h>
#include <tensor/impl/wrap.h>
#include <tessera/plan/redistribute_plan.h>

namespace tessera::detail::inline tensor_layer {

/// Tells whether an argument is neither plain nor replicated.
bool has_sharded_argument(const OpCall& call);

/// How the results of a call are computed.
enum class Strategy : uint8_t {
  kCustomKernel,  // a kernel of its own
  kByRule,        // shards, in the placements that a rule chose
  kDecomposed,    // calls of other operators
  kReplicated     // replicated values, gathered first
};

/// What happens to one tensor argument, or to one element of a list argument.
struct OperandPlan {
  int32_t argument = 0;
  int32_t element = 0;
  bool defined = false;
  bool written = false;
  /// Written, and not read: an out tensor.
  bool out = false;
  /// Results show its memory.
  bool viewed = false;
  /// It must be in other placements before the call can run.
  bool moves = false;
  /// Which return of the schema it is returned as, -1 where it is not.
  int32_t result = -1;
  Placements target = {};
};

/// Returns the tensor of a plan; nullptr for None.
const at::Tensor* tensor_at(const OpCall& call, const OperandPlan& plan);

/// The placements of a result and, per mesh dim, the global size of the tensor
/// dim that it shards; 0 where it shards none.
struct OutputPlan {
  Placements placements;
  std::vector<int64_t> sharded_sizes;
};

/// The templates of the wrappers that a call returned last. The next call with
/// the same decision mostly returns shards of the same sizes and strides, and
/// copies them.
class ResultTemplates {
 public:
  /// Returns the template for an element of a return, or nullptr if there is
  /// none yet. Valid until the next set().
  const WrapperTemplate* find(size_t result, size_t element) const {
    if (result == 0 && element == 0) {
      return &first_;
    }
    return result < others_.size() && element < others_[result].size()
               ? &others_[result][element]
               : nullptr;
  }
  /// Replaces the template for an element of a return, and returns a reference
  /// that is valid until the next set().
  const WrapperTemplate& set(
      size_t result, size_t element, WrapperTemplate wrapper_template);

 private:
  WrapperTemplate first_;  // of most calls the only one: no second lookup
  std::vector<std::vector<WrapperTemplate>> others_;
};

/// How a call will be run. Depends on specs and static arguments only.
struct Decision {
  // The fields that a cached call reads come first.

  /// is_direct, and a typed kernel can run the call without a stack: see
  /// typed_kernel.h.
  bool is_typed = false;
  /// No tensor moves and none changes its memory: see run_cached().
  bool is_direct = false;
  /// The dispatch keys of the operator's call on the shards. Set when the
  /// decision runs first.
  mutable c10::DispatchKeySet local_keys = {};
  /// Set for views: shape, strides, placements and offset of each result.
  std::vector<ViewResult> views = {};
  /// Static arguments of the call on this rank's shards that are lists of
  /// sizes, by number; all of them are in local_arguments.
  std::vector<std::pair<size_t, std::vector<int64_t>>> local_lists = {};
  /// Not locked: a decision is used by one thread only.
  mutable ResultTemplates templates = {};

  Strategy strategy = Strategy::kReplicated;
  /// The mesh of the call; not set for custom kernels.
  std::optional<DeviceMesh> mesh = {};
  /// Why this strategy: "rule aten::mm: S(0), R -> S(0)".
  std::string reason = {};
  /// Set where no rule serves the call and an argument is sharded: every rank
  /// gathers the arguments and computes the replicated result.
  bool is_fallback = false;
  /// It makes whole what was cut, by a rule or without one: see gathers.h.
  bool gathers = false;

  std::vector<OperandPlan> operands = {};
  /// Per return of the schema: one for all elements, or one per element.
  std::vector<std::vector<OutputPlan>> outputs = {};
  ResultStrides strides = ResultStrides::kContiguous;
  /// What results take their strides from: the shape, strides and memory format
  /// that the operands agree on; no shape where they do not.
  std::vector<int64_t> like_shape = {};
  std::vector<int64_t> like_strides = {};
  c10::MemoryFormat format = c10::MemoryFormat::Preserve;
  /// Static arguments of the call on this rank's shards, by number.
  std::vector<std::pair<size_t, c10::IValue>> local_arguments = {};
  /// How this rank runs its part; nullptr for the operator itself.
  LocalKernel kernel = nullptr;
  std::vector<Layout> layouts = {};  // of the operands, for the kernel
  /// Bytes of an element of what views show.
  int64_t viewed_width = 0;

  /// Returns where an element of a view's results begins, which has `width`
  /// bytes per element of its own.
  ViewStart start_of_view(size_t element, int64_t width) const {
    return {views[element].offset, width == viewed_width ? 0 : viewed_width};
  }
  /// Tells whether no tensor is sharded that the call then runs on.
  bool runs_unsharded() const;
  /// Returns the plan of an element of a return.
  const OutputPlan& output(size_t result, size_t element) const {
    const std::vector<OutputPlan>& plans = outputs[result];
    return plans[plans.size() == 1 ? 0 : element];
  }
};

/// Returns the placements that the local argument of a written tensor has after
/// the call.
const Placements& placements_after(
    const Decision& decision, const OperandPlan& plan);

using DecisionPtr = std::shared_ptr<const Decision>;

/// Decides a call: see the top of this file.
DecisionPtr decide(const OpCall& call, const OpTraits& traits);

/// Adds to `decision` what the kernel of the rank at `coordinate` needs after a
/// rule chose: static arguments of its own and, if the rule names a local
/// kernel, the layouts of the operands.
/// Example: view([4, 6]) of S(0) over 2 ranks runs as view([2, 6]) on each.
void prepare_local_call(
    const Rule& rule, const RuleCall& call, const RuleChoice& choice,
    const MeshShape& mesh, const std::vector<int64_t>& coordinate,
    Decision& decision);

}  // namespace tessera::detail::inline tensor_layer
