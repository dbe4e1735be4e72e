// What is known of operators by name: one table, which the folders above fill
// before any call runs (dispatch/operator_tables.cpp), and which op_traits.h
// reads once per operator.
#pragma once

#include <array>
#include <cstdint>
#include <optional>
#include <string_view>
#include <unordered_map>
#include <vector>

#include <tensor/call/decomposition.h>
#include <tensor/call/op_call.h>
#include <tessera/layout/placement.h>

namespace tessera::detail::inline tensor_layer {

/// Runs a call by itself: takes the arguments off the stack and leaves the
/// results.
using CustomKernel = void (*)(const OpCall&);

class MoveList;
/// Lists what such a kernel will move.
using CustomKernelMoves = void (*)(const OpCall&, MoveList&);

struct LocalKernelCall;
/// Runs a rank's part of a call, as local_kernel.h says: takes the arguments
/// off the stack and leaves the results.
using LocalKernel = void (*)(const LocalKernelCall&);
inline constexpr size_t kRunByCount = static_cast<size_t>(RunBy::kTriangle) + 1;

/// Where an operator takes its input and its parameter.
struct ParameterRoles {
  size_t input = 0;
  size_t parameter = 0;
  enum class Kind : uint8_t { kLayer, kLookup, kScale } kind = Kind::kLayer;
};

/// What the table says of an operator.
struct OpEntry {
  /// Set where a call may be expressed by others.
  std::optional<Decomposition> decomposition = {};

  CustomKernel custom_kernel = nullptr;
  /// Not set where the custom kernel moves nothing.
  CustomKernelMoves custom_kernel_moves = nullptr;
  /// Gives the results their specs on ranks without data, where they are not
  /// those of a call of another kind.
  CustomKernel custom_kernel_off_mesh = nullptr;
  /// The custom kernel reads and writes no element, so it runs on ranks
  /// without data too.
  bool needs_no_data = false;
  /// The result is the argument's shard in another tensor.
  bool shares_shard = false;

  /// Of a random operator: the custom kernel draws, for plain tensors too.
  bool is_drawn = false;
  /// Of a random operator: tells whether a call draws; one that does not needs
  /// no custom kernel. Not set where each call does.
  bool (*draws)(const OpCall&) = nullptr;
  /// The custom kernel runs what is decided of the call.
  bool runs_decision = false;
  /// Of a random operator: returns the placements of the results where they are
  /// not those that its tensors have in common.
  std::optional<Placements> (*random_placements)(const OpCall&) = nullptr;
  /// Of a random operator: counts a call on a rank that holds none of its
  /// tensors.
  CustomKernel skip_random = nullptr;

  /// Of an operator that ATen makes of others: runs a call that is to be made
  /// of others than ATen's, or returns false.
  bool (*composite)(const OpCall&) = nullptr;
  /// Runs a call as a parameter, or a mode of the thread, asks for, or returns
  /// false; see uses/parameter_use.h.
  bool (*run_as_used)(const OpCall&) = nullptr;
  ParameterRoles roles = {};

  /// The first argument may be sharded and the second plain, of its shape.
  bool takes_plain_source = false;
  /// Of one argument only the sizes or the dtype are read, which every rank
  /// knows: a plain and a sharded tensor may meet. The result is what the
  /// other one is.
  bool reads_metadata_only = false;
  /// Results of an operand's shape take its partial values' placements too.
  bool keeps_partial = false;
  /// Arguments that the kernel writes, and whose schema does not say so.
  std::vector<std::string_view> written = {};
  /// Tensors whose values ATen reads through a pointer, inside a composite
  /// kernel.
  std::vector<std::string_view> read = {};
  /// Returns the result of a call on meta tensors, for an operator without a
  /// kernel for those.
  at::Tensor (*meta_result)(const OpCall&) = nullptr;
};

class OpRegistry {
 public:
  /// Returns the entry to be filled of "aten::copy_", "aten::max.dim", or
  /// "aten::normal.*": all overloads without an entry of their own.
  OpEntry& at(std::string_view name);
  /// Returns the entry that serves an operator, or nullptr.
  const OpEntry* find(const c10::OperatorName& name) const;
  const std::unordered_map<c10::OperatorName, OpEntry>& entries() const {
    return entries_;
  }

  /// By RunBy; nullptr for the operator.
  std::array<LocalKernel, kRunByCount> local_kernels = {};
  /// What serves operators that are tagged as random and have no entry.
  OpEntry unlisted_random;

 private:
  std::unordered_map<c10::OperatorName, OpEntry> entries_;
};

/// Returns the one registry, filled.
const OpRegistry& op_registry();
/// Fills it, once, before our kernels are registered with LibTorch; defined in
/// dispatch/operator_tables.cpp, which sees all that have something to say.
void fill(OpRegistry& ops);

}  // namespace tessera::detail::inline tensor_layer
