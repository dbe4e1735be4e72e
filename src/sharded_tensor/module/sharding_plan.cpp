// shard_module's non-template part: a plan is checked as a whole, on all ranks,
// then carried out.
#include <tessera/sharded_tensor/sharding_plan.h>

#include <unordered_map>

#include <base/text.h>
#include <c10/util/Exception.h>
#include <comm/log/call_cause.h>
#include <modules/module_path.h>
#include <sharded_tensor/module/module_members.h>
#include <sharded_tensor/module/parameter_plan.h>
#include <sharded_tensor/spec/raise.h>
#include <sharded_tensor/tensor/agreement.h>
#include <tessera/comm/world.h>
#include <tessera/sharded_tensor/shard_module.h>
#include <torch/nn/module.h>

namespace tessera::sharded_tensor {

const ShardingSpec* PlanEntry::spec() const {
  const auto* spec = std::get_if<ShardingSpecPtr>(&value_);
  return spec == nullptr ? nullptr : spec->get();
}

Sharder* PlanEntry::sharder() const {
  const auto* sharder = std::get_if<std::shared_ptr<Sharder>>(&value_);
  return sharder == nullptr ? nullptr : sharder->get();
}

}  // namespace tessera::sharded_tensor

namespace tessera::detail::inline sharded_tensor_layer {

using sharded_tensor::KeyError;
using sharded_tensor::PlanEntry;
using sharded_tensor::ProcessGroup;
using sharded_tensor::Replacement;
using sharded_tensor::Sharder;
using sharded_tensor::ShardingPlan;
using sharded_tensor::ShardingSpec;
using torch::nn::Module;

namespace {

constexpr const char* kCall = "shard_module";

// A plan whose names were looked up.
class CheckedPlan {
 public:
  CheckedPlan(Module& root, const ShardingPlan& plan, const ProcessGroup& group)
      : root_(root), group_(group) {
    for (const auto& [path, entry] : plan.plan) {
      TORCH_CHECK_TYPE(
          entry.spec() != nullptr || entry.sharder() != nullptr, kCall,
          ", rank ", rank(), ": the plan of ", name_of(path),
          " is neither a ShardingSpec nor a Sharder");
      if (entry.sharder() != nullptr) {
        add_sharder(path, *entry.sharder());
      }
    }
    for (const auto& [path, entry] : plan.plan) {
      if (entry.spec() != nullptr) {
        add_parameter(path, *entry.spec());
      }
    }
    for (const auto& [path, entry] : plan.output_plan) {
      TORCH_CHECK_TYPE(
          entry.spec() != nullptr, kCall, ", rank ", rank(),
          ": the output plan of ", name_of(path), " is no ShardingSpec");
      add_output(path, "output " + to_string(*entry.spec()));
    }
    for (const std::string& path : plan.return_local_tensor) {
      add_output(path, "local output");
    }
  }

  /// Returns what must be equal on all ranks.
  const std::string& text() const { return text_; }

  /// Runs the Sharders, then installs what they returned.
  void replace_modules() const {
    auto agreement = begin_agreement(kCall, group_);
    std::vector<Replacement> replacements;
    agreement.check([&] {
      for (const auto& [path, sharder] : sharders_) {
        const auto [above, name] = split_path(path);
        const Module& parent = *find_module(root_, above);
        replacements.push_back(sharder->shard(child_of(parent, name)));
        check_replacement(parent, path, replacements.back());
      }
    });
    agreement.reach();
    size_t next = 0;
    for (const auto& [path, sharder] : sharders_) {
      const auto [above, name] = split_path(path);
      replace_child(module_at(kCall, root_, above), name, replacements[next++]);
    }
  }
  void shard_parameters(int64_t src_rank) const {
    for (const auto& [path, plan] : parameters_) {
      carry_out(kCall, plan, path, src_rank);
    }
  }

