#include <tensor/call/decision.h>

#include <algorithm>

#include <c10/util/Exception.h>
#include <c10/util/accumulate.h>
#include <tensor/call/decomposition.h>
#include <tensor/call/gathers.h>
#include <tensor/call/rule_operands.h>
#include <tensor/impl/sharded_impl.h>
#include <tensor/state/replicated.h>
#include <tensor/state/strides.h>
#include <tensor/state/thread_state.h>
#include <tessera/layout/notation.h>
#include <tessera/tensor/machine_model.h>

namespace tessera::detail::inline tensor_layer {

namespace {

// Per argument: the return that gives it back, or -1. Written arguments and the
// returns that are such come in the same order. Where nothing is returned,
// written arguments stand for returns.
std::vector<int32_t> returned_as(
    const c10::FunctionSchema& schema, const OpTraits& traits) {
  std::vector<int32_t> results(traits.arguments.size(), -1);
  size_t next = 0;
  for (size_t i = 0; i < results.size(); ++i) {
    if (!schema.arguments()[i].alias_info() || !traits.arguments[i].written) {
      continue;
    }
    if (schema.returns().empty()) {
      results[i] = static_cast<int32_t>(next++);
      continue;
    }
    while (next < schema.returns().size() &&
           !(schema.returns()[next].alias_info() &&
             schema.returns()[next].alias_info()->isWrite())) {
      ++next;
    }
    if (next < schema.returns().size()) {
      results[i] = static_cast<int32_t>(next++);
    }
  }
  return results;
}

// Returns the plans of all tensors of a call, numbered as in a rule, without
// targets.
std::vector<OperandPlan> operand_plans(
    const OpCall& call, const OpTraits& traits) {
  const std::vector<int32_t> results = returned_as(call.schema(), traits);
  std::vector<OperandPlan> plans;
  for_each_operand(call, traits, [&](const OperandAt& at) {
    const ArgumentTraits& argument =
        traits.arguments[static_cast<size_t>(at.argument)];
    plans.push_back(
        {.argument = at.argument,
         .element = at.element,
         .defined = at.tensor != nullptr && at.tensor->defined(),
         .written = argument.written,
         .out = argument.out,
         .viewed = argument.viewed,
         .result = results[static_cast<size_t>(at.argument)]});
  });
  return plans;
}

// Returns the output plan of a return, one for all its elements.
std::vector<OutputPlan> same_for_all(const Placements& placements) {
  return {{placements, std::vector<int64_t>(placements.size(), 0)}};
}

std::string text_of(const Rule& rule, const std::vector<Row>& rows) {
  std::string text = "rule " + rule.name + ":";
  for (size_t m = 0; m < rows.size(); ++m) {
    text += (m == 0 ? " " : " | ") + to_string(rows[m]);
  }
  return text;
}

std::string text_of(const Rule& rule, const ViewLayout& layout) {
  std::string text = "rule " + rule.name + ": a view";
  if (!layout.results.empty()) {
    text += " -> " + to_string(layout.results[0].placements);
  }
  return text;
}

class Decider {
 public:
  Decider(const OpCall& call, const OpTraits& traits)
      : call_(call), traits_(traits), mesh_(*call.mesh()) {
    decision_->mesh = mesh_;
    decision_->operands = operand_plans(call, traits);
  }

  DecisionPtr take() {
    const FoundRule& found = traits_.rule;
    if (traits_.decomposition && is_decomposed()) {
      decision_->strategy = Strategy::kDecomposed;
      decision_->reason = "a dim that it works along is cut";
      decision_->operands.clear();  // it moves what it needs by itself
      return decision_;
    }
    if (found.rule == nullptr) {
      run_replicated("no sharding rule");
      decision_->is_fallback = has_sharded_argument(call_);
    } else if (found.rule->view) {
      by_view(*found.rule);
    } else if (found.per_element) {
      by_elements(*found.rule);
    } else {
      by_rows(*found.rule);
    }
    finish();
    return decision_;
  }

 private:
  // Returns, or what is written where nothing is returned.
  size_t return_count() const {
    const size_t returns = call_.schema().returns().size();
    return returns > 0 ? returns
                       : RuleCall(call_.schema(), {}, {}).output_count();
  }
  const MeshShape& mesh_shape() const { return mesh_.mesh_shape(); }

  void run_replicated(const char* reason) {
    decision_->strategy = Strategy::kReplicated;
    decision_->reason =
        has_sharded_argument(call_) ? reason : "all tensors are replicated";
    for (OperandPlan& plan : decision_->operands) {
      plan.target = replicated(mesh_);
    }
    decision_->outputs.assign(return_count(), same_for_all(replicated(mesh_)));
  }

