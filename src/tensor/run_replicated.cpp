#include <algorithm>

#include <ATen/ops/empty.h>
#include <c10/util/Exception.h>
#include <tensor/decision.h>
#include <tensor/movement.h>
#include <tensor/ways.h>

namespace tessera::detail {

namespace {

// A tensor that the call writes, and what stands in for it on the stack.
struct Written {
  at::Tensor tensor;
  std::shared_ptr<Whole> whole;  // not set for replicated and plain tensors
  at::Tensor value;
};

struct Arguments {
  std::vector<Written> written;
  at::Tensor viewed;            // the source of a view's results
  std::shared_ptr<Whole> copy;  // the copy that they point into
};

// How a call uses an argument.
struct Use {
  bool written = false;
  bool viewed = false;
};

// A second tensor over the same memory: a call that gives it another shape
// leaves the first, which other tensors may share, as it was.
at::Tensor second_handle(const at::Tensor& t) {
  return at::Tensor(t.unsafeGetTensorImpl()->shallow_copy_and_detach(
      t.unsafeGetTensorImpl()->version_counter(),
      /*allow_tensor_metadata_change=*/true));
}

at::Tensor stand_in(const at::Tensor& t, const Use& use, Arguments& arguments) {
  if (!is_sharded(t)) {
    if (use.written && t.defined()) {
      arguments.written.push_back({t, nullptr, t});
    }
    return t;
  }
  if (use.viewed) {
    arguments.viewed = t;
  }
  const bool replicated = spec_of(t).is_replicated();
  if (!replicated && !use.written && !use.viewed) {
    return replicated_value(t);
  }
  std::shared_ptr<Whole> whole = replicated ? nullptr : whole_of(t);
  at::Tensor value = replicated ? fresh_local(t) : whole->value;
  if (use.viewed) {
    arguments.copy = replicated ? meta_of(t).whole : whole;
  }
  if (use.written) {
    value = second_handle(value);
    arguments.written.push_back({t, std::move(whole), value});
  }
  return value;
}

Use use_of(const OpCall& call, const OpTraits& traits, size_t i) {
  const bool unsaid = i < 64 && ((traits.unsaid_writes >> i) & 1) != 0;
  return {
      .written = call.writes(i) || unsaid,
      .viewed = traits.is_view &&
                call.schema().arguments()[i].alias_info() != nullptr};
}

Arguments gather_arguments(const OpCall& call, const OpTraits& traits) {
  Arguments arguments;
  for (size_t i = 0; i < call.size(); ++i) {
    const Use use = use_of(call, traits, i);
    map_tensors(call.argument(i), [&](const at::Tensor& t) {
      return stand_in(t, use, arguments);
    });
  }
  return arguments;
}

// Out variants may have resized what they wrote.
void adopt_new_shape(const Written& w, const std::string& call) {
  const DTensorSpec& old = spec_of(w.tensor);
  const Placements placements = fitting_placements(old, w.value.dim());
  TORCH_CHECK_VALUE(
      !meta_of(w.tensor).whole, call,
      ": a view of a sharded tensor cannot change its shape in place; got ",
      w.tensor.sizes(), " and ", w.value.sizes(), "; clone() the view first");
  const SpecPtr spec = DTensorSpec::make(
      old.mesh(), placements, w.value.sizes().vec(), w.value.strides().vec(),
      w.value.scalar_type());
  install(w.tensor, cut_shard(w.value, *spec), spec);
}

bool has_new_shape(const Written& w) {
  if (w.tensor.sizes() != w.value.sizes()) {
    return true;
  }
  const at::Tensor& old = meta_of(w.tensor).local;
  return !w.whole && (w.value.strides() != old.strides() ||
                      w.value.storage_offset() != old.storage_offset() ||
                      !w.value.is_alias_of(old));
}

void cut_back(const Written& w, const std::string& call) {
  if (!is_sharded(w.tensor)) {
    return;
  }
  if (has_new_shape(w)) {
    adopt_new_shape(w, call);
  } else if (w.whole) {
    after_write(*w.whole);
  } else {
    after_write(w.tensor);
  }
}

at::Tensor wrap_result(
    const at::Tensor& t, const DeviceMesh& mesh, const Arguments& arguments,
    const std::string& call) {
  TORCH_CHECK_NOT_IMPLEMENTED(
      t.layout() == at::kStrided, call, ": the result is ", t.layout(),
      ", and sharded tensors are strided; apply the operator to "
      "full_tensor() or to_local()");
  at::Tensor result = wrap_replicated(t, mesh, arguments.copy);
  if (arguments.viewed.defined()) {
    follow_source(result, arguments.viewed);
  }
  return result;
}

}  // namespace

Placements fitting_placements(const DTensorSpec& old, int64_t ndim) {
  Placements placements = old.placements();
  for (Placement& p : placements) {
    const bool fits =
        !p.is_shard() ||
        (p.kind() != Placement::Kind::kRaggedShard && p.dim() < ndim);
    if (!fits) {
      p = Replicate();
    }
  }
  return placements;
}

void add_replicated_moves(
    const OpCall& call, const OpTraits& traits, MoveList& list) {
  for (size_t i = 0; i < call.size(); ++i) {
    const Use use = use_of(call, traits, i);
    for_each_tensor(call.argument(i), [&](const at::Tensor& t) {
      use.written || use.viewed ? list.whole(i, t) : list.value(i, t);
    });
  }
}

void run_replicated(const OpCall& call, const OpTraits& traits) {
  const DeviceMesh mesh = *call.mesh();
  const std::string text = call.op().operator_name().name;
  const Arguments arguments = gather_arguments(call, traits);
  call.op().callBoxed(call.stack());
  std::vector<at::Tensor> written;
  for (const Written& w : arguments.written) {
    cut_back(w, text);
    written.push_back(w.tensor);
  }
  call.map_results(written, [&](const at::Tensor& t) {
    return wrap_result(t, mesh, arguments, text);
  });
}

}  // namespace tessera::detail
