#include <tensor/move/group_move.h>

#include <utility>

#include <ATen/core/LegacyTypeDispatch.h>
#include <ATen/ops/empty.h>
#include <ATen/ops/empty_strided.h>
#include <c10/core/GradMode.h>
#include <c10/util/StringUtil.h>
#include <c10/util/accumulate.h>
#include <comm/direct.h>
#include <comm/log/call_cause.h>
#include <tensor/impl/wrap.h>
#include <tensor/move/cpu_block_cache.h>
#include <tensor/move/redistribute_shard.h>
#include <tensor/state/strides.h>

namespace tessera::detail::inline tensor_layer {

namespace {

// What is written is filled for the first time, or filled again with what it
// held: nothing that autograd should hear of.
struct BelowAutograd {
  const c10::AutoGradMode no_grad{false};
  const at::AutoDispatchBelowADInplaceOrView below;
};

const char* name_of(GroupMoveKind kind) {
  return kind == GroupMoveKind::kAllGather       ? "all_gather"
         : kind == GroupMoveKind::kReduceScatter ? "reduce_scatter"
                                                 : "all_reduce";
}

// The placement on the mesh dim; "..." where items differ in it.
std::string placement_of(const GroupPlan& plan, SpecPtr GroupItem::*side) {
  const auto m = static_cast<size_t>(plan.mesh_dim());
  std::string text;
  for (const GroupItem& item : plan.items()) {
    const std::string one = to_string((item.*side)->placements()[m]);
    if (!text.empty() && text != one) {
      return "...";
    }
    text = one;
  }
  return text;
}

// Names the group to the logs: "all_gather dp: S(0) -> R, 12 tensors".
void fill_in(const void* group, CommLogEntry& entry) {
  const auto& plan = *static_cast<const GroupPlan*>(group);
  const MeshShape& mesh = plan.items()[0].from->mesh().mesh_shape();
  entry.kind = name_of(plan.kind());
  entry.dims = {plan.mesh_dim()};
  entry.mesh_dims = mesh.names().empty()
                        ? std::to_string(plan.mesh_dim())
                        : mesh.names()[static_cast<size_t>(plan.mesh_dim())];
  entry.from = placement_of(plan, &GroupItem::from);
  entry.to = placement_of(plan, &GroupItem::to);
  const size_t count = plan.items().size();
  entry.text = c10::str(
      entry.kind, " ", entry.mesh_dims, ": ", entry.from, " -> ", entry.to,
      ", ", count, count == 1 ? " tensor" : " tensors");
}

at::Tensor new_result(const DTensorSpec& spec, c10::Device device) {
  const auto options = at::TensorOptions(spec.dtype()).device(device);
  if (!spec.has_shard()) {
    return at::empty({0}, options);
  }
  const std::vector<int64_t> strides = strides_of_shard(spec);
  return strides == contiguous_strides(spec.local_shape())
             ? empty_cached(spec.local_shape(), options)
             : at::empty_strided(spec.local_shape(), strides, options);
}

at::Tensor row_major(const at::Tensor& t, c10::ScalarType dtype) {
  return t.resolve_conj().resolve_neg().to(dtype).contiguous();
}

// Returns the result, or what becomes it: row-major, as on the wire.
at::Tensor landing_for(const at::Tensor& result, c10::ScalarType sent_dtype) {
  return result.is_contiguous() && result.scalar_type() == sent_dtype
             ? result
             : empty_cached(result.sizes(), result.options().dtype(sent_dtype));
}

// Calls f(tensor of this shape in the run, number) for tensors that lie in a
// run one after another.
template <class F>
void for_each_in(
    const at::Tensor& run, const std::vector<at::Tensor>& like, const F& f) {
  int64_t begin = 0;
  for (size_t i = 0; i < like.size(); ++i) {
    const int64_t count = like[i].numel();
    f(run.narrow(0, begin, count).view(like[i].sizes()), i);
    begin += count;
  }
}

}  // namespace

// Starts the call of one group.
class GroupStart {
 public:
  GroupStart(
      const GroupPlan& plan, const std::vector<at::Tensor>& operands,
      MovingGroup& moving)
      : plan_(plan), operands_(operands), moving_(moving) {}

  // Without buffers: ranks read each other's operands.
  void start_direct() {
    auto list = std::make_shared<TensorList>();
    for (size_t i = 0; i < operands_.size(); ++i) {
      list->inputs.push_back(row_major(operands_[i], plan_.sent_dtype()));
      list->outputs.push_back(
          landing_for(moving_.results_[i], plan_.sent_dtype()));
      list->copies.push_back(&plan_.transfers()[i].direct);
    }
    moving_.landings_ = list->outputs;
    const Communicator& group = plan_.group();
    switch (plan_.kind()) {
      case GroupMoveKind::kAllGather:
        moving_.work_ = all_gather_list(group, list, plan_.counts());
        return;
      case GroupMoveKind::kReduceScatter:
        moving_.work_ =
            reduce_scatter_list(group, list, plan_.counts(), plan_.reduce_op());
        return;
      case GroupMoveKind::kAllReduce:
        moving_.work_ = all_reduce_list(group, list, plan_.reduce_op());
    }
  }

