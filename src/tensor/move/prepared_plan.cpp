#include <tensor/move/prepared_plan.h>

#include <algorithm>
#include <set>

#include <c10/core/ScalarType.h>
#include <c10/util/accumulate.h>
#include <comm/direct.h>
#include <tensor/state/strides.h>
#include <tessera/plan/exchange.h>
#include <tessera/tensor/dtensor_spec.h>

namespace tessera::detail {

namespace {

using Coordinate = std::vector<int64_t>;

void append_shifted(
    Pieces& pieces, const Pieces& more, int64_t from, int64_t to) {
  for (Piece piece : more) {
    piece.from += from;
    piece.to += to;
    pieces.push_back(std::move(piece));
  }
}

// Tells whether pieces only say that both sides are the same `numel` elements.
bool is_identity(const Pieces& pieces, int64_t numel) {
  int64_t done = 0;
  for (const Piece& piece : pieces) {
    if (!piece.is_run() || piece.from != done || piece.to != done) {
      return false;
    }
    done += piece.numel();
  }
  return done == numel;
}

// Both sides of an exchange, one group rank after the other: what this rank
// sends it and what it receives from it, in buffers or, where ranks share
// memory, as what it pulls.
class ExchangeSides {
 public:
  explicit ExchangeSides(PreparedStep& step)
      : step_(step), pulls_(can_pull(step.group)) {}

  void add_sent(const Region& mine, const Region& theirs) {
    const Pieces pieces = packing(mine, theirs);
    step_.sent.push_back(total_numel(pieces));
    if (!pulls_) {
      append_shifted(step_.pack, pieces, 0, sent_);
    }
    sent_ += step_.sent.back();
  }
  void add_received(const Region& theirs, const Region& mine) {
    Pieces pieces =
        pulls_ ? pieces_between(theirs, mine) : unpacking(theirs, mine);
    step_.received.push_back(total_numel(pieces));
    if (pulls_) {
      step_.pulls.push_back(std::move(pieces));
    } else {
      append_shifted(step_.unpack, pieces, received_, 0);
    }
    received_ += step_.received.back();
  }
  void add_own(const Region& before, const Region& after) {
    Pieces pieces = pieces_between(before, after);
    pulls_ ? step_.pulls.push_back(std::move(pieces))
           : static_cast<void>(step_.stay = std::move(pieces));
    step_.sent.push_back(0);
    step_.received.push_back(0);
  }
  void add_no_sent() { step_.sent.push_back(0); }
  void add_no_received() {
    step_.received.push_back(0);
    if (pulls_) {
      step_.pulls.emplace_back();
    }
  }

 private:
  PreparedStep& step_;
  bool pulls_;
  int64_t sent_ = 0;
  int64_t received_ = 0;
};

// Prepares one step on one mesh for the rank at its coordinate.
class Preparation {
 public:
  Preparation(const Step& step, const DeviceMesh& mesh)
      : step_(step),
        mesh_(mesh),
        mine_(*mesh.coordinate()),
        before_(region_of(step.before, mine_)),
        after_(region_of(step.after, mine_)) {
    result_.step = &step;
    result_.shape = step.after.local_shape(mine_);
  }

  PreparedStep run() {
    switch (step_.kind) {
      case StepKind::kAllGather:
        all_gather();
        break;
      case StepKind::kAllReduce:
        group();
        break;
      case StepKind::kReduceScatter:
        reduce_scatter();
        break;
      case StepKind::kAllToAll:
        all_to_all();
        break;
      case StepKind::kCut:
        result_.stay = pieces_between(before_, after_);
        break;
      case StepKind::kToPartial:
        to_partial();
        break;
      case StepKind::kExchange:
        TORCH_INTERNAL_ASSERT(false, "an exchange has no coordinate");
    }
    return std::move(result_);
  }

 private:
  void group() { result_.group = mesh_.communicator_over(step_.mesh_dims); }

