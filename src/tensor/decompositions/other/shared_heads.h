// Attention in which more ranks than heads of key and value share them: which
// head a rank reads, and what becomes of its gradient.
//
// Worked row, 2 heads on 4 ranks: ranks 0 and 1 read head 0, ranks 2 and 3 head
// 1. Of S(1) rank 0 holds head 0 and rank 1 head 1: head 0 goes to rank 1, head
// 1 to ranks 2 and 3.
#pragma once

#include <algorithm>
#include <vector>

#include <ATen/ops/zeros.h>
#include <c10/util/accumulate.h>
#include <tensor/decompositions/decomposed_call.h>
#include <tensor/decompositions/other/row_exchange.h>

namespace tessera::detail::inline tensor_layer {

/// Heads of key and value that groups of ranks along a mesh dim share.
class SharedHeads {
 public:
  SharedHeads(const DecomposedCall& decomposed, int64_t mesh_dim, int64_t heads)
      : decomposed_(decomposed), mesh_dim_(mesh_dim), heads_(heads) {}

  bool exist() const { return mesh_dim_ >= 0; }
  bool are_sharded(const Placements& given) const {
    return given[at()].is_shard();
  }
  /// Where a key or value lies before groups are made: as it does.
  Placements before(Placements by_query, const Placements& given) const {
    by_query[at()] = given[at()];
    return by_query;
  }
  void announce(const char* name, const SpecPtr& spec) const {
    decomposed_.announce_exchange(
        name, spec, {mesh_dim_}, [&](const std::vector<int64_t>& coordinate) {
          std::vector<int64_t> head = spec->layout().local_shape(coordinate);
          head[1] = 1;
          const int64_t moved = std::max(
              take(coordinate[at()]).rows_moved(),
              give_back(coordinate[at()]).rows_moved());
          return moved * c10::multiply_integers(head) *
                 static_cast<int64_t>(c10::elementSize(spec->dtype()));
        });
  }
  /// The head that this rank's heads of the query read.
  at::Tensor taken(const at::Tensor& t, const Placements& given) const {
    return are_sharded(given)
               ? take(rank())(t, 1, 0, group())
               : t.narrow(1, rank() / ranks_per_head(), 1).contiguous();
  }
  /// Its gradient: the sum of a group's on the rank that holds the head, or a
  /// partial value of all heads.
  at::Tensor given_back(const at::Tensor& t, const Placements& given) const {
    if (are_sharded(given)) {
      const at::Tensor all = give_back(rank())(t, 1, 0, group());
      std::vector<int64_t> shape = all.sizes().vec();
      shape[1] /= ranks_per_head();
      shape.insert(shape.begin() + 2, ranks_per_head());
      return all.contiguous().view(shape).sum(2);
    }
    std::vector<int64_t> shape = t.sizes().vec();
    shape[1] = heads_;
    at::Tensor all = at::zeros(shape, t.options());
    all.narrow(1, rank() / ranks_per_head(), 1).copy_(t);
    return all;
  }
  Placements of_gradient(Placements before) const {
    Placement& p = before[at()];
    p = p.is_shard() ? p : Partial();
    return before;
  }

 private:
  size_t at() const { return static_cast<size_t>(mesh_dim_); }
  int64_t ranks() const { return decomposed_.mesh().size(mesh_dim_); }
  int64_t ranks_per_head() const { return ranks() / heads_; }
  int64_t rank() const { return decomposed_.coordinate()[at()]; }
  Communicator group() const {
    return decomposed_.mesh().communicator(mesh_dim_);
  }
  // Heads of each rank, times `each`: one head a rank, then none.
  std::vector<Run> held(int64_t each) const {
    std::vector<Run> runs;
    for (int64_t r = 0; r < ranks(); ++r) {
      runs.push_back(
          {std::min(r, heads_) * each, std::min(r + 1, heads_) * each});
    }
    return runs;
  }
  std::vector<Run> one_each() const {
    std::vector<Run> runs;
    for (int64_t r = 0; r < ranks(); ++r) {
      runs.push_back({r, r + 1});
    }
    return runs;
  }
  RowExchange take(int64_t r) const {
    return RowExchange(
        held(1), one_each(),
        [n = ranks_per_head()](int64_t i) { return i / n; }, r);
  }
  RowExchange give_back(int64_t r) const {
    return RowExchange(
        one_each(), held(ranks_per_head()), [](int64_t i) { return i; }, r);
  }

  const DecomposedCall& decomposed_;
  int64_t mesh_dim_;
  int64_t heads_;
};

}  // namespace tessera::detail::inline tensor_layer
