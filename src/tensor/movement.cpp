#include <tensor/movement.h>

#include <algorithm>
#include <limits>

#include <ATen/ops/cat.h>
#include <ATen/ops/empty.h>
#include <ATen/ops/empty_like.h>
#include <ATen/ops/empty_strided.h>
#include <ATen/ops/full_like.h>
#include <ATen/ops/ones_like.h>
#include <ATen/ops/tensor.h>
#include <ATen/ops/zeros_like.h>
#include <c10/util/Exception.h>

namespace tessera::detail {

namespace {

// Takes runs of one dim, in order, as a contiguous tensor of its own.
at::Tensor take_runs(const at::Tensor& from, int64_t dim, const Runs& runs) {
  if (runs.empty()) {
    return from.narrow(dim, 0, 0).clone(at::MemoryFormat::Contiguous);
  }
  std::vector<at::Tensor> pieces;
  pieces.reserve(runs.size());
  for (const Run& run : runs) {
    pieces.push_back(from.narrow(dim, run.begin, run.length()));
  }
  return pieces.size() == 1 ? pieces[0].clone(at::MemoryFormat::Contiguous)
                            : at::cat(pieces, dim).contiguous();
}

// Writes a piece over runs of one dim, in order.
void put_runs(
    const at::Tensor& to, int64_t dim, const Runs& runs,
    const at::Tensor& piece) {
  int64_t position = 0;
  for (const Run& run : runs) {
    to.narrow(dim, run.begin, run.length())
        .copy_(piece.narrow(dim, position, run.length()));
    position += run.length();
  }
}

// What R -> Partial puts on every coordinate but the first: the element that
// changes nothing. -0.0, since 0.0 + -0.0 would lose the sign of -0.0.
at::Tensor neutral_like(const at::Tensor& value, ReduceOp op) {
  if (op == ReduceOp::kProduct) {
    return at::ones_like(value);
  }
  if (value.is_complex()) {
    return at::full_like(value, c10::complex<double>(-0.0, -0.0));
  }
  return value.is_floating_point() ? at::full_like(value, -0.0)
                                   : at::zeros_like(value);
}

at::Tensor replicate_to_partial(
    const at::Tensor& value, ReduceOp op, int64_t coordinate) {
  const bool everywhere =
      op == ReduceOp::kMax || op == ReduceOp::kMin || op == ReduceOp::kAvg;
  return everywhere || coordinate == 0 ? value : neutral_like(value, op);
}

// Tells whether two placements cut alike; turns are in the order of cuts().
bool same_cut(const Placement& a, const Placement& b) {
  return a.with_order(-1) == b.with_order(-1);
}

// A shard on its way: the cuts in force, per tensor dim in order, and the data.
class Mover {
 public:
  Mover(at::Tensor local, const DTensorSpec& source)
      : mesh_(source.mesh()),
        shape_(source.shape()),
        now_(source.placements()),
        local_(std::move(local)) {
    for (int64_t d = 0; d < static_cast<int64_t>(shape_.size()); ++d) {
      cuts_.push_back(source.layout().cuts(d));
    }
  }

  at::Tensor take() { return std::move(local_); }

  void move_to(const Layout& target) {
    const Placements& wanted = target.placements();
    for (size_t m = 0; m < now_.size(); ++m) {
      if (now_[m].is_partial() && now_[m] != wanted[m]) {
        reduce(m);
      }
    }
    for (size_t d = 0; d < cuts_.size(); ++d) {
      const size_t kept = common_cuts(d, target);
      while (cuts_[d].size() > kept) {
        gather(d);
      }
    }
    for (size_t d = 0; d < cuts_.size(); ++d) {
      const auto& order = target.cuts(static_cast<int64_t>(d));
      while (cuts_[d].size() < order.size()) {
        const int64_t m = order[cuts_[d].size()];
        cut(d, m, wanted[static_cast<size_t>(m)]);
      }
    }
    for (size_t m = 0; m < now_.size(); ++m) {
      if (wanted[m].is_partial() && now_[m] != wanted[m]) {
        local_ = replicate_to_partial(
            local_, wanted[m].reduce_op(), coordinate()[m]);
        now_[m] = wanted[m];
      }
    }
  }

 private:
  const std::vector<int64_t>& coordinate() const { return *mesh_.coordinate(); }

  size_t common_cuts(size_t dim, const Layout& target) const {
    const auto& now = cuts_[dim];
    const auto& wanted = target.cuts(static_cast<int64_t>(dim));
    size_t n = 0;
    while (n < now.size() && n < wanted.size() && now[n] == wanted[n] &&
           same_cut(
               now_[static_cast<size_t>(now[n])],
               target.placements()[static_cast<size_t>(now[n])])) {
      ++n;
    }
    return n;
  }

  // Returns the length of a dim at this rank's coordinate under its first
  // `count` cuts.
  int64_t length(size_t dim, size_t count) const {
    int64_t length = shape_[dim];
    for (size_t i = 0; i < count; ++i) {
      const auto m = static_cast<size_t>(cuts_[dim][i]);
      length = total_length(cut_runs(
          now_[m], length, mesh_.size(static_cast<int64_t>(m)),
          coordinate()[m]));
    }
    return length;
  }

  void reduce(size_t mesh_dim) {
    local_ = local_.clone(at::MemoryFormat::Contiguous);
    mesh_.communicator(static_cast<int64_t>(mesh_dim))
        .all_reduce(local_, now_[mesh_dim].reduce_op());
    now_[mesh_dim] = Replicate();
  }