  // Calls f(coordinate) for every rank of the group, in group order: row-major
  // over the step's mesh dims.
  template <class F>
  void for_each_rank(const F& f) const {
    Coordinate coordinate = mine_;
    for_each_rank(coordinate, 0, f);
  }
  template <class F>
  void for_each_rank(Coordinate& coordinate, size_t next, const F& f) const {
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

  void all_gather() {
    group();
    int64_t received = 0;
    for_each_rank([&](const Coordinate& c) {
      Pieces pieces = pieces_between(region_of(step_.before, c), after_);
      append_shifted(result_.unpack, pieces, received, 0);
      result_.received.push_back(total_numel(pieces));
      result_.pulls.push_back(std::move(pieces));
      received += result_.received.back();
    });
    result_.receives_result = is_identity(result_.unpack, received);
    if (result_.receives_result || !can_pull(result_.group)) {
      result_.pulls.clear();
    }
  }

  void reduce_scatter() {
    group();
    int64_t sent = 0;
    for_each_rank([&](const Coordinate& c) {
      const Pieces pieces = packing(before_, region_of(step_.after, c));
      append_shifted(result_.pack, pieces, 0, sent);
      result_.sent.push_back(total_numel(pieces));
      sent += result_.sent.back();
    });
    result_.sends_shard = is_identity(
        result_.pack, c10::multiply_integers(step_.before.local_shape(mine_)));
  }

  void all_to_all() {
    group();
    ExchangeSides sides(result_);
    for_each_rank([&](const Coordinate& c) {
      if (c == mine_) {
        sides.add_own(before_, after_);
      } else {
        sides.add_sent(before_, region_of(step_.after, c));
        sides.add_received(region_of(step_.before, c), after_);
      }
    });
  }

  void to_partial() {
    const Placements to = step_.to();
    for (size_t i = 0; i < to.size(); ++i) {
      result_.addends.emplace_back(
          to[i].reduce_op(), mine_[static_cast<size_t>(step_.mesh_dims[i])]);
    }
  }

  const Step& step_;
  const DeviceMesh& mesh_;
  const Coordinate& mine_;
  const Region before_;
  const Region after_;
  PreparedStep result_{};
};

// The ranks of both meshes, ascending; those of one mesh in its own order.
// Undefined on a rank outside.
Communicator exchange_group(
    const Step& step, const DeviceMesh& mesh, int64_t rank) {
  if (step.before.mesh() == step.after.mesh()) {
    return mesh.coordinate() ? mesh.whole() : Communicator();
  }
  std::vector<int64_t> ranks = step.before.mesh().ranks();
  const std::vector<int64_t> others = step.after.mesh().ranks();
  ranks.insert(ranks.end(), others.begin(), others.end());
  std::sort(ranks.begin(), ranks.end());
  ranks.erase(std::unique(ranks.begin(), ranks.end()), ranks.end());
  return std::binary_search(ranks.begin(), ranks.end(), rank)
             ? mesh.world().communicator(ranks)
             : Communicator();
}

Region region_at(const Layout& layout, int64_t rank) {
  return region_of(layout, *layout.mesh().coordinate_of(rank));
}

PreparedStep prepare_exchange(const Step& step, const DeviceMesh& mesh) {
  const int64_t me = mesh.world().rank();
  PreparedStep result{.step = &step};
  result.group = exchange_group(step, mesh, me);
  result.takes_part = result.group.defined();
  if (!result.takes_part) {
    return result;
  }
  const auto here = step.after.mesh().coordinate_of(me);
  result.shape = here ? step.after.local_shape(*here) : std::vector<int64_t>{0};
  std::set<int64_t> to;
  std::set<int64_t> from;
  for (const Transfer& t : exchange_transfers(step.before, step.after, me)) {
    (t.from == me ? to : from).insert(t.from == me ? t.to : t.from);
  }
  ExchangeSides sides(result);
  for (const int64_t rank : result.group.ranks()) {
    if (rank == me && to.contains(me)) {
      sides.add_own(region_at(step.before, me), region_at(step.after, me));
      continue;
    }
    if (to.contains(rank)) {
      sides.add_sent(region_at(step.before, me), region_at(step.after, rank));
    } else {
      sides.add_no_sent();
    }
    if (from.contains(rank)) {
      sides.add_received(
          region_at(step.before, rank), region_at(step.after, me));
    } else {
      sides.add_no_received();
    }
  }
  return result;
}

PreparedStep prepare(const Step& step, const DeviceMesh& mesh) {
  if (step.kind == StepKind::kExchange) {
    return prepare_exchange(step, mesh);
  }
  return mesh.coordinate() ? Preparation(step, mesh).run()
                           : PreparedStep{.step = &step, .takes_part = false};
}

}  // namespace

PreparedPlan::PreparedPlan(SpecPtr from, SpecPtr to, RedistributePlan by)
    : source(std::move(from)), target(std::move(to)), plan(std::move(by)) {
  for (const Step& step : plan.steps) {
    const bool arrived = step.after.mesh() == target->mesh().mesh_shape();
    steps.push_back(prepare(step, arrived ? target->mesh() : source->mesh()));
  }
  if (target->has_shard()) {
    strides = shard_strides(
        target->local_shape(), target->shape(), target->strides());
    if (strides == contiguous_strides(target->local_shape())) {
      strides.clear();
    }
  }
}

}  // namespace tessera::detail
