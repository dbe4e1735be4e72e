#include <tensor/execute.h>

#include <ATen/ops/cat.h>
#include <ATen/ops/empty.h>
#include <ATen/ops/full_like.h>
#include <ATen/ops/ones_like.h>
#include <ATen/ops/zeros_like.h>
#include <c10/util/accumulate.h>
#include <tensor/region.h>
#include <tensor/step_label.h>
#include <tessera/plan/exchange.h>

namespace tessera::detail {

namespace {

// One step on its way: the group, and what each of its ranks holds before and
// after.
class StepRun {
 public:
  StepRun(const Step& step, const at::Tensor& shard, const DeviceMesh& mesh)
      : step_(step),
        shard_(shard),
        mesh_(mesh),
        mine_(*mesh.coordinate()),
        before_(region_of(step.before, mine_)),
        after_(region_of(step.after, mine_)) {}

  at::Tensor run() {
    switch (step_.kind) {
      case StepKind::kAllGather:
        return all_gather();
      case StepKind::kAllReduce:
        return all_reduce();
      case StepKind::kReduceScatter:
        return reduce_scatter();
      case StepKind::kAllToAll:
        return all_to_all();
      case StepKind::kCut:
        return pack(shard_, before_, after_).view(after_shape());
      case StepKind::kToPartial:
        return to_partial();
      case StepKind::kExchange:
        return exchange();
    }
    TORCH_INTERNAL_ASSERT(false, "step of unknown kind");
  }

 private:
  std::vector<int64_t> after_shape() const {
    return step_.after.local_shape(mine_);
  }
  at::Tensor new_shard() const {
    return at::empty(after_shape(), shard_.options());
  }
  at::Tensor new_flat(const std::vector<int64_t>& counts) const {
    return at::empty({c10::sum_integers(counts)}, shard_.options());
  }
  ReduceOp reduce_op() const { return step_.from()[0].reduce_op(); }

  // Calls f(coordinate) for every rank of the group, in group order: row-major
  // over the step's mesh dims.
  template <class F>
  void for_each_rank(F f) const {
    std::vector<int64_t> coordinate = mine_;
    for_each_rank(coordinate, 0, f);
  }
  template <class F>
  void for_each_rank(
      std::vector<int64_t>& coordinate, size_t next, const F& f) const {
    if (next == step_.mesh_dims.size()) {
      f(coordinate);
      return;
    }
    const int64_t dim = step_.mesh_dims[next];
    for (int64_t c = 0; c < mesh_.size(dim); ++c) {
      coordinate[static_cast<size_t>(dim)] = c;
      for_each_rank(coordinate, next + 1, f);
    }
  }

  at::Tensor all_gather() const {
    std::vector<int64_t> counts;
    std::vector<Region> held;
    for_each_rank([&](const std::vector<int64_t>& c) {
      held.push_back(region_of(step_.before, c));
      counts.push_back(c10::multiply_integers(step_.before.local_shape(c)));
    });
    const at::Tensor flat = new_flat(counts);
    mesh_.communicator_over(step_.mesh_dims).all_gather_v(flat, shard_, counts);
    const at::Tensor result = new_shard();
    unpack_all(flat, counts, held, result);
    return result;
  }

  at::Tensor all_reduce() const {
    at::Tensor result = shard_.clone(at::MemoryFormat::Contiguous);
    mesh_.communicator_over(step_.mesh_dims).all_reduce(result, reduce_op());
    return result;
  }

  at::Tensor reduce_scatter() const {
    std::vector<int64_t> counts;
    std::vector<at::Tensor> pieces;
    for_each_rank([&](const std::vector<int64_t>& c) {
      pieces.push_back(pack(shard_, before_, region_of(step_.after, c)));
      counts.push_back(pieces.back().numel());
    });
    const at::Tensor result = new_shard();
    mesh_.communicator_over(step_.mesh_dims)
        .reduce_scatter_v(result, at::cat(pieces), counts, reduce_op());
    return result;
  }

