// Views of another shape: view, reshape and their like.
//
// Note [Views of shards]
// A view keeps the row-major order of the elements. So a shard stays in place
// where its elements, in order, are at every coordinate those of the result's
// shard. Cuts are made one after another, and each is a choice of positions in
// the list of elements that the cuts before it have left. Hence a cut of the
// operand becomes a cut of the result if both choose the same positions of
// every such list; lists differ by their lengths only, of which there are few.
//   [4, 6] S(1) over 2 as [24]: 4 pieces, each in halves       -> SS(0,4)
//   [24] SS(0,4) over 2 as [4, 6]                              -> S(1)
//   [6, 5] S(0) over 4 as [30]: runs of 10 10 10 0, not 8 8 8 6 -> RS(0,[...])
#include <algorithm>
#include <numeric>
#include <set>

#include <base/text.h>
#include <c10/util/Exception.h>
#include <layout/cut.h>
#include <rules/families/view_layout.h>

namespace tessera::detail::inline rules_layer {

namespace {

using Sizes = std::vector<int64_t>;

int64_t ceil_div(int64_t a, int64_t b) {
  return (a + b - 1) / b;
}

int64_t product(c10::IntArrayRef sizes) {
  return std::accumulate(
      sizes.begin(), sizes.end(), int64_t{1}, std::multiplies<>());
}

// The lengths of the ceil chunks of a piece, each element `scale` long.
Sizes chunk_lengths(int64_t length, int64_t parts, int64_t scale) {
  Sizes lengths(static_cast<size_t>(parts));
  const int64_t chunk = ceil_div(length, parts);
  for (int64_t& l : lengths) {
    l = std::min(chunk, length) * scale;
    length -= std::min(chunk, length);
  }
  return lengths;
}

// Which positions of a list each coordinate receives: `repeats` times, the list
// has `full` pieces of which coordinate r receives the next parts[r], then one
// of which it receives rest[r].
struct Choice {
  int64_t repeats = 1;
  int64_t full = 1;
  Sizes parts;
  Sizes rest;
  friend bool operator==(const Choice&, const Choice&) = default;
};

// Gives equal choices one form.
void normalise(Choice& choice, int64_t numel) {
  if (choice.rest.empty()) {
    choice.repeats *= choice.full;
    choice.full = 1;
  }
  const auto holds = [&](size_t r) {
    return choice.parts[r] > 0 || (!choice.rest.empty() && choice.rest[r] > 0);
  };
  size_t holders = 0, last = 0;
  for (size_t r = 0; r < choice.parts.size(); ++r) {
    if (holds(r)) {
      ++holders;
      last = r;
    }
  }
  if (holders == 1) {
    choice = {1, 1, Sizes(choice.parts.size(), 0), {}};
    choice.parts[last] = numel;
  }
}

// One mesh dim's cut of a dim.
struct DimSplit {
  int64_t mesh_dim;
  int64_t parts;  // the size of the mesh dim
  Placement placement;
};

// The lengths that a cut leaves of its dim, per coordinate.
Sizes lengths_after(int64_t length, const DimSplit& split) {
  Sizes lengths;
  for (int64_t r = 0; r < split.parts; ++r) {
    lengths.push_back(Cut(split.placement, split.parts).part_length(length, r));
  }
  return lengths;
}

// What a cut chooses of the elements of a tensor that is not empty.
Choice choice_of(const Sizes& shape, const DimSplit& split) {
  const Placement& p = split.placement;
  const auto d = static_cast<size_t>(p.dim());
  const int64_t inner = product(c10::IntArrayRef(shape).slice(d + 1));
  Choice choice;
  choice.repeats = product(c10::IntArrayRef(shape).slice(0, d));
  if (!p.is_chunked()) {
    choice.parts = lengths_after(shape[d], split);
    for (int64_t& length : choice.parts) {
      length *= inner;
    }
  } else {
    const int64_t piece = ceil_div(shape[d], p.split_factor());
    choice.full = shape[d] / piece;
    choice.parts = chunk_lengths(piece, split.parts, inner);
    if (shape[d] % piece != 0) {
      choice.rest = chunk_lengths(shape[d] % piece, split.parts, inner);
    }
  }
  normalise(choice, product(shape));
  return choice;
}

// The shapes that a shard of the operand and one of the result have at some
// coordinate of the cuts made so far.
struct State {
  Sizes operand;
  Sizes result;
  friend auto operator<=>(const State&, const State&) = default;
};

constexpr size_t kMostStates = 64;

class Reshape {
 public:
  Reshape(Sizes operand, Sizes result) : result_(result) {
    states_.insert({std::move(operand), std::move(result)});
  }

  /// Makes one more cut of the operand; returns the cut of the result that does
  /// the same, or nothing.
  std::optional<Placement> land(const DimSplit& split) {
    if (!split.placement.is_chunked() && !split.placement.is_contiguous()) {
      return std::nullopt;  // no Choice says which positions those are
    }
    for (const Placement& candidate : candidates(split)) {
      const DimSplit landed{split.mesh_dim, split.parts, candidate};
      if (chooses_alike(split, landed) && advance(split, landed)) {
        return candidate;
      }
    }
    return std::nullopt;
  }