  bool is_decomposed() const {
    if (!has_sharded_argument(call_)) {
      return false;
    }
    const Decomposition& by = *traits_.decomposition;
    const RuleOperands rule_operands(call_, traits_, mesh_);
    return by.applies(rule_operands.call()) &&
           (by.pays == nullptr || by.pays(rule_operands.call(), mesh_shape()));
  }

  void by_rows(const Rule& rule) {
    const RuleOperands rule_operands(call_, traits_, mesh_);
    const RuleCall call = rule_operands.call();
    const RuleChoice choice = choose_rows(
        rule, call, mesh_shape(), move_cost(mesh_),
        machine_model().memory_limit);
    decision_->strategy = Strategy::kByRule;
    decision_->reason = text_of(rule, choice.rows);
    decision_->strides = rule.strides;
    for (size_t i = 0; i < choice.operands.size(); ++i) {
      decision_->operands[i].target = choice.operands[i];
    }
    for (size_t o = 0; o < return_count(); ++o) {
      decision_->outputs.push_back(
          o < choice.outputs.size()
              ? std::vector<
                    OutputPlan>{{choice.outputs[o], choice.sharded_sizes[o]}}
              : same_for_all(replicated(mesh_)));
    }
    if (mesh_.coordinate()) {
      prepare_local_call(
          rule, call, choice, mesh_shape(), *mesh_.coordinate(), *decision_);
    }
  }

  // Each index of the lists is a call of its own.
  void by_elements(const Rule& rule) {
    const RuleOperands rule_operands(call_, traits_, mesh_);
    const Rule own = rule_of_element(rule);
    decision_->strategy = Strategy::kByRule;
    decision_->strides = rule.strides;
    decision_->outputs.resize(return_count());
    for (int32_t element = 0; element < rule_operands.list_length();
         ++element) {
      std::vector<size_t> numbers;
      const std::vector<Operand> operands =
          rule_operands.element(element, numbers);
      const RuleCall call = rule_operands.call(operands);
      const RuleChoice choice = choose_rows(
          own, call, mesh_shape(), move_cost(mesh_),
          machine_model().memory_limit);
      if (element == 0) {
        decision_->reason = text_of(rule, choice.rows) + ", per element";
      }
      for (size_t i = 0; i < numbers.size(); ++i) {
        decision_->operands[numbers[i]].target = choice.operands[i];
      }
      for (size_t o = 0; o < choice.outputs.size(); ++o) {
        decision_->outputs[o].push_back(
            {choice.outputs[o], choice.sharded_sizes[o]});
      }
    }
  }

  void by_view(const Rule& rule) {
    const RuleOperands rule_operands(call_, traits_, mesh_);
    const ViewLayout layout = rule.view(
        rule_operands.call(), mesh_shape(),
        mesh_.coordinate() ? &*mesh_.coordinate() : nullptr);
    decision_->strategy = Strategy::kByRule;
    decision_->reason = text_of(rule, layout);
    OperandPlan& self = decision_->operands[0];
    self.target = *rule_operands.call().self().placements;
    for (size_t m = 0; m < self.target.size(); ++m) {
      if (!layout.keeps[m]) {
        self.target[m] = Replicate();
      }
    }
    drop_orders(self.target);
    decision_->views = layout.results;
    decision_->viewed_width = static_cast<int64_t>(
        c10::elementSize(rule_operands.call().self().dtype));
    decision_->local_arguments = layout.local_arguments;
    const bool has_kernel =
        rule.local != RunBy::kOperator || layout.local != RunBy::kOperator;
    if (mesh_.coordinate() && has_kernel) {
      Layout shown(
          rule_operands.call().self().shape.vec(), mesh_shape(), self.target);
      decision_->kernel =
          layout.local != RunBy::kOperator
              ? local_kernel(layout.local)
              : local_view_kernel(rule, shown, *mesh_.coordinate());
      decision_->layouts.push_back(std::move(shown));
    }
    for (size_t o = 0; o < return_count(); ++o) {
      std::vector<OutputPlan> plans;
      for (const ViewResult& result : layout.results) {
        plans.push_back({result.placements, sharded_sizes(result)});
      }
      decision_->outputs.push_back(std::move(plans));
    }
  }

  static std::vector<int64_t> sharded_sizes(const ViewResult& result) {
    std::vector<int64_t> sizes;
    for (const Placement& p : result.placements) {
      sizes.push_back(
          p.is_shard() ? result.shape[static_cast<size_t>(p.dim())] : 0);
    }
    return sizes;
  }

