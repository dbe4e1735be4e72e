// One cut: a list of `length` indices divided among the coordinates of one mesh
// dim. Every question is answered by arithmetic, without listing indices.
//
// Chunk cuts have p pieces (p = 1: Shard; p > 1: StridedShard). The list is cut
// into pieces of s = ceil(length / p), of which length / s are full and at most
// one is short; each piece of size t is cut into chunks of ceil(t / parts), and
// a coordinate holds its chunk of every piece, in order.
//   length 10, p 1, parts 4 -> 0 1 2 | 3 4 5 | 6 7 8 | 9
//   length 8,  p 2, parts 2 -> 0 1 4 5 | 2 3 6 7
// Ragged cuts give the run begins[r] .. begins[r + 1] - 1 to coordinate r.
//
// So a part is always an ascending selection of the list, and the elements of a
// part that lie in a range of the list are a range of the part.
#pragma once

#include <cstdint>
#include <vector>

#include <tessera/layout/layout.h>

namespace tessera::detail::inline layout_layer {

/// Where an element of a list goes: to which coordinate, and where in its part.
struct CutTarget {
  int64_t coordinate;
  int64_t position;
};

class Cut {
 public:
  /// `placement` is a shard; lengths that it has must outlive the cut.
  Cut(const Placement& placement, int64_t parts);

  int64_t parts() const { return parts_; }
  /// Returns how many elements of the list coordinate `r` receives.
  int64_t part_length(int64_t length, int64_t r) const;
  /// Tells whether every coordinate receives as many.
  bool is_even(int64_t length) const;
  /// Returns where in the list element `i` of the part of `r` stands.
  int64_t list_position(int64_t length, int64_t r, int64_t i) const;
  /// Returns where element `j` of the list goes.
  CutTarget target_of(int64_t length, int64_t j) const;
  /// Returns how many elements of the part of `r` stand before `j` in the list.
  int64_t count_before(int64_t length, int64_t r, int64_t j) const;
  /// Returns a range of coordinates outside of which nothing of the non-empty
  /// range `wanted` of the list is held.
  Run holders(int64_t length, const Run& wanted) const;
  /// Returns the part of `r` as ascending runs of the list, neighbours merged.
  Runs runs(int64_t length, int64_t r) const;

 private:
  struct Pieces {  // `full` pieces of `size`, then one of `rest` (maybe 0)
    int64_t size;
    int64_t full;
    int64_t rest;
  };
  Pieces pieces_of(int64_t length) const;
  Run chunk(int64_t size, int64_t r) const;

  int64_t parts_;
  int64_t pieces_;
  const std::vector<int64_t>* begins_;  // ragged only
};

/// Returns the shard of `dim` that gives each coordinate as many elements as
/// `lengths` says: Shard where those are ceil chunks, else RaggedShard.
/// Example: [3, 3, 3, 1] -> S(0), [3, 5] -> RS(0,[3,5]).
Placement shard_of_lengths(int64_t dim, std::vector<int64_t> lengths);

/// Appends a run, merged with the last one where they touch.
void append_run(Runs& runs, const Run& run);

/// Returns the elements that stand at `positions` (ascending) of the list that
/// `runs` spell out.
/// Example: select_runs({2:4, 8:12}, {1:4}) -> {3:4, 8:10}.
Runs select_runs(const Runs& runs, const Runs& positions);

}  // namespace tessera::detail::inline layout_layer