 private:
  std::string name_of(const std::string& path) const {
    return module_name(path, root_.name(), '\'');
  }
  void add_sharder(const std::string& path, Sharder& sharder) {
    if (path.empty()) {
      raise<KeyError>(
          kCall, ", rank ", rank(), ": a Sharder cannot replace ",
          name_of(path), "; call it yourself, or name a module below");
    }
    static_cast<void>(module_at(kCall, root_, path));
    check_owner(path, path);
    sharders_.emplace_back(path, &sharder);
    text_ += path + ": Sharder\n";
  }
  void add_parameter(const std::string& path, const ShardingSpec& spec) {
    TORCH_CHECK_VALUE(
        !path.empty(), kCall, ", rank ", rank(),
        ": a ShardingSpec is for a parameter; got one for ", name_of(path),
        "; name a parameter of it, or plan its output in output_plan");
    const auto [above, name] = split_path(path);
    check_owner(path, above);
    ParameterPlan plan = plan_parameter(
        kCall, module_at(kCall, root_, above), name, spec, group_);
    const auto [seen, fresh] =
        seen_.emplace(plan.parameter.unsafeGetTensorImpl(), path);
    if (!fresh) {
      check_tied(path, seen->second, plan);
    }
    text_ += path + ": " + agreed_text(plan) + "\n";
    parameters_.emplace_back(path, std::move(plan));
  }
  // Throws where a Sharder has the module at `owner` already.
  void check_owner(const std::string& path, const std::string& owner) const {
    for (const auto& [sharded, sharder] : sharders_) {
      TORCH_CHECK(
          !is_within(owner, sharded), kCall, ", rank ", rank(), ": '", path,
          "' is in the plan, but all of '", sharded, "' is left to a Sharder");
    }
  }
  // Two paths may lead to one tensor, which can be cut in one way only.
  void check_tied(
      const std::string& path, const std::string& other,
      const ParameterPlan& plan) const {
    for (const auto& [first, planned] : parameters_) {
      TORCH_CHECK_VALUE(
          first != other || (planned.mesh == plan.mesh &&
                             planned.placements == plan.placements),
          kCall, ", rank ", rank(), ": '", path, "' and '", other,
          "' are one tensor, and the plan cuts it in two ways; got ",
          to_string(*plan.state->spec), " and ",
          to_string(*planned.state->spec));
    }
  }
  void add_output(const std::string& path, const std::string& what) {
    bool replaced = false;
    for (const auto& [sharded, sharder] : sharders_) {
      replaced = replaced || is_within(path, sharded);
    }
    if (!replaced) {
      static_cast<void>(module_at(kCall, root_, path));
    }
    text_ += (path.empty() ? name_of(path) : path) + ": " + what + "\n";
  }

  Module& root_;
  const ProcessGroup& group_;
  std::vector<std::pair<std::string, Sharder*>> sharders_;
  std::vector<std::pair<std::string, ParameterPlan>> parameters_;
  std::unordered_map<const void*, std::string> seen_;
  std::string text_;
};

OutputSteps output_steps(const ShardingPlan& plan, const ProcessGroup& group) {
  OutputSteps steps;
  for (const auto& [path, entry] : plan.output_plan) {
    steps[path].push_back(
        [spec = entry.spec()->clone(), group](const at::Tensor& output) {
          return sharded_tensor::reshard_output(output, *spec, group);
        });
  }
  for (const std::string& path : plan.return_local_tensor) {
    steps[path].push_back([](const at::Tensor& output) {
      return sharded_tensor::collect_local_shard(output);
    });
  }
  return steps;
}

}  // namespace

OutputSteps apply_plan(
    Module& module, const ShardingPlan& plan, int64_t src_rank,
    const ProcessGroup& group) {
  const CallCause cause(kCall);
  auto agreement = begin_agreement(kCall, group);
  std::optional<CheckedPlan> checked;
  agreement.check([&] {
    check_src_rank(kCall, src_rank, group);
    checked.emplace(module, plan, group);
    agreement.equal("src_rank", std::to_string(src_rank));
    agreement.equal("plan", checked->text());
  });
  agreement.reach();
  checked->replace_modules();
  checked->shard_parameters(src_rank);
  return output_steps(plan, group);
}

}  // namespace tessera::detail::inline sharded_tensor_layer
