// What the dispatcher needs to know about an operator, found out once.
#pragma once

#include <array>
#include <atomic>
#include <unordered_map>
#include <vector>

#include <rules/rule_entry.h>
#include <tensor/call/op_call.h>
#include <tensor/call/op_registry.h>

namespace tessera::detail::inline tensor_layer {

/// Drops what is known, since an operator was removed.
void forget_traits();
extern std::atomic<uint64_t> removed_operators;
/// Grows whenever traits may have changed: with rules, and with operators that
/// are removed.
inline uint64_t traits_generation() {
  return removed_operators.load(std::memory_order_relaxed) +
         rules_generation.load(std::memory_order_acquire);
}

/// What an argument of a schema is to us.
struct ArgumentTraits {
  enum class Kind : uint8_t { kStatic, kTensor, kTensors };
  Kind kind = Kind::kStatic;
  /// The kernel writes it, whether its schema says so or not.
  bool written = false;
  bool out = false;
  /// Results show its memory.
  bool viewed = false;
  /// A static argument that the decision depends on.
  bool keyed = false;
  /// A tensor whose values ATen reads through a pointer, inside a composite
  /// kernel: it must be plain there.
  bool read = false;
};

/// What the registry says of an operator, and what its schema and rule say.
struct OpTraits : OpEntry {
  std::vector<ArgumentTraits> arguments;
  /// The rule that serves the operator, its own or that of its base form.
  FoundRule rule;
  bool reads_values = false;  // of one of the arguments
  /// Not LibTorch's own: its kernels may do anything, also call us again.
  bool is_foreign = false;
  /// The result shows memory of the first argument.
  bool is_view = false;
  /// Results depend on a generator.
  bool is_random = false;
  /// Element i of each result depends on elements i of the arguments only.
  bool is_elementwise = false;
  /// Of optimizers: element i of every list belongs to parameter i.
  bool is_of_lists = false;
};

/// Tells whether the custom kernel of an operator runs this call. Attention
/// without dropout, say, draws nothing, and runs as any other operator.
inline bool needs_custom_kernel(const OpCall& call, const OpTraits& traits) {
  return traits.custom_kernel != nullptr &&
         (traits.draws == nullptr || traits.draws(call));
}

/// Tells whether the custom kernel runs this call, and by itself: nothing is
/// decided.
inline bool has_custom_kernel(const OpCall& call, const OpTraits& traits) {
  return !traits.runs_decision && needs_custom_kernel(call, traits);
}

/// The traits that a thread knows.
class TraitsCache {
 public:
  /// `schema` is the operator's.
  const OpTraits& find(
      const c10::FunctionSchema& schema, const c10::OperatorHandle& op) {
    const Slot& slot = slots_[slot_of(&schema)];
    return slot.schema == &schema ? *slot.traits : find_uncached(op);
  }
  /// What find() returned before stays until the next time.
  void clear();

 private:
  // One slot per hash first: most threads call few operators.
  struct Slot {
    const c10::FunctionSchema* schema = nullptr;
    const OpTraits* traits = nullptr;
  };
  static size_t slot_of(const c10::FunctionSchema* schema) {
    return (reinterpret_cast<uintptr_t>(schema) >> 6) % kSlots;
  }
  const OpTraits& find_uncached(const c10::OperatorHandle& op);

  static constexpr size_t kSlots = 256;
  std::array<Slot, kSlots> slots_;
  using Traits = std::unordered_map<const c10::FunctionSchema*, OpTraits>;
  Traits traits_;
  Traits old_;  // a call that is running may use them still
};

/// Returns the traits of an operator.
const OpTraits& traits_of(const c10::OperatorHandle& op);

}  // namespace tessera::detail::inline tensor_layer
