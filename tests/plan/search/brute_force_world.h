// Every layout of a tensor on a small mesh and every step between two of them,
// written from the words of docs/internals/plan.md. Shares Box with the library
// and nothing else: no placement, layout, price or move of the planner.
#pragma once

#include <algorithm>
#include <cstdint>
#include <map>
#include <numeric>
#include <optional>
#include <vector>

#include <tessera/layout/box.h>

namespace tessera::brute_force {

using List = std::vector<int64_t>;

/// What one mesh dim does to a tensor.
struct Piece {
  char kind = 'R';  // R; P, an addend; S, cut by chunks; G, cut by sizes
  int64_t dim = 0;
  int64_t factor = 1;  // S: the pieces that exist before the cut
  List sizes = {};     // G
  char op = '+';       // P: + sum, a avg, M max, m min, * product
  bool cuts() const { return kind == 'S' || kind == 'G'; }
  friend bool operator==(const Piece&, const Piece&) = default;
};

/// Per mesh dim, which piece of a catalogue and the turn of a cut among those
/// of its tensor dim (0 where it is none).
struct State {
  std::vector<size_t> piece;
  std::vector<size_t> turn;
  friend auto operator<=>(const State&, const State&) = default;
};

/// A step: to which state, on which mesh dims, among how many ranks.
struct Edge {
  enum Kind { kGather, kReduce, kScatter, kAllToAll, kSlice, kToPartial };
  Kind kind;
  size_t to;
  std::vector<size_t> dims;
};

/// The indices of one tensor dim: 1-d boxes in storage order.
using Indices = std::vector<Box>;

inline int64_t length(const Indices& indices) {
  int64_t sum = 0;
  for (const Box& box : indices) {
    sum += box.numel();
  }
  return sum;
}

/// Appends positions begin .. end-1 of `indices` to `result`.
inline void take(
    const Indices& indices, int64_t begin, int64_t end, Indices& result) {
  int64_t position = 0;
  for (const Box& box : indices) {
    const auto part = intersect(
        Box{{position}, box.sizes},
        Box{{begin}, {std::max(begin, end) - begin}});
    if (part) {
      const int64_t start = box.offsets[0] + part->offsets[0] - position;
      result.push_back({{start}, part->sizes});
    }
    position += box.numel();
  }
}

/// The positions of chunk r of n of positions begin .. end-1.
inline std::pair<int64_t, int64_t> chunk(
    int64_t begin, int64_t end, int64_t n, int64_t r) {
  const int64_t full = (end - begin + n - 1) / n;
  return {
      std::min(end, begin + r * full), std::min(end, begin + (r + 1) * full)};
}

/// Returns what coordinate r of n gets of `indices`; nothing where ragged sizes
/// do not add up.
inline std::optional<Indices> part_of(
    const Indices& indices, const Piece& piece, int64_t n, int64_t r) {
  const int64_t size = length(indices);
  Indices result;
  if (piece.kind == 'G') {
    const auto first = piece.sizes.begin();
    if (std::accumulate(first, piece.sizes.end(), int64_t{0}) != size) {
      return std::nullopt;
    }
    const int64_t begin = std::accumulate(first, first + r, int64_t{0});
    take(indices, begin, begin + piece.sizes[static_cast<size_t>(r)], result);
    return result;
  }
  for (int64_t k = 0; k < piece.factor; ++k) {
    const auto [begin, end] = chunk(0, size, piece.factor, k);
    const auto [from, to] = chunk(begin, end, n, r);
    take(indices, from, to, result);
  }
  return result;
}

class World {
 public:
  /// `catalogue` is what a mesh dim may do, R first.
  World(List shape, List mesh, std::vector<std::vector<Piece>> catalogue)
      : shape_(std::move(shape)),
        mesh_(std::move(mesh)),
        catalogue_(std::move(catalogue)) {
    List at(mesh_.size(), 0);
    do {
      ranks_.push_back(at);
    } while (advance(at));
    State state;
    add_states(state);
    for (size_t a = 0; a < states_.size(); ++a) {
      edges_.emplace_back();
      for (size_t b = 0; b < states_.size(); ++b) {
        add_edge(a, b);
      }
    }
  }