  at::Tensor all_to_all() const {
    std::vector<int64_t> sent;
    std::vector<int64_t> received;
    std::vector<at::Tensor> pieces;
    std::vector<Region> held;
    for_each_rank([&](const std::vector<int64_t>& c) {
      pieces.push_back(pack(shard_, before_, region_of(step_.after, c)));
      sent.push_back(pieces.back().numel());
      held.push_back(region_of(step_.before, c));
      received.push_back(
          c10::multiply_integers(shared_shape(held.back(), after_)));
    });
    const at::Tensor flat = new_flat(received);
    mesh_.communicator_over(step_.mesh_dims)
        .all_to_all_v(flat, at::cat(pieces), received, sent);
    const at::Tensor result = new_shard();
    unpack_all(flat, received, held, result);
    return result;
  }

  at::Tensor to_partial() const {
    at::Tensor result = shard_;
    const Placements to = step_.to();
    for (size_t i = 0; i < to.size(); ++i) {
      result = addend_of(
          result, to[i].reduce_op(),
          mine_[static_cast<size_t>(step_.mesh_dims[i])]);
    }
    return result;
  }

  at::Tensor exchange() const {
    const Communicator all = mesh_.whole();
    const int64_t me = mesh_.world().rank();
    std::vector<std::vector<at::Tensor>> pieces(all.ranks().size());
    std::vector<int64_t> sent(pieces.size());
    std::vector<int64_t> received(pieces.size());
    std::vector<std::vector<Region>> boxes(pieces.size());
    for (const Transfer& t :
         exchange_transfers(step_.before, step_.after, me)) {
      const Region box = region_of(t.box);
      if (t.from == me) {
        const size_t to = place_of(all, t.to);
        pieces[to].push_back(pack(shard_, before_, box));
        sent[to] += t.box.numel();
      }
      if (t.to == me) {
        const size_t from = place_of(all, t.from);
        boxes[from].push_back(box);
        received[from] += t.box.numel();
      }
    }
    std::vector<at::Tensor> ordered = {at::empty({0}, shard_.options())};
    for (auto& list : pieces) {
      ordered.insert(ordered.end(), list.begin(), list.end());
    }
    const at::Tensor flat = new_flat(received);
    all.all_to_all_v(flat, at::cat(ordered), received, sent);
    const at::Tensor result = new_shard();
    int64_t offset = 0;
    for (const auto& list : boxes) {
      for (const Region& box : list) {
        const int64_t count = c10::multiply_integers(shared_shape(box, after_));
        unpack(flat.narrow(0, offset, count), box, after_, result);
        offset += count;
      }
    }
    return result;
  }

  static size_t place_of(const Communicator& group, int64_t rank) {
    const auto& ranks = group.ranks();
    return static_cast<size_t>(
        std::find(ranks.begin(), ranks.end(), rank) - ranks.begin());
  }

  void unpack_all(
      const at::Tensor& flat, const std::vector<int64_t>& counts,
      const std::vector<Region>& held, const at::Tensor& result) const {
    int64_t offset = 0;
    for (size_t i = 0; i < counts.size(); ++i) {
      unpack(flat.narrow(0, offset, counts[i]), held[i], after_, result);
      offset += counts[i];
    }
  }

  const Step& step_;
  const at::Tensor& shard_;
  const DeviceMesh& mesh_;
  const std::vector<int64_t>& mine_;
  const Region before_;
  const Region after_;
};

// What a Partial holds on every coordinate but the first: the element that
// changes nothing. -0.0, since adding 0.0 would lose the sign of -0.0.
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

}  // namespace

at::Tensor addend_of(const at::Tensor& value, ReduceOp op, int64_t coordinate) {
  const bool everywhere =
      op == ReduceOp::kMax || op == ReduceOp::kMin || op == ReduceOp::kAvg;
  return everywhere || coordinate == 0 ? value : neutral_like(value, op);
}

at::Tensor execute(
    const RedistributePlan& plan, const at::Tensor& shard,
    const DeviceMesh& mesh) {
  at::Tensor current = shard;
  for (const Step& step : plan.steps) {
    const StepLabel label(step);
    current = StepRun(step, current, mesh).run();
  }
  return current;
}

}  // namespace tessera::detail
