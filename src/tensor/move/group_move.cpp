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
#include <comm/others.h>
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
    moving_.make_room();
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

  // One run goes out, one comes in; a rank's own is in neither.
  void start_packed(Operands later) {
    const Communicator& group = plan_.group();
    switch (plan_.kind()) {
      case GroupMoveKind::kAllGather: {
        const at::Tensor sent = later == Operands::kStay && is_one_run()
                                    ? operands_[0]
                                    : in_one_run();
        keep_own(sent, later);
        moving_.run_ = new_run(plan_.other_count());
        moving_.work_ =
            all_gather_others(group, moving_.run_, sent, plan_.counts());
        return;
      }
      case GroupMoveKind::kReduceScatter:
        moving_.run_ = new_run(plan_.own_count());
        fill_own(moving_.run_);
        if (moving_.results_.empty()) {
          make_results_of(moving_.run_);
        }
        moving_.work_ = reduce_scatter_others(
            group, moving_.run_, by_rank(),
            new_run((group.size() - 1) * plan_.own_count()), plan_.counts(),
            plan_.reduce_op());
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

  bool is_one_run() const {
    return operands_.size() == 1 && operands_[0].is_contiguous() &&
           !operands_[0].is_conj() && !operands_[0].is_neg() &&
           operands_[0].scalar_type() == plan_.sent_dtype();
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

  // Results that lie as on the wire are parts of the run, with histories of
  // their own.
  void make_results_of(const at::Tensor& run) const {
    int64_t begin = 0;
    for (const GroupItem& item : plan_.items()) {
      const std::vector<int64_t> shape = item.to->local_shape();
      const std::vector<int64_t> strides = contiguous_strides(shape);
      if (item.to->dtype() == plan_.sent_dtype() &&
          strides_of_shard(*item.to) == strides) {
        at::Tensor part = at::empty({0}, run.options());
        part.set_(run.storage(), begin, shape, strides);
        moving_.results_.push_back(std::move(part));
      } else {
        moving_.results_.push_back(new_result(*item.to, run.device()));
      }
      begin += c10::multiply_integers(shape);
    }
  }

  // The runs that the other ranks are to reduce, in rank order.
  at::Tensor by_rank() const {
    at::Tensor run = new_run(plan_.other_count());
    for (size_t i = 0; i < operands_.size(); ++i) {
      run_copies(
          plan_.transfers()[i].copies,
          row_major(operands_[i], plan_.sent_dtype()), 0, run, 0);
    }
    return run;
  }

  // This rank's addends of what it reduces.
  void fill_own(const at::Tensor& run) const {
    int64_t begin = 0;
    for (size_t i = 0; i < operands_.size(); ++i) {
      const StridedCopies& own = plan_.transfers()[i].own;
      run_copies(
          own, row_major(operands_[i], plan_.sent_dtype()), 0, run, begin);
      begin += total_numel(own);
    }
  }

  // Shards that stay are read again when all the others have arrived.
  void keep_own(const at::Tensor& sent, Operands later) {
    if (later == Operands::kStay) {
      moving_.own_ = operands_;
      return;
    }
    for_each_in(sent, operands_, [&](const at::Tensor& part, size_t) {
      moving_.own_.push_back(part);
    });
  }

  const GroupPlan& plan_;
  const std::vector<at::Tensor>& operands_;
  MovingGroup& moving_;
};

MovingGroup::MovingGroup(
    std::shared_ptr<const GroupPlan> plan, std::vector<at::Tensor> results,
    std::function<void()> make_room)
    : plan_(std::move(plan)),
      results_(std::move(results)),
      make_room_(std::move(make_room)) {
  complete_ = !plan_->group().defined();
  if (complete_) {
    this->make_room();
  }
}

void MovingGroup::make_room() {
  if (make_room_) {
    std::exchange(make_room_, {})();
  }
}

int64_t MovingGroup::buffered_bytes() const {
  return run_.defined() ? static_cast<int64_t>(run_.nbytes()) : 0;
}

// Returns result i, or what becomes it.
at::Tensor MovingGroup::landing(size_t i) const {
  if (!run_.defined()) {
    return landings_[i];
  }
  const at::Tensor landing = landing_for(results_[i], plan_->sent_dtype());
  const GroupPlan::Transfer& transfer = plan_->transfers()[i];
  run_copies(transfer.copies, run_, 0, landing, 0);
  run_copies(
      transfer.own, row_major(own_[i], plan_->sent_dtype()), 0, landing, 0);
  return landing;
}

void MovingGroup::unpack() const {
  if (run_.defined() && plan_->kind() != GroupMoveKind::kAllGather) {
    for_each_in(run_, results_, [&](const at::Tensor& part, size_t i) {
      if (!part.is_alias_of(results_[i])) {
        results_[i].copy_(part);
      }
    });
    return;
  }
  for (size_t i = 0; i < results_.size(); ++i) {
    const at::Tensor landed = landing(i);
    if (!landed.is_same(results_[i])) {
      results_[i].copy_(landed);
    }
  }
}

void MovingGroup::wait_if_done() {
  if (!complete_ && !error_ && work_.done()) {
    wait();
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
    work_ = Work();  // what was sent goes before results come
    const BelowAutograd below_autograd;
    make_room();
    unpack();
  } catch (...) {
    error_ = std::current_exception();
    throw;
  }
  complete_ = true;
  run_.reset();
  own_.clear();
  landings_.clear();
}

std::shared_ptr<MovingGroup> start_group(
    const std::shared_ptr<const GroupPlan>& plan,
    const std::vector<at::Tensor>& operands, std::vector<at::Tensor> results,
    Operands later, std::function<void()> make_room) {
  const auto& items = plan->items();
  TORCH_INTERNAL_ASSERT(
      operands.size() == items.size() &&
      (results.empty() || results.size() == items.size()));
  const BelowAutograd below_autograd;
  const bool direct = later == Operands::kStay && !operands.empty() &&
                      operands[0].is_cpu() && plan->group().defined() &&
                      shares_memory(plan->group());
  const bool in_run = plan->kind() == GroupMoveKind::kReduceScatter &&
                      plan->group().defined() && !direct;
  for (size_t i = results.size(); i < items.size() && !in_run; ++i) {
    results.push_back(new_result(*items[i].to, operands[i].device()));
  }
  auto moving = std::make_shared<MovingGroup>(
      plan, std::move(results), std::move(make_room));
  if (moving->is_complete()) {
    return moving;
  }
  const JoinedTensors joined(plan->label());
  const CallLabel label(plan.get(), fill_in, std::nullopt);
  GroupStart start(*plan, operands, *moving);
  direct ? start.start_direct() : start.start_packed(later);
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
