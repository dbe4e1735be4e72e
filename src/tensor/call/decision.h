// How a call will be run, found out before anything moves. Execution, explain()
// and StrictMode ask here.
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

namespace tessera::detail {

/// Tells whether an argument is neither plain nor replicated.
bool has_sharded_argument(const OpCall& call);

/// What a call runs on.
enum class Strategy : uint8_t {
  kCustomKernel,  // a kernel of its own
  kByRule,        // shards, in the placements that a rule chose
  kDecomposed,    // calls of other operators
  kReplicated     // whole values
};

/// What becomes of one tensor argument, or element of a list.
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

/// The placements of a result, and the global sizes of the dims that they cut.
struct OutputPlan {
  Placements placements;
  std::vector<int64_t> sharded_sizes;
};

/// The forms of the last results of a call, mostly those of the next ones.
class ResultTemplates {
 public:
  /// Returns the form of an element of a return, or nullptr.
  const WrapperTemplate* find(size_t result, size_t element) const {
    if (result == 0 && element == 0) {
      return &first_;
    }
    return result < others_.size() && element < others_[result].size()
               ? &others_[result][element]
               : nullptr;
  }
  /// Sets it, and returns the place that it has until the next time.
  const WrapperTemplate& set(
      size_t result, size_t element, WrapperTemplate wrapper_template);

 private:
  WrapperTemplate first_;  // beside what else a call reads
  std::vector<std::vector<WrapperTemplate>> others_;
};

/// How a call will be run. Depends on specs and static arguments only.
struct Decision {
  // What every call that was met before reads comes first.

  /// Direct, and a kernel without a stack can run it: see typed_kernel.h.
  bool is_typed = false;
  /// No tensor moves and none changes its memory: see run_cached().
  bool is_direct = false;
  /// The keys of the plain call on the shards; found when it runs first.
  mutable c10::DispatchKeySet local_keys = {};
  /// Set for views, one per result: everything about it.
  std::vector<ViewResult> views = {};
  /// Static arguments of the call on this rank's shards that are lists of
  /// sizes, by number; all of them are in local_arguments.
  std::vector<std::pair<size_t, std::vector<int64_t>>> local_lists = {};
  /// Decisions belong to one thread.
  mutable ResultTemplates templates = {};

  Strategy strategy = Strategy::kReplicated;
  /// The mesh of the call; not set for kernels of their own.
  std::optional<DeviceMesh> mesh = {};
  /// Why this way: "rule aten::mm: S(0), R -> S(0)".
  std::string reason = {};
  /// Whole values stand in for shards, since no rule serves the call.
  bool is_fallback = false;

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
  /// Returns the plan of an element of a return.
  const OutputPlan& output(size_t result, size_t element) const {
    const std::vector<OutputPlan>& plans = outputs[result];
    return plans[plans.size() == 1 ? 0 : element];
  }
};

/// Returns the placements of what stands in for a written tensor, after the
/// call.
const Placements& placements_after(
    const Decision& decision, const OperandPlan& plan);

using DecisionPtr = std::shared_ptr<const Decision>;

/// Decides a call; every rank decides alike.
DecisionPtr decide(const OpCall& call, const OpTraits& traits);

/// Returns what reaches the kernel of a rank at `coordinate` when a rule chose:
/// static arguments and, where the rule names a kernel, layouts.
void prepare_local_call(
    const Rule& rule, const RuleCall& call, const RuleChoice& choice,
    const MeshShape& mesh, const std::vector<int64_t>& coordinate,
    Decision& decision);

}  // namespace tessera::detail
