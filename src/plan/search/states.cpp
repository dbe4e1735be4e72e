#include "plan/search/states.h"

#include <algorithm>
#include <set>

#include "layout/cut.h"

namespace tessera::detail::inline plan_layer {
namespace {

// Searching every placement and order is quick up to about this many states.
constexpr double kWideStates = 1500;
constexpr size_t kTableSize = 32;

double count_states(int64_t mesh_dims, size_t placements) {
  double count = 1;
  for (int64_t m = 1; m <= mesh_dims; ++m) {
    count *= static_cast<double>(placements) * static_cast<double>(m);
  }
  return count;
}

}  // namespace

States::States(const Layout& source, const Layout& target)
    : shape_(target.shape()),
      mesh_(target.mesh()),
      mesh_dims_(target.mesh().ndim()),
      sizes_(target.mesh().sizes()),
      lengths_(target.shape().size()),
      cuts_by_dim_(target.shape().size()) {
  number(Replicate());
  source_ = pack(source);
  target_ = pack(target);
  choose_cuts(source, target);
}

uint8_t States::number(const Placement& placement) {
  const Placement plain =
      placement.is_shard() ? placement.with_order(-1) : placement;
  const auto at = std::find(table_.begin(), table_.end(), plain);
  const auto result = static_cast<uint8_t>(at - table_.begin());
  if (at == table_.end()) {
    table_.push_back(plain);
    cut_dims_.push_back(
        plain.is_shard()     ? plain.dim()
        : plain.is_partial() ? kPartial
                             : kReplicate);
  }
  return result;
}

State States::pack(const Layout& layout) {
  State s = 0;
  for (int64_t m = 0; m < mesh_dims_; ++m) {
    const Placement& p = layout.placements()[static_cast<size_t>(m)];
    State order = 0;
    if (p.is_shard()) {
      const auto& cuts = layout.cuts(p.dim());
      order = static_cast<State>(
          std::find(cuts.begin(), cuts.end(), m) - cuts.begin());
    }
    s |= (State{number(p)} | order << 5) << (8 * m);
  }
  return s;
}

void States::choose_cuts(const Layout& source, const Layout& target) {
  // R, one Shard per tensor dim, and what source and target have beside.
  size_t placements = table_.size();
  for (size_t d = 0; d < shape_.size(); ++d) {
    const Placement plain = Shard(static_cast<int64_t>(d));
    placements +=
        std::find(table_.begin(), table_.end(), plain) == table_.end() ? 1 : 0;
  }
  wide_ = placements <= kTableSize &&
          count_states(mesh_dims_, placements) <= kWideStates;
  const auto longest = std::max_element(shape_.begin(), shape_.end());
  for (int64_t m = 0; m < mesh_dims_; ++m) {
    std::set<uint8_t> cuts;
    const auto at = static_cast<size_t>(m);
    for (const Layout* layout : {&source, &target}) {
      const Placement& p = layout->placements()[at];
      if (p.is_shard() && (wide_ || layout == &target)) {
        cuts.insert(number(p));
      }
    }
    for (size_t d = 0; wide_ && d < shape_.size(); ++d) {
      cuts.insert(number(Shard(static_cast<int64_t>(d))));
    }
    if (source.placements()[at].is_partial() && longest != shape_.end()) {
      cuts.insert(number(Shard(longest - shape_.begin())));
    }
    cuts_.emplace_back(cuts.begin(), cuts.end());
  }
}

State States::cuts_of(State s, int64_t tensor_dim) const {
  State result = 0;
  for (int64_t m = 0; m < mesh_dims_; ++m) {
    if (cut_dim(s, m) == tensor_dim) {
      result |= s & (State{255} << (8 * m));
    }
  }
  return result;
}

bool States::is_innermost(State s, int64_t m) const {
  const int64_t d = cut_dim(s, m);
  if (d < 0) {
    return false;
  }
  for (int64_t other = 0; other < mesh_dims_; ++other) {
    if (cut_dim(s, other) == d && order(s, other) > order(s, m)) {
      return false;
    }
  }
  return true;
}

std::optional<State> States::partial(State s, int64_t m) const {
  if (!is_partial(target_, m)) {
    return std::nullopt;
  }
  const Placement& wanted = placement(target_, m);
  const auto adds = [](const Placement& p) {
    return p.reduce_op() == ReduceOp::kSum || p.reduce_op() == ReduceOp::kAvg;
  };
  for (int64_t other = 0; other < mesh_dims_; ++other) {
    const Placement& p = placement(s, other);
    if (p.is_partial() && p != wanted && !(adds(p) && adds(wanted))) {
      return std::nullopt;
    }
  }
  return s | State{index(target_, m)} << (8 * m);
}

std::optional<State> States::cut(State s, int64_t m, uint8_t cut) const {
  const Placement& p = table_[cut];
  const State present = cuts_of(s, p.dim());
  State order = 0;
  for (int64_t other = 0; other < mesh_dims_; ++other) {
    order += byte(present, other) != 0 ? 1 : 0;
  }
  if (!p.fits_any_size()) {
    const Lengths& before = lengths(present, p.dim());
    if (!before.equal || before.largest != p.begins().back()) {
      return std::nullopt;
    }
  }
  const State result = s | (State{cut} | order << 5) << (8 * m);
  if (!wide_ && !is_on_the_way(result, m)) {
    return std::nullopt;
  }
  return result;
}

// The cuts of the tensor dim that m cuts begin the target's, or m is a
// temporary cut and follows cuts of earlier mesh dims only.
bool States::is_on_the_way(State s, int64_t m) const {
  const int64_t d = cut_dim(s, m);
  bool begins_target = true;
  bool in_mesh_order = is_partial(source_, m);
  for (int64_t other = 0; other < mesh_dims_; ++other) {
    if (cut_dim(s, other) == d) {
      begins_target = begins_target && byte(s, other) == byte(target_, other);
      in_mesh_order = in_mesh_order && other <= m;
    }
  }
  return begins_target || in_mesh_order;
}

int64_t States::numel(State s) const {
  std::fill(cuts_by_dim_.begin(), cuts_by_dim_.end(), 0);
  for (int64_t m = 0; m < mesh_dims_; ++m) {
    if (const int64_t d = cut_dim(s, m); d >= 0) {
      cuts_by_dim_[static_cast<size_t>(d)] |= s & (State{255} << (8 * m));
    }
  }
  int64_t product = 1;
  for (size_t d = 0; d < shape_.size(); ++d) {
    const State cuts = cuts_by_dim_[d];
    product *=
        cuts == 0 ? shape_[d] : lengths(cuts, static_cast<int64_t>(d)).largest;
  }
  return product;
}

const States::Lengths& States::lengths(State cuts, int64_t tensor_dim) const {
  auto& known = lengths_[static_cast<size_t>(tensor_dim)];
  const auto at = known.find(cuts);
  if (at != known.end()) {
    return at->second;
  }
  return known.emplace(cuts, measure(cuts, tensor_dim)).first->second;
}

// Cuts the set of lengths that occur, in their order.
States::Lengths States::measure(State cuts, int64_t tensor_dim) const {
  std::vector<int64_t> by_order(static_cast<size_t>(mesh_dims_), -1);
  for (int64_t m = 0; m < mesh_dims_; ++m) {
    if (byte(cuts, m) != 0) {
      by_order[static_cast<size_t>(order(cuts, m))] = m;
    }
  }
  std::set<int64_t> lengths{shape_[static_cast<size_t>(tensor_dim)]};
  for (const int64_t m : by_order) {
    if (m < 0) {
      break;
    }
    const int64_t parts = sizes_[static_cast<size_t>(m)];
    const Cut rule(placement(cuts, m), parts);
    std::set<int64_t> shorter;
    for (const int64_t length : lengths) {
      for (int64_t r = 0; r < parts; ++r) {
        shorter.insert(rule.part_length(length, r));
      }
    }
    lengths = std::move(shorter);
  }
  return {*lengths.rbegin(), lengths.size() == 1};
}

Layout States::layout(State s) const {
  Placements placements;
  for (int64_t m = 0; m < mesh_dims_; ++m) {
    const Placement& p = placement(s, m);
    placements.push_back(p.is_shard() ? p.with_order(order(s, m)) : p);
  }
  return Layout(shape_, mesh_, std::move(placements));
}

}  // namespace tessera::detail::inline plan_layer