  // One run goes out, one comes in.
  void start_packed() {
    const Communicator& group = plan_.group();
    const auto& counts = plan_.counts();
    switch (plan_.kind()) {
      case GroupMoveKind::kAllGather:
        moving_.run_ = new_run(c10::sum_integers(counts));
        moving_.work_ =
            group.all_gather_async(moving_.run_, in_one_run(), counts);
        return;
      case GroupMoveKind::kReduceScatter:
        moving_.run_ = new_run(counts[static_cast<size_t>(group.rank())]);
        moving_.work_ = group.reduce_scatter_async(
            moving_.run_, by_rank(), counts, plan_.reduce_op());
        return;
      case GroupMoveKind::kAllReduce:
        moving_.run_ = in_one_run();
        moving_.work_ = group.all_reduce_async(moving_.run_, plan_.reduce_op());
    }
  }

 private:
  at::Tensor new_run(int64_t numel) const {
    return empty_cached(
        {numel}, operands_[0].options().dtype(plan_.sent_dtype()));
  }

  at::Tensor in_one_run() const {
    int64_t numel = 0;
    for (const at::Tensor& operand : operands_) {
      numel += operand.numel();
    }
    at::Tensor run = new_run(numel);
    for_each_in(run, operands_, [&](const at::Tensor& part, size_t i) {
      part.copy_(operands_[i]);
    });
    return run;
  }

  // The run that each rank is to reduce, in rank order.
  at::Tensor by_rank() const {
    at::Tensor run = new_run(c10::sum_integers(plan_.counts()));
    for (size_t i = 0; i < operands_.size(); ++i) {
      run_copies(
          plan_.transfers()[i].copies,
          row_major(operands_[i], plan_.sent_dtype()), 0, run, 0);
    }
    return run;
  }

  const GroupPlan& plan_;
  const std::vector<at::Tensor>& operands_;
  MovingGroup& moving_;
};

MovingGroup::MovingGroup(
    std::shared_ptr<const GroupPlan> plan, std::vector<at::Tensor> results)
    : plan_(std::move(plan)), results_(std::move(results)) {
  complete_ = !plan_->group().defined();
}

void MovingGroup::unpack() const {
  if (run_.defined() && plan_->kind() != GroupMoveKind::kAllGather) {
    for_each_in(run_, results_, [&](const at::Tensor& part, size_t i) {
      results_[i].copy_(part);
    });
    return;
  }
  for (size_t i = 0; i < results_.size(); ++i) {
    at::Tensor landing = run_.defined()
                             ? landing_for(results_[i], plan_->sent_dtype())
                             : landings_[i];
    if (run_.defined()) {
      run_copies(plan_->transfers()[i].copies, run_, 0, landing, 0);
    }
    if (!landing.is_same(results_[i])) {
      results_[i].copy_(landing);
    }
  }
}

void MovingGroup::wait() {
  if (error_) {
    std::rethrow_exception(error_);
  }
  if (complete_) {
    return;
  }
  try {
    work_.wait();
    const BelowAutograd below_autograd;
    unpack();
  } catch (...) {
    error_ = std::current_exception();
    throw;
  }
  complete_ = true;
  run_.reset();
  landings_.clear();
}

std::shared_ptr<MovingGroup> start_group(
    const std::shared_ptr<const GroupPlan>& plan,
    const std::vector<at::Tensor>& operands, std::vector<at::Tensor> results,
    Operands later) {
  const auto& items = plan->items();
  TORCH_INTERNAL_ASSERT(
      operands.size() == items.size() &&
      (results.empty() || results.size() == items.size()));
  const BelowAutograd below_autograd;
  for (size_t i = results.size(); i < items.size(); ++i) {
    results.push_back(new_result(*items[i].to, operands[i].device()));
  }
  auto moving = std::make_shared<MovingGroup>(plan, std::move(results));
  if (moving->is_complete()) {
    return moving;
  }
  const JoinedTensors joined(plan->label());
  const CallLabel label(plan.get(), fill_in, std::nullopt);
  GroupStart start(*plan, operands, *moving);
  const bool direct = later == Operands::kStay && operands[0].is_cpu() &&
                      shares_memory(plan->group());
  direct ? start.start_direct() : start.start_packed();
  return moving;
}

std::vector<at::Tensor> wrap_group(const std::shared_ptr<MovingGroup>& moving) {
  std::vector<at::Tensor> tensors;
  const auto& items = moving->items();
  for (size_t i = 0; i < items.size(); ++i) {
    tensors.push_back(wrap(moving->results()[i], items[i].to));
    if (!moving->is_complete()) {
      meta_nowait(tensors.back()).change().pending = moving;
    }
  }
  return tensors;
}

}  // namespace tessera::detail::inline tensor_layer