  const List& shape() const { return shape_; }
  const List& mesh() const { return mesh_; }
  const std::vector<State>& states() const { return states_; }
  const std::vector<Edge>& edges(size_t a) const { return edges_[a]; }
  /// Returns the elements of the largest shard.
  int64_t size(size_t a) const { return sizes_[a]; }
  int64_t ranks() const { return static_cast<int64_t>(ranks_.size()); }
  const Piece& piece(const State& s, size_t m) const {
    return catalogue_[m][s.piece[m]];
  }
  std::optional<size_t> find(const State& state) const {
    const auto at = numbers_.find(state);
    return at == numbers_.end() ? std::nullopt
                                : std::optional<size_t>(at->second);
  }

  /// Returns what the busiest rank sends or receives when every rank takes
  /// what it lacks from the rank that differs from it in cutting mesh dims
  /// only.
  int64_t exchanged(size_t a, size_t b) {
    const auto at = a * states_.size() + b;
    exchanged_.resize(states_.size() * states_.size(), -1);
    if (exchanged_[at] < 0) {
      exchanged_[at] = count_exchanged(a, b);
    }
    return exchanged_[at];
  }

 private:
  using Shard = std::vector<Indices>;  // per tensor dim

  bool advance(List& at) const {
    for (size_t m = at.size(); m-- > 0;) {
      if (++at[m] < mesh_[m]) {
        return true;
      }
      at[m] = 0;
    }
    return false;
  }

  // Every choice of pieces and every order of the cuts of a tensor dim.
  void add_states(State& front) {
    const size_t m = front.piece.size();
    if (m == mesh_.size()) {
      add_state(front);
      return;
    }
    for (size_t i = 0; i < catalogue_[m].size(); ++i) {
      const size_t turns = catalogue_[m][i].cuts() ? mesh_.size() : 1;
      for (size_t turn = 0; turn < turns; ++turn) {
        front.piece.push_back(i);
        front.turn.push_back(turn);
        add_states(front);
        front.piece.pop_back();
        front.turn.pop_back();
      }
    }
  }

  void add_state(const State& state) {
    if (!mixes(state)) {
      return;
    }
    std::vector<Shard> shards;
    int64_t largest = 0;
    for (const List& at : ranks_) {
      const auto shard = shard_of(state, at);
      if (!shard) {
        return;
      }
      int64_t product = 1;
      for (const Indices& indices : *shard) {
        product *= length(indices);
      }
      largest = std::max(largest, product);
      shards.push_back(*shard);
    }
    numbers_.emplace(state, states_.size());
    states_.push_back(state);
    sizes_.push_back(largest);
    shards_.push_back(std::move(shards));
  }

  // Addends of one kind, or of sum and avg.
  bool mixes(const State& state) const {
    List ops;
    for (size_t m = 0; m < mesh_.size(); ++m) {
      const Piece& p = piece(state, m);
      if (p.kind == 'P') {
        ops.push_back(p.op == 'a' ? '+' : p.op);
      }
    }
    return std::adjacent_find(ops.begin(), ops.end(), std::not_equal_to<>()) ==
           ops.end();
  }

  // Nothing where the turns of a tensor dim are not 0, 1, ... or a ragged cut
  // does not fit.
  std::optional<Shard> shard_of(const State& state, const List& at) const {
    Shard result;
    for (size_t d = 0; d < shape_.size(); ++d) {
      std::vector<size_t> by_turn;
      for (size_t m = 0; m < mesh_.size(); ++m) {
        const Piece& p = piece(state, m);
        if (p.cuts() && p.dim == static_cast<int64_t>(d)) {
          by_turn.push_back(m);
        }
      }
      std::sort(by_turn.begin(), by_turn.end(), [&](size_t a, size_t b) {
        return state.turn[a] < state.turn[b];
      });
      std::optional<Indices> indices = Indices{{{0}, {shape_[d]}}};
      for (size_t i = 0; i < by_turn.size(); ++i) {
        const size_t m = by_turn[i];
        indices = state.turn[m] == i
                      ? part_of(*indices, piece(state, m), mesh_[m], at[m])
                      : std::nullopt;
        if (!indices) {
          return std::nullopt;
        }
      }
      result.push_back(*std::move(indices));
    }
    return result;
  }

