// Runs a decision of strategy kByRule or kReplicated on this rank, in four
// steps:
//
//   redistribute_inputs   local tensors take the place of tensors on the stack,
//                         each in the placements of its OperandPlan
//   run_local             the operator, or the rule's local kernel, on those
//   write_back            what was written goes back to the tensors of the user
//   wrap_results          local results become sharded tensors
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

#include <ATen/TensorUtils.h>
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
#include <tensor/state/replicated.h>
#include <tensor/state/strides.h>

namespace tessera::detail::inline tensor_layer {

namespace {

// A tensor that the call writes, and its local argument on the stack.
struct Written {
  at::Tensor tensor;
  at::Tensor value;
  const OperandPlan* plan;
  bool moved = false;  // the value does not share the tensor's memory
};

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
        mesh_(*call.mesh()) {}

  void operator()() {
    redistribute_inputs();
    for (const auto& [number, value] : decision_.local_arguments) {
      call_.argument(number) = value;
    }
    run_local();
    for (const Written& w : written_) {
      write_back(w);
    }
    wrap_results();
  }

 private:
  void redistribute_inputs() {
    size_t next = 0;
    for (size_t i = 0; i < call_.size(); ++i) {
      c10::IValue& value = call_.argument(i);
      switch (traits_.arguments[i].kind) {
        case ArgumentTraits::Kind::kStatic:
          break;
        case ArgumentTraits::Kind::kTensor: {
          const OperandPlan& plan = decision_.operands[next++];
          if (plan.defined) {
            value = local_argument(at::Tensor(value.toTensor()), plan);
          }
          break;
        }
        case ArgumentTraits::Kind::kTensors:
          map_elements(value, [&](const at::Tensor& t) {
            const OperandPlan& plan = decision_.operands[next++];
            return plan.defined ? local_argument(t, plan) : t;
          });
          break;
      }
    }
  }

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
      written_.push_back({t, value, &plan, plan.moves});
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
    viewed_ = t;
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
      copy_ = copy_of(t, plan.target);
    }
    at::Tensor value = copy_ ? copy_->value : refreshed_shard(t);
    if (plan.written) {
      value = second_handle(value);
      written_.push_back({t, value, &plan, plan.moves});
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
    written_.push_back({t, value, &plan, !own});
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

  void run_local() {
    if (decision_.kernel != nullptr) {
      return decision_.kernel({call_, decision_.layouts, *mesh_.coordinate()});
    }
    const bool views = viewed_.defined() ? is_sharded(viewed_) && !copy_
                                         : !decision_.views.empty();
    if (views) {
      return view_shard();
    }
    fit_view_strides(call_);
    call_.op().callBoxed(call_.stack());
  }

  // A shard need not lie in memory as the global strides say. Where its own do
  // not permit the view, it is taken of a copy in the same placements.
  void view_shard() {
    auto& stack = *call_.stack();
    const size_t below = stack.size() - call_.size();
    const torch::jit::Stack saved(
        stack.begin() + static_cast<std::ptrdiff_t>(below), stack.end());
    try {
      fit_view_strides(call_);
      return call_.op().callBoxed(call_.stack());
    } catch (const c10::Error&) {
      stack.resize(below);
      stack.insert(stack.end(), saved.begin(), saved.end());
    }
    if (viewed_.defined()) {
      copy_ = copy_of(viewed_, spec_of(viewed_).placements());
      call_.argument(0) = copy_->value;
    } else {
      call_.argument(0) = call_.argument(0).toTensor().contiguous();
    }
    fit_view_strides(call_);
    call_.op().callBoxed(call_.stack());
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
    if (copy_ && w.plan->viewed && w.moved) {
      return after_write(*copy_);
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

  void wrap_results() {
    auto& stack = *call_.stack();
    const size_t count = call_.schema().returns().size();
    for (size_t r = 0; r < count; ++r) {
      c10::IValue& value = stack[stack.size() - count + r];
      if (const Written* w = written_as(r)) {
        value = w->tensor;
        continue;
      }
      size_t element = 0;
      if (value.isTensor()) {
        if (value.toTensor().defined()) {
          value = wrap_result(at::Tensor(value.toTensor()), r, 0);
        }
      } else if (value.isList()) {
        map_elements(value, [&](const at::Tensor& t) {
          const size_t e = element++;
          return t.defined() ? wrap_result(t, r, e) : t;
        });
      }
    }
  }

  const Written* written_as(size_t result) const {
    for (const Written& w : written_) {
      if (w.plan->result == static_cast<int32_t>(result)) {
        return &w;
      }
    }
    return nullptr;
  }

  at::Tensor wrap_result(const at::Tensor& t, size_t result, size_t element) {
    TORCH_CHECK_NOT_IMPLEMENTED(
        t.layout() == at::kStrided, call_.op().operator_name().name,
        ": the result is ", t.layout(),
        ", and sharded tensors are strided; apply the operator to "
        "full_tensor() or to_local()");
    const WrapperTemplate& wrapper_template =
        template_of_result(decision_, call_.op(), result, element, t);
    if (!viewed_.defined() || !is_sharded(viewed_) || !returns_view(result)) {
      return wrap(t, wrapper_template.spec());
    }
    const ViewStart start = wrapper_template.start();
    const bool unsharded = wrapper_template.is_unsharded();
    at::Tensor view = wrap_view(t, wrapper_template.spec(), viewed_, copy_);
    // An unsharded shard has the right offset, and a copy of a view has none.
    if (!decision_.views.empty() && (!unsharded || meta_nowait(view).copy)) {
      take_offset(view, start, viewed_);
    }
    return view;
  }

  bool returns_view(size_t result) const {
    return call_.schema().returns()[result].alias_info() != nullptr;
  }

  const OpCall& call_;
  const OpTraits& traits_;
  const Decision& decision_;
  const DeviceMesh mesh_;
  std::vector<Written> written_;
  at::Tensor viewed_;               // the source of a view's results
  std::shared_ptr<ViewCopy> copy_;  // the copy that they point into
};

}  // namespace

void fit_view_strides(const OpCall& call) {
  if (call.size() != 3 || call.schema().arguments()[2].name() != "stride") {
    return;
  }
  const at::Tensor shard = call.argument(0).toTensor();
  const auto strides = at::detail::computeStride(
      shard.sizes(), shard.strides(),
      at::IntArrayRef(call.argument(1).toIntVector()));
  TORCH_CHECK_VALUE(
      strides, call.schema().name(), ": the shard's memory permits no view");
  call.argument(2) = *strides;
}

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

}  // namespace tessera::detail::inline tensor_layer
