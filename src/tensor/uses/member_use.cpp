#include <tensor/uses/member_use.h>

#include <string>
#include <unordered_set>
#include <utility>

#include <c10/core/GradMode.h>
#include <tensor/call/observer.h>
#include <tensor/call/op_traits.h>
#include <tensor/impl/sharded_impl.h>
#include <tensor/impl/wrap.h>
#include <tensor/state/dispatch_keys.h>
#include <torch/csrc/autograd/graph_task.h>

namespace tessera::detail::inline tensor_layer {

namespace {

ParameterMember* find_member(const at::Tensor& t) {
  return is_sharded(t) ? meta_nowait(t).state().member.get() : nullptr;
}

// The key is missing on second tensors over the meta of a member.
bool is_member(const at::Tensor& t) {
  return t.defined() && t.key_set().has(kUseKey) && find_member(t) != nullptr;
}

bool is_backward() {
  return torch::autograd::get_current_graph_task_id() != -1 &&
         !c10::GradMode::is_enabled();
}

bool has_member(const OpCall& call) {
  bool found = false;
  call.for_each_argument_tensor(
      [&](const at::Tensor& t) { found = found || is_member(t); });
  return found;
}

// The backward of the last group has no other event: its memory is there.
void note_backward(const OpCall& call) {
  call.for_each_argument_tensor([](const at::Tensor& t) {
    if (is_sharded(t)) {
      if (const auto& memory = meta_nowait(t).state().memory) {
        memory->note_backward();
      }
    }
  });
}

// Values without dims meet tensors of any layout.
bool is_laid_out_as(const at::Tensor& t, const at::Tensor& parameter) {
  return !t.defined() || t.dim() == 0 ||
         (is_sharded(t) && spec_of(t).layout() == spec_of(parameter).layout());
}

bool are_all_laid_out_as(const OpCall& call, const at::Tensor& parameter) {
  bool same = true;
  call.for_each_argument_tensor([&](const at::Tensor& t) {
    same = same && is_laid_out_as(t, parameter);
  });
  return same;
}

// A conversion is no view, though it may return the tensor itself.
bool is_view(const OpCall& call, const OpTraits& traits) {
  static const auto* conversions = new std::unordered_set<std::string>{
      "aten::to",           "aten::contiguous",  "aten::type_as",
      "aten::resolve_conj", "aten::resolve_neg", "aten::lift_fresh"};
  return traits.is_view &&
         !conversions->contains(call.op().operator_name().name);
}

// A layer, or an embedding, whatever its input's layout is.
bool is_of_layers(const OpTraits& traits) {
  return traits.run_as_used != nullptr &&
         traits.roles.kind != ParameterRoles::Kind::kScale;
}

}  // namespace

void set_member(
    const at::Tensor& parameter, std::shared_ptr<ParameterMember> member) {
  meta_ready(parameter).change().member = std::move(member);
  add_key(parameter, kUseKey);
}

std::shared_ptr<ParameterMember> member_of(const at::Tensor& parameter) {
  return is_sharded(parameter) ? meta_nowait(parameter).state().member
                               : nullptr;
}

void use_members(const OpCall& call) {
  if (is_backward()) {
    note_backward(call);
  }
  if (!has_member(call) || CallObserver::current() != nullptr) {
    return;
  }
  const OpTraits& traits = traits_of(call.op());
  for (size_t i = 0; i < call.size(); ++i) {
    if (traits.arguments[i].written) {
      for_each_tensor(call.argument(i), [](const at::Tensor& t) {
        if (is_member(t)) {
          find_member(t)->before_write(t);
        }
      });
    }
  }
  if (traits.shares_shard || traits.is_of_lists) {
    return;
  }
  const bool always = is_view(call, traits) || is_of_layers(traits);
  for (size_t i = 0; i < call.size(); ++i) {
    if (traits.arguments[i].written) {
      continue;
    }
    map_tensors(call.argument(i), [&](const at::Tensor& t) {
      return is_member(t) && (always || !are_all_laid_out_as(call, t))
                 ? find_member(t)->gathered(t)
                 : t;
    });
  }
}

}  // namespace tessera::detail::inline tensor_layer