  // Undoes the innermost cut of a tensor dim.
  void gather(size_t dim) {
    const int64_t m = cuts_[dim].back();
    const int64_t parts = mesh_.size(m);
    const Placement cut = now_[static_cast<size_t>(m)];
    const int64_t whole = length(dim, cuts_[dim].size() - 1);
    const auto d = static_cast<int64_t>(dim);
    std::vector<int64_t> counts;
    std::vector<std::vector<int64_t>> shapes;
    std::vector<Runs> runs;
    for (int64_t c = 0; c < parts; ++c) {
      runs.push_back(cut_runs(cut, whole, parts, c));
      shapes.push_back(local_.sizes().vec());
      shapes.back()[dim] = total_length(runs.back());
      counts.push_back(c10::multiply_integers(shapes.back()));
    }
    at::Tensor flat = at::empty({c10::sum_integers(counts)}, local_.options());
    mesh_.communicator(m).all_gather_v(flat, local_, counts);
    std::vector<int64_t> shape = local_.sizes().vec();
    shape[dim] = whole;
    if (d == 0 && cut.kind() != Placement::Kind::kStridedShard) {
      local_ = flat.view(shape);  // rank order is already element order
    } else {
      local_ = at::empty(shape, flat.options());
      int64_t offset = 0;
      for (size_t c = 0; c < runs.size(); ++c) {
        put_runs(
            local_, d, runs[c],
            flat.narrow(0, offset, counts[c]).view(shapes[c]));
        offset += counts[c];
      }
    }
    cuts_[dim].pop_back();
    now_[static_cast<size_t>(m)] = Replicate();
  }

  void cut(size_t dim, int64_t mesh_dim, const Placement& placement) {
    const auto d = static_cast<int64_t>(dim);
    const auto m = static_cast<size_t>(mesh_dim);
    local_ = take_runs(
        local_, d,
        cut_runs(
            placement, local_.size(d), mesh_.size(mesh_dim), coordinate()[m]));
    cuts_[dim].push_back(mesh_dim);
    now_[m] = placement;
  }

  const DeviceMesh& mesh_;
  const std::vector<int64_t>& shape_;
  Placements now_;
  std::vector<std::vector<int64_t>> cuts_;
  at::Tensor local_;
};

std::vector<int64_t> mesh_dims_in_cut_order(const Layout& layout) {
  std::vector<int64_t> order;
  for (int64_t m = 0; m < layout.mesh().ndim(); ++m) {
    if (!layout.placements()[static_cast<size_t>(m)].is_shard()) {
      order.push_back(m);
    }
  }
  for (int64_t d = 0; d < static_cast<int64_t>(layout.shape().size()); ++d) {
    const auto& cuts = layout.cuts(d);
    order.insert(order.end(), cuts.begin(), cuts.end());
  }
  return order;
}

}  // namespace

Placements replicated(const DeviceMesh& mesh) {
  return Placements(static_cast<size_t>(mesh.ndim()), Replicate());
}

at::Tensor move_shard(
    const at::Tensor& local, const DTensorSpec& source,
    const Placements& target) {
  if (!source.has_shard() || source.placements() == target) {
    return local;
  }
  const Layout layout(source.shape(), source.mesh().mesh_shape(), target);
  Mover mover(local, source);
  mover.move_to(layout);
  return mover.take();
}

at::Tensor to_addend(const at::Tensor& value, const DTensorSpec& target) {
  at::Tensor addend = value;
  for (size_t m = 0; m < target.placements().size(); ++m) {
    const Placement& p = target.placements()[m];
    if (p.is_partial()) {
      addend = replicate_to_partial(
          addend, p.reduce_op(), (*target.mesh().coordinate())[m]);
    }
  }
  return addend;
}

at::Tensor cut_shard(const at::Tensor& whole, const DTensorSpec& target) {
  if (!target.has_shard()) {
    return at::empty({0}, whole.options());
  }
  at::Tensor local = whole;
  for (int64_t d = 0; d < whole.dim(); ++d) {
    if (!target.layout().cuts(d).empty()) {
      local = take_runs(
          local, d, target.layout().runs(d, *target.mesh().coordinate()));
    }
  }
  return to_addend(local, target);
}

at::Tensor scatter_shard(
    const at::Tensor& tensor, const DTensorSpec& target, int64_t source) {
  if (!target.has_shard()) {
    return at::empty({0}, tensor.options());
  }
  const DeviceMesh& mesh = target.mesh();
  at::Tensor local = tensor;
  for (int64_t m : mesh_dims_in_cut_order(target.layout())) {
    const Placement& placement = target.placements()[static_cast<size_t>(m)];
    const int64_t mine = (*mesh.coordinate())[static_cast<size_t>(m)];
    const Communicator comm = mesh.communicator(m);
    if (!placement.is_shard()) {
      local = local.clone(at::MemoryFormat::Contiguous);
      comm.broadcast(local, source);
      if (placement.is_partial()) {
        local = replicate_to_partial(local, placement.reduce_op(), mine);
      }
      continue;
    }
    const int64_t d = placement.dim();
    std::vector<int64_t> counts;
    std::vector<at::Tensor> pieces;
    for (int64_t c = 0; c < mesh.size(m); ++c) {
      const Runs runs = cut_runs(placement, local.size(d), mesh.size(m), c);
      std::vector<int64_t> shape = local.sizes().vec();
      shape[static_cast<size_t>(d)] = total_length(runs);
      counts.push_back(c10::multiply_integers(shape));
      if (mine == source) {
        pieces.push_back(take_runs(local, d, runs).view({-1}));
      }
    }
    std::vector<int64_t> shape = local.sizes().vec();
    shape[static_cast<size_t>(d)] =
        total_length(cut_runs(placement, local.size(d), mesh.size(m), mine));
    at::Tensor received = at::empty(shape, local.options());
    comm.scatter_v(
        received, mine == source ? at::cat(pieces) : at::Tensor(), counts,
        source);
    local = received;
  }
  return local;
}

}  // namespace tessera::detail
