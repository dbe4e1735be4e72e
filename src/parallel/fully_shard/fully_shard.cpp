#include <tessera/parallel/fully_shard.h>

#include <sstream>
#include <utility>

#include <c10/util/Exception.h>
#include <parallel/fully_shard/form_groups.h>
#include <parallel/fully_shard/live_models.h>
#include <parallel/fully_shard/place_members.h>
#include <parallel/fully_shard/sharded_model.h>
#include <parallel/mesh_dim.h>
#include <parallel/parameter_names.h>
#include <torch/nn/module.h>

namespace tessera {

namespace {

using detail::ShardedModel;

detail::GroupingRules rules_of(
    const DeviceMesh& mesh, const FullyShardOptions& options) {
  constexpr const char* kCall = "fully_shard";
  detail::GroupingRules rules{.mesh = mesh, .options = options};
  rules.mesh_dim =
      detail::find_mesh_dim(kCall, mesh, options.mesh_dim, "dp", 0);
  if (!options.replicate_dim.empty()) {
    rules.replicate_dim =
        detail::find_mesh_dim(kCall, mesh, options.replicate_dim, "", 0);
  }
  TORCH_CHECK_VALUE(
      rules.mesh_dim != rules.replicate_dim, kCall,
      ": mesh_dim and replicate_dim must be two dims of ", to_string(mesh),
      "; got \"", options.replicate_dim, "\" for both; name two");
  TORCH_CHECK_VALUE(
      options.prefetch >= 0, kCall, ": prefetch must be 0 or more groups; got ",
      options.prefetch);
  TORCH_CHECK_VALUE(
      options.max_reductions >= 0, kCall,
      ": max_reductions must be 0 or more; got ", options.max_reductions);
  for (const auto& dtype :
       {options.mp_policy.param_dtype, options.mp_policy.reduce_dtype}) {
    TORCH_CHECK_TYPE(
        !dtype || c10::isFloatingType(*dtype), kCall,
        ": mp_policy needs floating dtypes; got ", *dtype);
  }
  return rules;
}

std::shared_ptr<ShardedModel> alive(
    const std::weak_ptr<ShardedModel>& model, const char* call) {
  auto found = model.lock();
  if (found != nullptr && found->is_orphaned()) {
    std::exchange(found, nullptr)->forget_parameters();
  }
  TORCH_CHECK_VALUE(
      found != nullptr, call,
      ": the module that fully_shard() was called for is gone; keep it");
  return found;
}

}  // namespace

FullyShard fully_shard(
    torch::nn::Module& module, const DeviceMesh& mesh,
    const FullyShardOptions& options) {
  detail::release_orphans();
  detail::GroupingRules rules = rules_of(mesh, options);
  const auto lists = detail::form_groups(module, options);
  detail::name_parameters(module);
  auto places = detail::place_members(lists, rules);
  const auto model = ShardedModel::make(std::move(rules), std::move(places));
  detail::add_live_model(model);
  return FullyShard(model);
}

void FullyShard::unshard(const std::string& path) {
  alive(model_, "FullyShard::unshard")->unshard(path);
}

void FullyShard::reshard(const std::string& path) {
  alive(model_, "FullyShard::reshard")->reshard(path);
}

FullyShardReport FullyShard::report() const {
  return alive(model_, "FullyShard::report")->report();
}

FullyShard::Accumulate::Accumulate(FullyShard& sharded, Keep keep)
    : model_(alive(sharded.model_, "FullyShard::Accumulate")) {
  model_->begin_accumulating(keep);
}

FullyShard::Accumulate::~Accumulate() {
  model_->end_accumulating();
}

std::string to_string(const FullyShardReport& report) {
  std::ostringstream out;
  for (const auto& group : report.groups) {
    out << (group.path.empty() ? "root" : group.path) << ": "
        << group.members.size() << " parameters, " << group.shard_bytes
        << " of " << group.unsharded_bytes << " bytes"
        << (group.is_gathered ? ", gathered" : "")
        << (group.is_accumulating ? ", gradients not reduced yet" : "");
    if (group.handed_out_bytes > 0) {
      out << ", " << group.handed_out_bytes << " bytes kept by plain tensors";
    }
    out << '\n';
  }
  const auto list = [&](const char* what, const auto& paths) {
    out << what;
    for (const std::string& path : paths) {
      out << ' ' << (path.empty() ? "root" : path);
    }
    out << '\n';
  };
  list("forward:", report.forward_order);
  list("backward:", report.backward_order);
  out << report.gathers << " gathers, " << report.reductions
      << " reductions in the last step; " << report.gathered_bytes
      << " bytes gathered now, " << report.peak_gathered_bytes
      << " at the peak\n";
  return out.str();
}

std::ostream& operator<<(std::ostream& out, const FullyShardReport& report) {
  return out << to_string(report);
}

}  // namespace tessera
