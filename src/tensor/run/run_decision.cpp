// Runs a decision of strategy kByRule or kReplicated on this rank, in four
// steps:
//
//   local_argument   local tensors take the place of tensors on the stack, each
//                    in the placements of its OperandPlan
//   LocalCall::run   the operator, or the rule's local kernel, on those
//   write_back       what was written goes back to the tensors of the user
//   wrap_results     local results become sharded tensors
//
// Precondition: this rank is in the mesh, and all its ranks run the same call.
// Collectives happen in the first and third steps, in the order of the
// arguments, which is that of moves_of(). Nothing outlives the call but its
// results.
//
// Example: torch.mm(a, b, out=c), a: S(1), b: S(0), c: R on mesh(tp=2), by the
// row S(1), S(0) -> P(sum). Neither input moves; the stack is (shard of a,
// shard of b, an empty tensor), since the result P(sum) cannot be computed into
// c; write_back() all-reduces the tensor and copies the sum to c;
// wrap_results() returns c.
#include <tensor/run/run_decision.h>

#include <ATen/ops/empty.h>
#include <c10/util/Exception.h>
#include <tensor/call/decision.h>
#include <tensor/call/decomposition.h>
#include <tensor/call/result_specs.h>
#include <tensor/call/rule_operands.h>
#include <tensor/impl/sharded_impl.h>
#include <tensor/impl/wrap.h>
#include <tensor/move/redistribute_shard.h>
#include <tensor/move/view_copies.h>
#include <tensor/run/local_call.h>
#include <tensor/state/replicated.h>
#include <tensor/state/strides.h>

namespace tessera::detail::inline tensor_layer {

namespace {

// A second tensor over the same memory: a call that gives it another shape
// leaves the first, which other tensors may share, as it was.
at::Tensor second_handle(const at::Tensor& t) {
  return at::Tensor(t.unsafeGetTensorImpl()->shallow_copy_and_detach(
      t.unsafeGetTensorImpl()->version_counter(),
      /*allow_tensor_metadata_change=*/true));
}

SpecPtr spec_or_replicated(const at::Tensor& t, const DeviceMesh& mesh) {
  return is_sharded(t) ? meta_nowait(t).spec
                       : DTensorSpec::make(
                             mesh, replicated(mesh), t.sizes().vec(),
                             contiguous_strides(t.sizes()), t.scalar_type());
}

class Run {
 public:
  Run(const OpCall& call, const OpTraits& traits, const Decision& decision)
      : call_(call),
        traits_(traits),
        decision_(decision),
        local_{call, traits, decision},
        mesh_(*call.mesh()) {}

  void operator()() {
    local_.map_operands([&](const at::Tensor& t, const OperandPlan& plan) {
      return local_argument(at::Tensor(t), plan);
    });
    local_.run(/*keys_known=*/false);
    for (const Written& w : local_.written) {
      write_back(w);
    }
    local_.wrap_results();
  }

 private:
  at::Tensor local_argument(const at::Tensor& t, const OperandPlan& plan) {
    if (plan.viewed) {
      return viewed(t, plan);
    }
    if (plan.out) {
      return out_tensor(t, plan);
    }
    at::Tensor value = local_of(t, plan.target);
    if (plan.written) {
      if (plan.moves && is_sharded(t) &&
          value.is_alias_of(meta_ready(t).local)) {
        value = value.clone();
      }
      // Without a rule the call may give it another shape.
      if (traits_.rule.rule == nullptr && is_sharded(t)) {
        value = second_handle(value);
      }
      local_.written.push_back({t, value, &plan, plan.moves});
    }
    return value;
  }

  at::Tensor local_of(const at::Tensor& t, const Placements& target) const {
    const at::Tensor& local = is_sharded(t) ? refreshed_shard(t) : t;
    const bool stays = is_sharded(t) ? spec_of(t).placements() == target
                                     : target == replicated(mesh_);
    return stays ? local
                 : redistribute_shard(
                       local, *spec_or_replicated(t, mesh_), target);
  }

  // Returns the shard if the view can show it, else a copy in placements that
  // can show the view.
  at::Tensor viewed(const at::Tensor& t, const OperandPlan& plan) {
    local_.viewed = t;
    if (!is_sharded(t)) {
      return t;
    }
    // Without a rule the call may read memory around the view, which a copy of
    // the view alone does not have.
    TORCH_CHECK_NOT_IMPLEMENTED(
        !plan.moves || traits_.rule.rule != nullptr ||
            (!meta_ready(t).base && !meta_ready(t).copy),
        call_.describe(),
        ": self is a view of a sharded tensor, and the memory around it is ",
        "not at hand; clone() the view first");
    if (plan.moves) {
      local_.copy = copy_of(t, plan.target);
    }
    at::Tensor value = local_.copy ? local_.copy->value : refreshed_shard(t);
    if (plan.written) {
      value = second_handle(value);
      local_.written.push_back({t, value, &plan, plan.moves});
    }
    return value;
  }

  // The tensor's own memory where the result will have its placements.
  at::Tensor out_tensor(const at::Tensor& t, const OperandPlan& plan) {
    const Placements& result = placements_after(decision_, plan);
    const bool own = is_sharded(t) ? result == spec_of(t).placements()
                                   : result == replicated(mesh_);
    const at::Tensor& local = is_sharded(t) ? refreshed_shard(t) : t;
    at::Tensor value = own ? (is_sharded(t) ? second_handle(local) : local)
                           : at::empty(shape_for(t, result), local.options());
    local_.written.push_back({t, value, &plan, !own});
    return value;
  }