  // Without one of the cuts of a tensor dim the orders of the others are wrong.
  void drop_orders(Placements& placements) const {
    for (const Placement& p : placements) {
      if (p.is_shard() && p.order() >= 0) {
        break;
      }
      if (&p == &placements.back()) {
        return;
      }
    }
    try {
      Layout(
          spec_of(*tensor_at(call_, decision_->operands[0])).shape(),
          mesh_shape(), placements);
    } catch (const c10::Error&) {
      placements = replicated(mesh_);
    }
  }

  void find_strides() {
    if (decision_->strides == ResultStrides::kChannelsLast) {
      decision_->format = has_channels_last() ? c10::MemoryFormat::ChannelsLast
                                              : c10::MemoryFormat::Contiguous;
      return;
    }
    const auto number = call_.schema().argumentIndexWithName("memory_format");
    if (number) {
      const c10::IValue& format = call_.argument(static_cast<size_t>(*number));
      decision_->format = format.isNone() ? c10::MemoryFormat::Preserve
                                          : format.toMemoryFormat();
    }
    find_like_strides();
  }

  // Calls f(tensor, plan) for the operands that a kernel reads.
  template <class F>
  void for_each_read(const F& f) const {
    for (const OperandPlan& plan : decision_->operands) {
      if (plan.defined && !plan.out) {
        f(*tensor_at(call_, plan), plan);
      }
    }
  }

  // As kernels choose: one operand will do, but all tensors of a list must be.
  bool has_channels_last() const {
    bool any = false;
    bool all = true;
    bool lists = false;
    for_each_read([&](const at::Tensor& t, const OperandPlan& plan) {
      const bool is = t.dim() == 4 &&
                      c10::is_channels_last_strides_2d(t.sizes(), t.strides());
      any = any || is;
      all = all && is;
      lists =
          lists || traits_.arguments[static_cast<size_t>(plan.argument)].kind ==
                       ArgumentTraits::Kind::kTensors;
    });
    return lists ? all && any : any;
  }

  // Results of the shape of the largest operand follow it, or all operands as a
  // kernel does.
  void find_like_strides() {
    std::vector<StridedShape> operands;
    const StridedShape* largest = nullptr;
    for_each_read([&](const at::Tensor& t, const OperandPlan&) {
      if (t.dim() > 0) {
        operands.push_back({t.sizes(), t.strides()});
      }
    });
    for (const StridedShape& operand : operands) {
      if (largest == nullptr || c10::multiply_integers(operand.shape) >
                                    c10::multiply_integers(largest->shape)) {
        largest = &operand;
      }
    }
    if (largest == nullptr) {
      return;
    }
    // Indices of lists have no part in each other's results.
    const bool lists = traits_.rule.per_element;
    const auto as_largest = [&](const StridedShape& operand) {
      return operand.shape == largest->shape
                 ? operand.strides == largest->strides
                 : lists;
    };
    const auto fits = [&](const StridedShape& operand) {
      return operand.shape.size() <= largest->shape.size();
    };
    if (std::all_of(operands.begin(), operands.end(), as_largest)) {
      decision_->like_strides = largest->strides.vec();
    } else if (!lists && std::all_of(operands.begin(), operands.end(), fits)) {
      decision_->like_strides = elementwise_strides(largest->shape, operands);
    } else {
      return;
    }
    decision_->like_shape = largest->shape.vec();
  }

  // A written shard is what it was, with other values.
  bool stays_in_place(const at::Tensor& t, const OperandPlan& plan) const {
    return is_sharded(t) && traits_.rule.rule != nullptr &&
           placements_after(*decision_, plan) == spec_of(t).placements();
  }

  void finish() {
    if (decision_->strides != ResultStrides::kContiguous) {
      find_strides();
    }
    bool direct = mesh_.coordinate().has_value();
    for (OperandPlan& plan : decision_->operands) {
      if (plan.out) {
        direct = false;
        continue;
      }
      if (plan.target.empty()) {
        plan.target = replicated(mesh_);
      }
      if (!plan.defined) {
        continue;
      }
      const at::Tensor& t = *tensor_at(call_, plan);
      plan.moves = is_sharded(t) ? spec_of(t).placements() != plan.target
                                 : plan.target != replicated(mesh_);
      direct =
          direct && !plan.moves && (!plan.written || stays_in_place(t, plan));
    }
    decision_->is_direct = direct;
    decision_->gathers =
        !direct && std::any_of(
                       decision_->operands.begin(), decision_->operands.end(),
                       [&](const OperandPlan& plan) { return gathers(plan); });
    decision_->is_typed =
        direct && decision_->kernel == nullptr && find_local_lists();
  }

