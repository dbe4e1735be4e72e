#include <rules/families/view_layout.h>

#include <algorithm>

#include <c10/util/Exception.h>

namespace tessera::detail::inline rules_layer {

std::vector<int64_t> row_major_strides(c10::IntArrayRef shape) {
  std::vector<int64_t> strides(shape.size());
  int64_t step = 1;
  for (size_t d = shape.size(); d-- > 0;) {
    strides[d] = step;
    step *= std::max<int64_t>(shape[d], 1);
  }
  return strides;
}

bool is_copy(const RuleCall& call) {
  constexpr std::string_view kSuffix = "_copy";
  const std::string& name = call.schema().name();
  return name.size() > kSuffix.size() &&
         name.compare(name.size() - kSuffix.size(), kSuffix.size(), kSuffix) ==
             0;
}

ViewMaker::ViewMaker(const RuleCall& call, const MeshShape& mesh)
    : call_(call), mesh_(mesh) {
  const Layout layout(shape(), mesh, *operand().placements);
  placements_ = layout.placements();
  for (int64_t d = 0; d < ndim(); ++d) {
    cuts_.push_back(layout.cuts(d));
  }
  layout_.keeps.assign(placements_.size(), true);
}

std::vector<int64_t> ViewMaker::cuts(int64_t dim) const {
  std::vector<int64_t> kept;
  for (const int64_t m : cuts_[static_cast<size_t>(dim)]) {
    if (layout_.keeps[static_cast<size_t>(m)]) {
      kept.push_back(m);
    }
  }
  return kept;
}

bool ViewMaker::has_shards() const {
  return std::any_of(
      placements_.begin(), placements_.end(),
      [](const Placement& p) { return p.is_shard(); });
}

Layout ViewMaker::layout() const {
  return Layout(shape(), mesh_, placements_);
}

// Turns and ragged lengths count on the other cuts of their dim, so those go
// together.
void ViewMaker::drop(int64_t mesh_dim) {
  Placement& p = placements_[static_cast<size_t>(mesh_dim)];
  if (p.is_shard()) {
    const auto& others = cuts_[static_cast<size_t>(p.dim())];
    const bool depends =
        std::any_of(others.begin(), others.end(), [&](int64_t m) {
          return placements_[static_cast<size_t>(m)].depends_on_others();
        });
    if (depends) {
      drop_shards(p.dim());
      return;
    }
  }
  p = Replicate();
  layout_.keeps[static_cast<size_t>(mesh_dim)] = false;
}

void ViewMaker::drop_shards(int64_t dim) {
  for (const int64_t m : cuts_[static_cast<size_t>(dim)]) {
    placements_[static_cast<size_t>(m)] = Replicate();
    layout_.keeps[static_cast<size_t>(m)] = false;
  }
}

void ViewMaker::keep_partial(const std::vector<ReduceOp>& ops) {
  for (size_t m = 0; m < placements_.size(); ++m) {
    if (placements_[m].is_partial() &&
        std::find(ops.begin(), ops.end(), placements_[m].reduce_op()) ==
            ops.end()) {
      drop(static_cast<int64_t>(m));
    }
  }
}

Placements ViewMaker::mapped(const std::vector<int64_t>& to) {
  for (int64_t d = 0; d < ndim(); ++d) {
    if (to[static_cast<size_t>(d)] == kNoDim) {
      drop_shards(d);
    }
  }
  Placements result = placements_;
  for (Placement& p : result) {
    if (p.is_shard()) {
      p = p.with_dim(to[static_cast<size_t>(p.dim())]);
    }
  }
  return result;
}

void ViewMaker::add(
    std::vector<int64_t> shape, std::vector<int64_t> strides,
    Placements placements, int64_t offset) {
  if (is_copy(call_)) {
    strides = row_major_strides(shape);
  }
  layout_.results.push_back(
      {std::move(shape), std::move(strides), std::move(placements), offset});
}

void ViewMaker::local_argument(std::string_view name, c10::IValue value) {
  const auto index = call_.schema().argumentIndexWithName(name);
  TORCH_INTERNAL_ASSERT(index.has_value());
  layout_.local_arguments.emplace_back(
      static_cast<size_t>(*index), std::move(value));
}

void ViewMaker::local_shape_argument(
    std::string_view name, const std::vector<int64_t>* coordinate) {
  if (coordinate != nullptr && has_shards()) {
    const ViewResult& result = layout_.results[0];
    local_argument(
        name, Layout(result.shape, mesh_, result.placements)
                  .local_shape(*coordinate));
  }
}

}  // namespace tessera::detail::inline rules_layer
