#include <tensor/prepared_plan.h>

#include <algorithm>
#include <unordered_map>

#include <c10/core/ScalarType.h>
#include <c10/util/accumulate.h>
#include <tessera/plan/exchange.h>

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

// Prepares one step among the ranks of a group, of which this one is `me`.
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

  void add_sent(const Pieces& pieces) {
    append_shifted(result_.pack, pieces, 0, sent_);
    result_.sent.push_back(total_numel(pieces));
    sent_ += result_.sent.back();
  }
  void add_received(const Pieces& pieces, int64_t count) {
    append_shifted(result_.unpack, pieces, received_, 0);
    result_.received.push_back(count);
    received_ += count;
  }

  void all_gather() {
    group();
    for_each_rank([&](const Coordinate& c) {
      const Region held = region_of(step_.before, c);
      add_received(
          pieces_between(held, after_),
          c10::multiply_integers(step_.before.local_shape(c)));
    });
    result_.receives_result = is_identity(result_.unpack, received_);
  }

  void reduce_scatter() {
    group();
    for_each_rank([&](const Coordinate& c) {
      add_sent(packing(before_, region_of(step_.after, c)));
    });
    result_.sends_shard = is_identity(
        result_.pack, c10::multiply_integers(step_.before.local_shape(mine_)));
  }

  void all_to_all() {
    group();
    for_each_rank([&](const Coordinate& c) {
      if (c == mine_) {
        result_.stay = pieces_between(before_, after_);
        add_sent({});
        add_received({}, 0);
        return;
      }
      add_sent(packing(before_, region_of(step_.after, c)));
      const Pieces pieces = unpacking(region_of(step_.before, c), after_);
      add_received(pieces, total_numel(pieces));
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
  int64_t sent_ = 0;
  int64_t received_ = 0;
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
  std::unordered_map<int64_t, Pieces> to;
  std::unordered_map<int64_t, Pieces> from;
  for (const Transfer& t : exchange_transfers(step.before, step.after, me)) {
    if (t.from == me && t.to == me) {
      result.stay =
          pieces_between(region_at(step.before, me), region_at(step.after, me));
    } else if (t.from == me && !to.contains(t.to)) {
      to[t.to] =
          packing(region_at(step.before, me), region_at(step.after, t.to));
    } else if (t.to == me && !from.contains(t.from)) {
      from[t.from] =
          unpacking(region_at(step.before, t.from), region_at(step.after, me));
    }
  }
  int64_t sent = 0;
  int64_t received = 0;
  for (const int64_t rank : result.group.ranks()) {
    append_shifted(result.pack, to[rank], 0, sent);
    result.sent.push_back(total_numel(to[rank]));
    sent += result.sent.back();
    append_shifted(result.unpack, from[rank], received, 0);
    result.received.push_back(total_numel(from[rank]));
    received += result.received.back();
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
}

}  // namespace tessera::detail