  // Before the call, or when a result goes where it is written.
  bool gathers(const OperandPlan& plan) const {
    if (!plan.defined || !is_sharded(*tensor_at(call_, plan))) {
      return false;
    }
    const DTensorSpec& spec = spec_of(*tensor_at(call_, plan));
    return (!plan.out && is_gather(spec, spec.placements(), plan.target)) ||
           (plan.written &&
            is_gather(
                spec, placements_after(*decision_, plan), spec.placements()));
  }

  // Tells whether all local arguments are lists of sizes.
  bool find_local_lists() {
    for (const auto& [number, value] : decision_->local_arguments) {
      if (!value.isIntList()) {
        return false;
      }
      const std::vector<int64_t> list = value.toIntVector();
      if (std::any_of(
              list.begin(), list.end(), [](int64_t n) { return n < 0; })) {
        return false;
      }
      decision_->local_lists.emplace_back(number, list);
    }
    return true;
  }

  const OpCall& call_;
  const OpTraits& traits_;
  const DeviceMesh mesh_;
  std::shared_ptr<Decision> decision_ = std::make_shared<Decision>();
};

}  // namespace

bool Decision::runs_unsharded() const {
  const auto is_sharded_plan = [](const OperandPlan& plan) {
    return plan.defined && !plan.out &&
           std::any_of(
               plan.target.begin(), plan.target.end(),
               [](const Placement& p) { return p.is_shard(); });
  };
  return strategy == Strategy::kReplicated ||
         (gathers &&
          std::none_of(operands.begin(), operands.end(), is_sharded_plan));
}

const WrapperTemplate& ResultTemplates::set(
    size_t result, size_t element, WrapperTemplate wrapper_template) {
  if (result == 0 && element == 0) {
    return first_ = std::move(wrapper_template);
  }
  if (others_.size() <= result) {
    others_.resize(result + 1);
  }
  if (others_[result].size() <= element) {
    others_[result].resize(element + 1);
  }
  return others_[result][element] = std::move(wrapper_template);
}

bool has_sharded_argument(const OpCall& call) {
  bool found = false;
  call.for_each_argument_tensor([&](const at::Tensor& t) {
    found = found || (is_sharded(t) && !spec_of(t).is_replicated());
  });
  return found;
}

DecisionPtr decide(const OpCall& call, const OpTraits& traits) {
  ++ThreadState::here().decided_calls;
  try {
    return Decider(call, traits).take();
  } catch (const c10::IndexError& error) {
    TORCH_CHECK_INDEX(
        false, call.describe(), ": ", error.what_without_backtrace());
  } catch (const c10::ValueError& error) {
    TORCH_CHECK_VALUE(
        false, call.describe(), ": ", error.what_without_backtrace());
  }
}

void prepare_local_call(
    const Rule& rule, const RuleCall& call, const RuleChoice& choice,
    const MeshShape& mesh, const std::vector<int64_t>& coordinate,
    Decision& decision) {
  const auto number = [&](const std::string& name) {
    return static_cast<size_t>(*call.schema().argumentIndexWithName(name));
  };
  if (!rule.shape_argument.empty()) {
    const Layout output(
        call.integers(rule.shape_argument), mesh, choice.outputs[0]);
    decision.local_arguments.emplace_back(
        number(rule.shape_argument), output.local_shape(coordinate));
  }
  for (const SizeArgument& size : rule.size_arguments) {
    const Layout operand(
        call.operand(size.operand).shape.vec(), mesh,
        choice.operands[size.operand]);
    decision.local_arguments.emplace_back(
        number(size.name),
        operand.local_shape(coordinate)[static_cast<size_t>(size.dim)]);
  }
  decision.kernel = local_kernel(choice.local);
  if (decision.kernel != nullptr) {
    for (size_t i = 0; i < call.operands().size(); ++i) {
      decision.layouts.emplace_back(
          call.operand(i).shape.vec(), mesh, choice.operands[i]);
    }
  }
}

const at::Tensor* tensor_at(const OpCall& call, const OperandPlan& plan) {
  const c10::IValue& value = call.argument(static_cast<size_t>(plan.argument));
  if (value.isTensor()) {
    return &value.toTensor();
  }
  if (value.isNone()) {
    return nullptr;
  }
  const auto list = value.toListRef();
  const c10::IValue& element = list[static_cast<size_t>(plan.element)];
  return element.isTensor() ? &element.toTensor() : nullptr;
}

const Placements& placements_after(
    const Decision& decision, const OperandPlan& plan) {
  return plan.result < 0 ? plan.target
                         : decision
                               .output(
                                   static_cast<size_t>(plan.result),
                                   static_cast<size_t>(plan.element))
                               .placements;
}

}  // namespace tessera::detail::inline tensor_layer