  // Some kernels fill what they are given and do not resize it: the shard of a
  // tensor of the same global shape, where it can have these placements.
  std::vector<int64_t> shape_for(
      const at::Tensor& t, const Placements& placements) const {
    for (const Placement& p : placements) {
      if (p.is_shard() &&
          (!p.fits_any_size() || p.dim() < 0 || p.dim() >= t.dim())) {
        return {0};
      }
    }
    return Layout(t.sizes().vec(), mesh_.mesh_shape(), placements)
        .local_shape(*mesh_.coordinate());
  }

  void write_back(const Written& w) {
    const Placements& result = placements_after(decision_, *w.plan);
    if (!is_sharded(w.tensor)) {
      if (w.moved || result != replicated(mesh_)) {
        write_back_plain(w, result);
      }
      return;
    }
    if (w.plan->out) {
      const std::vector<int64_t> shape = result_shape(
          decision_.output(
              static_cast<size_t>(w.plan->result),
              static_cast<size_t>(w.plan->element)),
          w.value.sizes());
      if (at::IntArrayRef(shape) != w.tensor.sizes() || has_new_memory(w)) {
        return adopt_shape(w, result, shape);
      }
    } else if (has_new_memory(w) || has_new_shape(w, result)) {
      return adopt_shape(w, result, w.value.sizes().vec());
    }
    const DTensorSpec& spec = spec_of(w.tensor);
    if (local_.copy && w.plan->viewed && w.moved) {
      return after_write(*local_.copy);
    }
    if (w.moved || result != spec.placements()) {
      refreshed_shard(w.tensor).copy_(redistribute_shard(
          w.value, *spec.with_placements(result), spec.placements()));
    }
    after_write(w.tensor);
  }

  // A plain tensor stays plain and receives the replicated value.
  void write_back_plain(const Written& w, const Placements& result) const {
    const std::vector<int64_t> shape =
        w.plan->out ? result_shape(
                          decision_.output(
                              static_cast<size_t>(w.plan->result),
                              static_cast<size_t>(w.plan->element)),
                          w.value.sizes())
                    : w.tensor.sizes().vec();
    const SpecPtr spec = DTensorSpec::make(
        mesh_, result, shape, contiguous_strides(shape),
        w.tensor.scalar_type());
    const at::Tensor unsharded =
        redistribute_shard(w.value, *spec, replicated(mesh_));
    if (w.plan->out && w.tensor.sizes() != unsharded.sizes()) {
      w.tensor.resize_(unsharded.sizes());
    }
    w.tensor.copy_(unsharded);
  }

  bool has_new_memory(const Written& w) const {
    if (w.moved) {
      return false;
    }
    const at::Tensor& old = meta_ready(w.tensor).local;
    return w.value.sizes() != old.sizes() ||
           w.value.strides() != old.strides() ||
           w.value.storage_offset() != old.storage_offset() ||
           !w.value.is_alias_of(old);
  }

  // Tells whether a replicated value was the local argument of a sharded
  // tensor, and the call gave it another shape.
  bool has_new_shape(const Written& w, const Placements& result) const {
    return w.moved && !w.plan->viewed && result == replicated(mesh_) &&
           w.value.sizes() != w.tensor.sizes();
  }

  void adopt_shape(
      const Written& w, const Placements& result,
      const std::vector<int64_t>& shape) {
    const DTensorSpec& old = spec_of(w.tensor);
    TORCH_CHECK_VALUE(
        !meta_ready(w.tensor).copy && !meta_ready(w.tensor).base,
        call_.op().operator_name().name,
        ": a view of a sharded tensor cannot change its shape in place; got ",
        w.tensor.sizes(), " and ", w.value.sizes(), "; clone() the view first");
    const auto ndim = static_cast<int64_t>(shape.size());
    const Placements kept = fitting_placements(old, ndim);
    const bool unsharded = result == replicated(mesh_);
    const std::vector<int64_t> strides =
        unsharded ? w.value.strides().vec() : contiguous_strides(shape);
    const SpecPtr from =
        DTensorSpec::make(mesh_, result, shape, strides, old.dtype());
    const SpecPtr to =
        DTensorSpec::make(mesh_, kept, shape, strides, old.dtype());
    install(w.tensor, redistribute_shard(w.value, *from, kept), to);
  }

  const OpCall& call_;
  const OpTraits& traits_;
  const Decision& decision_;
  LocalCall local_;
  const DeviceMesh mesh_;
};

}  // namespace

Placements fitting_placements(const DTensorSpec& old, int64_t ndim) {
  Placements placements = old.placements();
  for (Placement& p : placements) {
    const bool fits = !p.is_shard() || (p.fits_any_size() && p.dim() < ndim);
    if (!fits) {
      p = Replicate();
    }
  }
  return placements;
}

void run_general(const OpCall& call, const OpTraits& traits) {
  run_decision(call, traits, *decide(call, traits));
}

void run_decision(
    const OpCall& call, const OpTraits& traits, const Decision& decision) {
  if (decision.strategy == Strategy::kDecomposed) {
    return traits.decomposition->run(call);
  }
  Run(call, traits, decision)();
}

void run_cached(
    const OpCall& call, const OpTraits& traits, const Decision& decision) {
  LocalCall local{call, traits, decision};
  local.map_operands([&](const at::Tensor& t, const OperandPlan& plan) {
    if (!is_sharded(t)) {
      return t;
    }
    if (plan.written) {
      local.written.push_back({t, {}, &plan});
    }
    if (plan.viewed) {
      local.viewed = t;
    }
    return meta_nowait(t).local;
  });
  local.run(/*keys_known=*/true);
  for (const Written& w : local.written) {
    after_write(w.tensor);
  }
  local.wrap_results();
}

}  // namespace tessera::detail::inline tensor_layer