 private:
  // Likely cuts of the result, best first: the operand's own, counted from
  // either end, then plain, strided, ragged ones.
  std::vector<Placement> candidates(const DimSplit& split) const {
    const auto ndim = static_cast<int64_t>(result_.size());
    const Placement own = split.placement.with_order(-1);
    const auto operand_ndim =
        static_cast<int64_t>(states_.begin()->operand.size());
    std::vector<Placement> found;
    for (const int64_t d : {own.dim(), own.dim() + ndim - operand_ndim}) {
      if (d >= 0 && d < ndim) {
        found.push_back(own.with_dim(d));
      }
    }
    for (int64_t d = 0; d < ndim; ++d) {
      found.push_back(Shard(d));
    }
    const auto state = std::find_if(
        states_.rbegin(), states_.rend(),
        [](const State& s) { return product(s.operand) > 0; });
    if (state != states_.rend()) {
      add_exact(choice_of(state->operand, split), state->result, own, found);
    }
    return found;
  }

  static void add_exact(
      const Choice& choice, const Sizes& result, const Placement& own,
      std::vector<Placement>& found) {
    std::vector<Placement> ragged;
    int64_t outer = 1;
    for (size_t d = 0; d < result.size(); outer *= result[d++]) {
      const auto dim = static_cast<int64_t>(d);
      if (!choice.rest.empty()) {
        if (outer == choice.repeats && own.is_chunked()) {
          found.push_back(StridedShard(dim, own.split_factor()));
        }
        continue;
      }
      if (choice.repeats % outer == 0 && choice.repeats > outer) {
        found.push_back(StridedShard(dim, choice.repeats / outer));
      }
      const int64_t inner = product(c10::IntArrayRef(result).slice(d + 1));
      Sizes lengths = choice.parts;
      bool exact = outer == choice.repeats;
      for (int64_t& length : lengths) {
        exact = exact && length % inner == 0;
        length /= inner;
      }
      if (exact) {
        ragged.push_back(RaggedShard(dim, std::move(lengths)));
      }
    }
    found.insert(found.end(), ragged.begin(), ragged.end());
  }

  bool chooses_alike(const DimSplit& split, const DimSplit& landed) const {
    const auto d = static_cast<size_t>(landed.placement.dim());
    return std::all_of(states_.begin(), states_.end(), [&](const State& state) {
      return adds_up(landed.placement, state.result[d]) &&
             (product(state.operand) == 0 ||
              choice_of(state.operand, split) ==
                  choice_of(state.result, landed));
    });
  }
  // Ragged lengths must do so at every coordinate of the cuts before.
  static bool adds_up(const Placement& p, int64_t length) {
    return p.fits_any_size() || p.begins().back() == length;
  }

  bool advance(const DimSplit& split, const DimSplit& landed) {
    const auto from = static_cast<size_t>(split.placement.dim());
    const auto to = static_cast<size_t>(landed.placement.dim());
    std::set<State> next;
    for (const State& state : states_) {
      const Sizes left = lengths_after(state.operand[from], split);
      const Sizes right = lengths_after(state.result[to], landed);
      for (size_t r = 0; r < left.size(); ++r) {
        State part = state;
        part.operand[from] = left[r];
        part.result[to] = right[r];
        next.insert(std::move(part));
      }
    }
    if (next.size() > kMostStates) {
      return false;
    }
    states_ = std::move(next);
    return true;
  }

