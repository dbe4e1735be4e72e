#include <tensor/move/group_plan.h>

#include <algorithm>

#include <c10/util/Exception.h>
#include <comm/direct.h>
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

// Returns the ranks at which spans begin, of the items or of this rank, then
// the number of ranks.
std::vector<int64_t> bounds_of(
    const std::vector<std::vector<PartSpan>>& parts, int64_t me) {
  std::vector<int64_t> bounds = {me, me + 1};
  for (const auto& spans : parts) {
    for (const PartSpan& span : spans) {
      bounds.push_back(span.first);
      bounds.push_back(span.last);
    }
  }
  std::sort(bounds.begin(), bounds.end());
  bounds.erase(std::unique(bounds.begin(), bounds.end()), bounds.end());
  return bounds;
}

const PartSpan& span_at(const std::vector<PartSpan>& spans, int64_t rank) {
  return *std::partition_point(
      spans.begin(), spans.end(),
      [rank](const PartSpan& span) { return span.last <= rank; });
}

// The copies of `rank`, the part in a buffer of its own.
StridedCopies copies_of(const PartSpan& span, int64_t rank, PartSide side) {
  StridedCopies copies = span.copies;
  for (StridedCopy& copy : copies) {
    copy.*tensor_offset(side) += (rank - span.first) * span.step;
  }
  return copies;
}

// Repeats copies for `count` ranks, whose runs are `in_run` elements apart.
void repeat(
    StridedCopies& copies, int64_t count, int64_t in_tensor, int64_t in_run,
    PartSide side) {
  if (count == 1) {
    return;
  }
  const bool to_tensor = side == PartSide::kToTensor;
  for (StridedCopy& copy : copies) {
    copy.sizes.insert(copy.sizes.begin(), count);
    copy.from_strides.insert(
        copy.from_strides.begin(), to_tensor ? in_run : in_tensor);
    copy.to_strides.insert(
        copy.to_strides.begin(), to_tensor ? in_tensor : in_run);
  }
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

std::vector<int64_t> GroupPlan::counts() const {
  std::vector<int64_t> counts;
  for (const RunSpan& run : runs_) {
    counts.insert(
        counts.end(), static_cast<size_t>(run.last - run.first), run.count);
  }
  return counts;
}

void GroupPlan::prepare() {
  const DeviceMesh& mesh = items_[0].from->mesh();
  group_ = mesh.communicator_over({mesh_dim_});
  transfers_.resize(items_.size());
  if (kind_ == GroupMoveKind::kAllReduce) {
    return;
  }
  const bool gathers = kind_ == GroupMoveKind::kAllGather;
  const PartSide side = gathers ? PartSide::kToTensor : PartSide::kFromTensor;
  std::vector<std::vector<PartSpan>> parts;
  for (const GroupItem& item : items_) {
    const Layout& from = item.from->layout();
    const Layout& to = item.to->layout();
    parts.push_back(part_spans(
        gathers ? from : to, gathers ? to : from, mesh_dim_, *mesh.coordinate(),
        side));
  }
  lay_out(parts, side);
  if (shares_memory(group_)) {
    read_directly(parts, side);
  }
}

void GroupPlan::lay_out(
    const std::vector<std::vector<PartSpan>>& parts, PartSide side) {
  const int64_t me = group_.rank();
  const std::vector<int64_t> bounds = bounds_of(parts, me);
  for (size_t b = 0; b + 1 < bounds.size(); ++b) {
    RunSpan run{bounds[b], bounds[b + 1], 0};
    for (const auto& spans : parts) {
      run.count += span_at(spans, run.first).numel;
    }
    int64_t begin = 0;  // of an item in the first run
    for (size_t i = 0; i < parts.size(); ++i) {
      const PartSpan& span = span_at(parts[i], run.first);
      StridedCopies copies = copies_of(span, run.first, side);
      if (run.first == me) {
        transfers_[i].own = std::move(copies);
      } else {
        repeat(copies, run.last - run.first, span.step, run.count, side);
        for (StridedCopy& copy : copies) {
          copy.*part_offset(side) += other_count_ + begin;
          transfers_[i].copies.push_back(std::move(copy));
        }
      }
      begin += span.numel;
    }
    (run.first == me ? own_count_ : other_count_) +=
        run.count * (run.last - run.first);
    runs_.push_back(run);
  }
}

void GroupPlan::read_directly(
    const std::vector<std::vector<PartSpan>>& parts, PartSide side) {
  for (size_t i = 0; i < parts.size(); ++i) {
    Transfer& transfer = transfers_[i];
    if (kind_ == GroupMoveKind::kReduceScatter) {
      transfer.direct = {transfer.own};
      continue;
    }
    for (const PartSpan& span : parts[i]) {
      for (int64_t r = span.first; r < span.last; ++r) {
        transfer.direct.push_back(copies_of(span, r, side));
      }
    }
  }
}

}  // namespace tessera::detail::inline tensor_layer