  // A cut that comes or goes is the last of its tensor dim, since the others
  // keep their turns and turns have no gap.
  void add_edge(size_t a, size_t b) {
    std::vector<size_t> dims;
    for (size_t m = 0; m < mesh_.size(); ++m) {
      if (states_[a].piece[m] != states_[b].piece[m] ||
          states_[a].turn[m] != states_[b].turn[m]) {
        dims.push_back(m);
      }
    }
    if (dims.empty()) {
      return;
    }
    const auto letter = [&](size_t s, size_t m) {
      const Piece& p = piece(states_[s], m);
      return p.cuts() ? 'C' : p.kind;
    };
    const char from = letter(a, dims[0]);
    const char to = letter(b, dims[0]);
    for (const size_t m : dims) {
      if (letter(a, m) != from || letter(b, m) != to ||
          (from == 'P' &&
           !(piece(states_[a], m) == piece(states_[a], dims[0])))) {
        return;
      }
    }
    const bool alone = dims.size() == 1;
    const bool neighbours = dims.back() - dims.front() + 1 == dims.size();
    const auto add = [&](Edge::Kind kind, bool allowed) {
      if (allowed) {
        edges_[a].push_back({kind, b, dims});
      }
    };
    if (from == 'C' && to == 'R') {
      add(Edge::kGather, neighbours);
    } else if (from == 'C' && to == 'C') {
      add(Edge::kAllToAll, alone && is_last(states_[a], dims[0]));
    } else if (from == 'P' && to == 'R') {
      add(Edge::kReduce, neighbours);
    } else if (from == 'P' && to == 'C') {
      add(Edge::kScatter, neighbours);
    } else if (from == 'R' && to == 'C') {
      add(Edge::kSlice, true);
    } else if (from == 'R' && to == 'P') {
      add(Edge::kToPartial, true);
    }
  }

  bool is_last(const State& s, size_t m) const {
    for (size_t other = 0; other < mesh_.size(); ++other) {
      const Piece& p = piece(s, other);
      if (p.cuts() && p.dim == piece(s, m).dim && s.turn[other] > s.turn[m]) {
        return false;
      }
    }
    return true;
  }

  int64_t count_exchanged(size_t a, size_t b) const {
    List sent(ranks_.size(), 0);
    int64_t most = 0;
    for (size_t to = 0; to < ranks_.size(); ++to) {
      int64_t received = 0;
      for (size_t from = 0; from < ranks_.size(); ++from) {
        bool sends = from != to;
        for (size_t m = 0; m < mesh_.size(); ++m) {
          sends = sends && (piece(states_[a], m).cuts() ||
                            ranks_[from][m] == ranks_[to][m]);
        }
        const int64_t count =
            sends ? shared(shards_[a][from], shards_[b][to]) : 0;
        received += count;
        sent[from] += count;
        most = std::max({most, received, sent[from]});
      }
    }
    return most;
  }

  static int64_t shared(const Shard& a, const Shard& b) {
    int64_t product = 1;
    for (size_t d = 0; d < a.size(); ++d) {
      int64_t sum = 0;
      for (const Box& x : a[d]) {
        for (const Box& y : b[d]) {
          const auto common = intersect(x, y);
          sum += common ? common->numel() : 0;
        }
      }
      product *= sum;
    }
    return product;
  }

  List shape_;
  List mesh_;
  std::vector<std::vector<Piece>> catalogue_;
  std::vector<List> ranks_;  // coordinates
  std::vector<State> states_;
  std::map<State, size_t> numbers_;
  List sizes_;
  std::vector<std::vector<Shard>> shards_;
  std::vector<std::vector<Edge>> edges_;
  List exchanged_;
};

}  // namespace tessera::brute_force
