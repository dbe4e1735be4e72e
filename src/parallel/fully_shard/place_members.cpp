#include <parallel/fully_shard/place_members.h>

#include <algorithm>
#include <utility>

#include <c10/core/GradMode.h>
#include <c10/util/Exception.h>
#include <tensor/api/in_place.h>
#include <tensor/impl/wrap.h>
#include <tensor/move/redistribute_shard.h>
#include <tensor/uses/member_use.h>
#include <tensor/uses/parameter_use.h>
#include <tessera/layout/notation.h>
#include <tessera/tensor/dtensor.h>
#include <torch/csrc/autograd/variable.h>

namespace tessera::detail::inline parallel_layer {

namespace {

// A parameter and the layout that it gets.
struct Planned {
  NamedParameter parameter;
  Placements placements;
  bool is_member = true;
};

std::string where(const NamedParameter& parameter, const GroupingRules& rules) {
  return "fully_shard, " + parameter.path + " on " + to_string(rules.mesh);
}

void check(const NamedParameter& parameter, const GroupingRules& rules) {
  const at::Tensor& t = parameter.tensor;
  TORCH_CHECK_VALUE(
      member_of(t) == nullptr, where(parameter, rules),
      ": the parameter is fully sharded already; name all groups in one call");
  TORCH_CHECK_VALUE(
      torch::autograd::impl::post_acc_grad_hooks(t) == nullptr ||
          !is_dtensor(t) || !meta_nowait(t).state().unreduced_dim,
      where(parameter, rules),
      ": a DataParallel has charge of its gradient; use one of the two");
  if (!is_dtensor(t)) {
    return;
  }
  TORCH_CHECK_VALUE(
      spec(t).mesh() == rules.mesh, where(parameter, rules),
      ": the parameter is on another mesh; got ", to_string(spec(t)),
      "; parallelize_module() and fully_shard() need one mesh with all dims");
  for (const int64_t dim : {rules.mesh_dim, rules.replicate_dim}) {
    TORCH_CHECK_VALUE(
        dim < 0 || placements(t)[static_cast<size_t>(dim)].is_replicate(),
        where(parameter, rules),
        ": the parameter is cut along this mesh dim already; got ",
        to_string(spec(t)), "; name another mesh dim");
  }
}

Placement chosen_shard(
    const NamedParameter& parameter, const GroupingRules& rules) {
  const auto& choose = rules.options.placement;
  const int64_t ndim = parameter.tensor.dim();
  const Placement shard =
      (choose ? choose(parameter.path, parameter.tensor) : Shard(0))
          .resolved(ndim);
  TORCH_CHECK_VALUE(
      shard.is_shard() && shard.dim() >= 0 && shard.dim() < ndim,
      where(parameter, rules), ": a parameter must be cut; `placement` gave ",
      to_string(shard), " for shape ", parameter.tensor.sizes(),
      "; return Shard(dim) with one of its dims");
  return shard;
}

// The new cut is the last one of its tensor dim: it cuts what others left.
Placements with_shard(
    Placements placements, Placement shard, int64_t mesh_dim) {
  int64_t order = 0;
  std::vector<size_t> others;
  for (size_t m = 0; m < placements.size(); ++m) {
    if (placements[m].is_shard(shard.dim())) {
      others.push_back(m);
    }
  }
  const bool is_last =
      others.empty() || static_cast<int64_t>(others.back()) < mesh_dim;
  const bool has_order = std::any_of(
      others.begin(), others.end(),
      [&](size_t m) { return placements[m].order() >= 0; });
  if (!is_last || has_order) {
    for (const size_t m : others) {
      if (placements[m].order() < 0) {
        placements[m] = placements[m].with_order(order);
      }
      order = std::max(order, placements[m].order() + 1);
    }
    shard = shard.with_order(order);
  }
  placements[static_cast<size_t>(mesh_dim)] = shard;
  return placements;
}

Planned plan(const NamedParameter& parameter, const GroupingRules& rules) {
  check(parameter, rules);
  const at::Tensor& t = parameter.tensor;
  Planned planned{parameter, {}};
  planned.placements =
      is_dtensor(t)
          ? placements(t)
          : Placements(static_cast<size_t>(rules.mesh.ndim()), Replicate());
  planned.is_member = t.dim() > 0;
  if (planned.is_member) {
    planned.placements = with_shard(
        planned.placements, chosen_shard(parameter, rules), rules.mesh_dim);
  }
  if (!is_dtensor(t)) {
    const std::string call = "fully_shard, " + parameter.path;
    check_in_place(call.c_str(), t, rules.mesh, planned.placements);
  }
  return planned;
}

// A parameter that tensor parallelism has placed is cut further: every rank
// holds what it keeps.
void shard_further(const at::Tensor& t, const Placements& target) {
  const c10::AutoGradMode no_grad(false);
  if (placements(t) == target) {
    return;
  }
  const SpecPtr from = meta_ready(t).spec;
  const SpecPtr to = from->with_placements(target);
  const auto use = parameter_use(t);
  at::Tensor local = redistribute_shard(meta_ready(t).local, *from, target);
  if (local.is_alias_of(meta_ready(t).local)) {
    local = local.clone();
  }
  install(t, local, to);
  t.unsafeGetTensorImpl()->bump_version();
  if (use) {
    set_parameter_use(t, use);
  }
  if (t.grad().defined()) {
    t.mutable_grad() = redistribute(t.grad(), target);
  }
}

}  // namespace

std::vector<GroupPlace> place_members(
    const std::vector<ParameterList>& lists, const GroupingRules& rules) {
  std::vector<std::vector<Planned>> plans;
  for (const ParameterList& list : lists) {
    plans.emplace_back();
    for (const NamedParameter& parameter : list.parameters) {
      plans.back().push_back(plan(parameter, rules));
    }
  }
  std::vector<GroupPlace> groups;
  for (size_t g = 0; g < lists.size(); ++g) {
    GroupPlace group{lists[g].path, {}};
    for (const Planned& planned : plans[g]) {
      const at::Tensor& t = planned.parameter.tensor;
      if (is_dtensor(t)) {
        shard_further(t, planned.placements);
      } else {
        make_dtensor_(
            t, rules.mesh, planned.placements, {.src_data_rank = std::nullopt});
      }
      if (planned.is_member) {
        group.members.push_back(
            {planned.parameter.path,
             c10::weak_intrusive_ptr<c10::TensorImpl>(t.getIntrusivePtr()),
             meta_ready(t).local, meta_ready(t).spec});
      }
    }
    groups.push_back(std::move(group));
  }
  return groups;
}

}  // namespace tessera::detail::inline parallel_layer
