#include <tensor/op_traits.h>

#include <atomic>
#include <string_view>
#include <unordered_map>

#include <ATen/core/enum_tag.h>
#include <tensor/random/table.h>

namespace tessera::detail {

namespace {

std::atomic<uint64_t> removals{0};

// Elementwise operators that LibTorch does not tag as pointwise.
bool is_untagged_elementwise(std::string_view name) {
  constexpr std::string_view kNames[] = {
      "aten::clone",      "aten::_to_copy",   "aten::empty_like",
      "aten::zeros_like", "aten::ones_like",  "aten::full_like",
      "aten::fill_",      "aten::fill",       "aten::zero_",
      "aten::zero",       "aten::alias_copy", "aten::detach_copy"};
  for (std::string_view known : kNames) {
    if (name == known) {
      return true;
    }
  }
  return false;
}

bool passes_partial(std::string_view name) {
  return name == "aten::clone" || name == "aten::empty_like" ||
         name == "aten::alias_copy" || name == "aten::detach_copy" ||
         name == "aten::alias" || name == "aten::detach" ||
         name == "aten::new_empty" || name == "aten::new_empty_strided";
}

bool returns_view(const c10::FunctionSchema& schema) {
  for (const auto& result : schema.returns()) {
    const auto* alias = result.alias_info();
    if (alias != nullptr && !alias->isWrite()) {
      return true;
    }
  }
  return false;
}

// A number, as of aten::equal, speaks for all elements, tagged or not.
bool returns_tensors(const c10::FunctionSchema& schema) {
  for (const auto& result : schema.returns()) {
    if (result.type()->kind() != c10::TypeKind::TensorType) {
      return false;
    }
  }
  return true;
}

// Kernels of batch norms write their running statistics.
uint64_t unsaid_writes(
    std::string_view name, const c10::FunctionSchema& schema) {
  uint64_t mask = 0;
  if (name == "aten::native_batch_norm" || name == "aten::cudnn_batch_norm" ||
      name == "aten::miopen_batch_norm" ||
      name == "aten::batch_norm_gather_stats" ||
      name == "aten::batch_norm_gather_stats_with_counts") {
    for (size_t i = 0; i < schema.arguments().size(); ++i) {
      const std::string& argument = schema.arguments()[i].name();
      if (argument == "running_mean" || argument == "running_var") {
        mask |= uint64_t{1} << i;
      }
    }
  }
  return mask;
}

OpTraits find_traits(const c10::OperatorHandle& op) {
  const std::string_view name = op.operator_name().name;
  OpTraits traits;
  traits.is_view = returns_view(op.schema());
  traits.is_random = op.hasTag(at::Tag::nondeterministic_seeded);
  traits.is_elementwise =
      !traits.is_view && !traits.is_random && returns_tensors(op.schema()) &&
      (op.hasTag(at::Tag::pointwise) || is_untagged_elementwise(name));
  traits.passes_partial = passes_partial(name) || traits.is_random;
  traits.unsaid_writes = unsaid_writes(name, op.schema());
  find_special(op.operator_name(), traits);
  if (traits.is_random) {
    traits.special = random_kernel(op);
    traits.special_moves = random_moves(op);
  }
  return traits;
}

}  // namespace

void forget_traits() {
  removals.fetch_add(1, std::memory_order_relaxed);
}

const OpTraits& traits_of(const c10::OperatorHandle& op) {
  struct Cache {
    uint64_t removals = 0;
    std::unordered_map<const c10::FunctionSchema*, OpTraits> traits;
  };
  thread_local Cache cache;
  const uint64_t now = removals.load(std::memory_order_relaxed);
  if (cache.removals != now) {
    cache.traits.clear();
    cache.removals = now;
  }
  auto [it, missing] = cache.traits.try_emplace(&op.schema());
  if (missing) {
    it->second = find_traits(op);
  }
  return it->second;
}

}  // namespace tessera::detail
