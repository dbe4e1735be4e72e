#include <tensor/move/group_plan.h>

#include <algorithm>

#include <c10/util/Exception.h>
#include <c10/util/accumulate.h>
#include <tensor/move/prepared_plan.h>
#include <tensor/state/describe_call.h>
#include <tessera/layout/notation.h>

namespace tessera::detail::inline tensor_layer {

namespace {

StepKind step_kind(GroupMoveKind kind) {
  switch (kind) {
    case GroupMoveKind::kAllGather:
      return StepKind::kAllGather;
    case GroupMoveKind::kReduceScatter:
      return StepKind::kReduceScatter;
    case GroupMoveKind::kAllReduce:
      return StepKind::kAllReduce;
  }
  return StepKind::kExchange;
}

std::string label_of(
    const std::vector<GroupItem>& items, const std::string& names) {
  std::string text = names;
  for (const GroupItem& item : items) {
    text.append(text.empty() ? "" : " ")
        .append(dtype_name(item.from->dtype()))
        .append(shape_to_string(item.from->shape()));
  }
  return text;
}

// The runs of one item in a buffer of its own, one after another by rank.
std::vector<int64_t> begins_of(const std::vector<int64_t>& counts) {
  std::vector<int64_t> begins{0};
  for (const int64_t count : counts) {
    begins.push_back(begins.back() + count);
  }
  return begins;
}

// Returns the group rank to whose run an offset in that buffer belongs.
size_t rank_at(const std::vector<int64_t>& begins, int64_t offset) {
  const auto next = std::upper_bound(begins.begin(), begins.end(), offset);
  return static_cast<size_t>(next - begins.begin()) - 1;
}

}  // namespace

std::shared_ptr<const GroupPlan> GroupPlan::make(
    GroupMoveKind kind, int64_t mesh_dim, std::vector<GroupItem> items,
    c10::ScalarType sent_dtype, const std::string& names) {
  return std::shared_ptr<const GroupPlan>(
      new GroupPlan(kind, mesh_dim, std::move(items), sent_dtype, names));
}

GroupPlan::GroupPlan(
    GroupMoveKind kind, int64_t mesh_dim, std::vector<GroupItem> items,
    c10::ScalarType sent_dtype, const std::string& names)
    : kind_(kind),
      mesh_dim_(mesh_dim),
      items_(std::move(items)),
      sent_dtype_(sent_dtype),
      label_(label_of(items_, names)) {
  check();
  if (!items_.empty() && items_[0].from->has_shard()) {
    prepare();
  }
}

ReduceOp GroupPlan::reduce_op() const {
  return items_.at(0)
      .from->placements()[static_cast<size_t>(mesh_dim_)]
      .reduce_op();
}

void GroupPlan::check() const {
  for (const GroupItem& item : items_) {
    check(item);
    TORCH_CHECK_VALUE(
        item.from->mesh() == items_[0].from->mesh(),
        "a group of moves: all tensors must be on one mesh; got ",
        to_string(*items_[0].from), " and ", to_string(*item.from));
    TORCH_CHECK_VALUE(
        kind_ == GroupMoveKind::kAllGather ||
            item.from->placements()[static_cast<size_t>(mesh_dim_)]
                    .reduce_op() == reduce_op(),
        "a group of moves: all tensors must be reduced alike; got ",
        to_string(*items_[0].from), " and ", to_string(*item.from));
  }
}

void GroupPlan::check(const GroupItem& item) const {
  const DTensorSpec& from = *item.from;
  const DTensorSpec& to = *item.to;
  TORCH_CHECK_VALUE(
      mesh_dim_ >= 0 && mesh_dim_ < from.mesh().ndim() &&
          from.mesh() == to.mesh() && from.shape() == to.shape(),
      "a group of moves: both sides must be of one shape on one mesh; got ",
      to_string(from), " and ", to_string(to), ", mesh dim ", mesh_dim_);
  const auto m = static_cast<size_t>(mesh_dim_);
  const Placement& before = from.placements()[m];
  const Placement& after = to.placements()[m];
  const bool gathers = kind_ == GroupMoveKind::kAllGather;
  const bool scatters = kind_ == GroupMoveKind::kReduceScatter;
  const bool fits = (gathers ? before.is_shard() : before.is_partial()) &&
                    (scatters ? after.is_shard() : after.is_replicate());
  // A cut that another one follows does not leave each rank one part of what
  // the group holds together.
  const auto is_innermost = [&](const DTensorSpec& spec) {
    const Placement& p = spec.placements()[m];
    return !p.is_shard() || spec.layout().cuts(p.dim()).back() == mesh_dim_;
  };
  // The side without a cut on this mesh dim follows from the other one.
  Placements others = scatters ? to.placements() : from.placements();
  others[m] = scatters ? before : after;
  TORCH_CHECK_VALUE(
      fits && is_innermost(from) && is_innermost(to) &&
          Layout(to.shape(), to.mesh().mesh_shape(), others) ==
              (scatters ? from : to).layout(),
      "a group of moves: one ", to_string(step_kind(kind_)), " along mesh dim ",
      mesh_dim_, " must lead from one side to the other; got ", to_string(from),
      " and ", to_string(to), "; redistribute() the other mesh dims before");
}

void GroupPlan::prepare() {
  const auto size = static_cast<size_t>(items_[0].from->mesh().size(mesh_dim_));
  const bool gathers = kind_ == GroupMoveKind::kAllGather;
  std::vector<PreparedStep> steps;
  std::vector<Step> of;  // outlives them
  of.reserve(items_.size());
  counts_.assign(kind_ == GroupMoveKind::kAllReduce ? 0 : size, 0);
  for (const GroupItem& item : items_) {
    of.push_back(
        {.kind = step_kind(kind_),
         .mesh_dims = {mesh_dim_},
         .before = item.from->layout(),
         .after = item.to->layout()});
    steps.push_back(prepare_step(of.back(), item.from->mesh()));
    const TransferPlan& transfer = steps.back().transfer;
    const auto& counts = gathers ? transfer.received : transfer.sent;
    for (size_t r = 0; r < counts_.size(); ++r) {
      counts_[r] += counts[r];
    }
  }
  group_ = steps[0].group;
  // Where the next item's run of each rank begins in the group's buffer.
  std::vector<int64_t> next = begins_of(counts_);
  for (size_t i = 0; i < items_.size(); ++i) {
    const TransferPlan& transfer = steps[i].transfer;
    const auto& counts = gathers ? transfer.received : transfer.sent;
    const std::vector<int64_t> begins = begins_of(counts);
    Transfer own{
        .operand_numel = c10::multiply_integers(items_[i].from->local_shape()),
        .result_numel = c10::multiply_integers(items_[i].to->local_shape())};
    own.direct.resize(gathers ? size : 1);
    for (StridedCopy copy : gathers ? transfer.unpack : transfer.pack) {
      int64_t& in_run = gathers ? copy.from : copy.to;
      const size_t r = rank_at(begins, in_run);
      in_run -= begins[r];
      if (gathers) {
        own.direct[r].push_back(copy);
      } else if (static_cast<int64_t>(r) == group_.rank()) {
        own.direct[0].push_back(copy);
      }
      in_run += next[r];
      own.copies.push_back(std::move(copy));
    }
    transfers_.push_back(std::move(own));
    for (size_t r = 0; r < counts.size(); ++r) {
      next[r] += counts[r];
    }
  }
}

}  // namespace tessera::detail::inline tensor_layer