  Sizes result_;
  std::set<State> states_;
};

// The cuts of the operand in an order that every dim agrees with: that of the
// mesh dims unless a dim has orders.
std::vector<DimSplit> splits_in_order(const ViewMaker& view) {
  std::vector<DimSplit> cuts;
  bool ordered = false;
  for (int64_t d = 0; d < view.ndim(); ++d) {
    for (const int64_t m : view.cuts(d)) {
      const Placement& p = view.placements()[static_cast<size_t>(m)];
      ordered = ordered || p.order() >= 0;
      cuts.push_back({m, view.mesh().size(m), p});
    }
  }
  if (!ordered) {
    std::sort(
        cuts.begin(), cuts.end(), [](const DimSplit& a, const DimSplit& b) {
          return a.mesh_dim < b.mesh_dim;
        });
  }
  return cuts;
}

// Gives orders to the cuts of every dim that are not made in mesh order.
void set_orders(
    const std::vector<int64_t>& order, int64_t ndim, Placements& placements) {
  for (int64_t d = 0; d < ndim; ++d) {
    std::vector<int64_t> cuts;
    for (const int64_t m : order) {
      if (placements[static_cast<size_t>(m)].is_shard(d)) {
        cuts.push_back(m);
      }
    }
    if (std::is_sorted(cuts.begin(), cuts.end())) {
      continue;
    }
    for (size_t position = 0; position < cuts.size(); ++position) {
      Placement& p = placements[static_cast<size_t>(cuts[position])];
      p = p.with_order(static_cast<int64_t>(position));
    }
  }
}

// The placements of the result, or nothing where a cut finds no place, which is
// then dropped.
std::optional<Placements> land_all(ViewMaker& view, const Sizes& shape) {
  Reshape reshape(view.shape(), shape);
  Placements result = view.placements();
  std::vector<int64_t> order;
  for (const DimSplit& split : splits_in_order(view)) {
    const auto landed = reshape.land(split);
    if (!landed) {
      view.drop(split.mesh_dim);
      return std::nullopt;
    }
    result[static_cast<size_t>(split.mesh_dim)] = *landed;
    order.push_back(split.mesh_dim);
  }
  set_orders(order, static_cast<int64_t>(shape.size()), result);
  return result;
}

Sizes wanted_shape(const RuleCall& call) {
  Sizes shape = call.integers("size");
  const int64_t numel = product(call.self().shape);
  int64_t known = 1;
  int64_t* inferred = nullptr;
  bool valid = true;
  for (int64_t& size : shape) {
    if (size == -1 && inferred == nullptr) {
      inferred = &size;
    } else {
      valid = valid && size >= 0;
      known *= size;
    }
  }
  if (inferred != nullptr && valid && known > 0) {
    *inferred = numel / known;
    known *= *inferred;
  } else {
    valid = valid && inferred == nullptr;
  }
  TORCH_CHECK(
      valid && known == numel, call.schema().name(), ": the shape [",
      base::join(call.integers("size"), ", "), "] must have the ", numel,
      " elements of the tensor's shape [", base::join(call.self().shape, ", "),
      "], and at most one -1");
  return shape;
}

// The strides of a shard in dense memory, in the order of the global strides.
Sizes dense_strides(const Sizes& shape, c10::IntArrayRef like) {
  Sizes order(shape.size());
  std::iota(order.begin(), order.end(), 0);
  std::stable_sort(order.begin(), order.end(), [&](int64_t a, int64_t b) {
    return like[static_cast<size_t>(a)] > like[static_cast<size_t>(b)];
  });
  Sizes strides(shape.size());
  int64_t step = 1;
  for (size_t k = order.size(); k-- > 0;) {
    const auto d = static_cast<size_t>(order[k]);
    strides[d] = step;
    step *= std::max<int64_t>(shape[d], 1);
  }
  return strides;
}

// The local call of _reshape_alias also wants strides.
void add_local_strides(
    ViewMaker& view, const Sizes& local_result,
    const std::vector<int64_t>& coordinate) {
  const Sizes shard = view.layout().local_shape(coordinate);
  const auto strides = view_strides(
      shard, dense_strides(shard, view.operand().strides), local_result);
  view.local_argument(
      "stride", strides ? *strides : row_major_strides(local_result));
}

}  // namespace

std::optional<Sizes> view_strides(
    c10::IntArrayRef shape, c10::IntArrayRef strides, const Sizes& to) {
  if (product(shape) == 0) {
    return shape == c10::IntArrayRef(to) ? strides.vec()
                                         : row_major_strides(to);
  }
  if (shape.empty()) {
    return Sizes(to.size(), 1);
  }
  Sizes result(to.size());
  size_t next = to.size();  // dims of the view from here on have strides
  size_t d = shape.size();
  while (d > 0) {
    // A block: dims that step through memory as one dim would.
    const int64_t step = strides[d - 1];
    int64_t block = shape[--d];
    while (d > 0 && (shape[d - 1] == 1 || strides[d - 1] == block * step)) {
      block *= shape[--d];
    }
    int64_t filled = 1;
    while (next > 0 && (filled < block || to[next - 1] == 1)) {
      result[--next] = filled * step;
      filled *= to[next];
    }
    if (filled != block) {
      return std::nullopt;
    }
  }
  return result;
}

ViewLayout reshape_view(
    const RuleCall& call, const MeshShape& mesh,
    const std::vector<int64_t>* coordinate) {
  ViewMaker view(call, mesh);
  const Sizes shape = wanted_shape(call);
  const bool has_strides = call.has_argument("stride");
  std::optional<Sizes> strides =
      has_strides ? call.integers("stride")
                  : view_strides(call.self().shape, call.self().strides, shape);
  if (is_copy(call)) {
    strides = row_major_strides(shape);
  }
  TORCH_CHECK(
      strides.has_value(), call.schema().name(), ": a tensor of shape [",
      base::join(call.self().shape, ", "), "] with strides [",
      base::join(call.self().strides, ", "), "] has no view of shape [",
      base::join(shape, ", "), "], since that would join dims that are apart ",
      "in memory; use reshape()");
  std::optional<Placements> placements;
  while (!placements) {
    placements = land_all(view, shape);
  }
  view.add(shape, *strides, *placements);
  view.local_shape_argument("size", coordinate);
  if (has_strides && coordinate != nullptr && view.has_shards()) {
    add_local_strides(
        view, Layout(shape, mesh, *placements).local_shape(*coordinate),
        *coordinate);
  }
  return view.take();
}

}  // namespace tessera::detail::inline rules_layer
