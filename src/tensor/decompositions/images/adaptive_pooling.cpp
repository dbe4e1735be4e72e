// Adaptive pools over sharded dims: result i of m reads rows
// floor(i * n / m) .. ceil((i + 1) * n / m) of n. Where m divides n these are
// windows of one size, and a rank pools its part at once; else it pools one
// result after the other.
#include <algorithm>
#include <functional>

#include <ATen/ops/cat.h>
#include <ATen/ops/empty.h>
#include <ATen/ops/zeros.h>
#include <c10/util/accumulate.h>
#include <tensor/decompositions/images/pooling.h>
#include <tensor/decompositions/table.h>
#include <tensor/state/value_limits.h>

namespace tessera::detail::inline tensor_layer {

namespace {

struct AdaptiveDim {
  int64_t rows;     // n
  int64_t results;  // m

  bool is_regular() const { return rows % results == 0; }
  Run read_by(const Run& run) const {
    return {
        run.begin * rows / results, (run.end * rows + results - 1) / results};
  }
};

size_t dims_of(const c10::FunctionSchema& schema) {
  return schema.name().find("3d") != std::string::npos ? 3 : 2;
}

// An adaptive pool whose operand is sharded along dims of the image.
struct AdaptivePool {
  // `sizes` are those of the result's image.
  AdaptivePool(const DecomposedCall& decomposed, std::vector<int64_t> sizes)
      : self(decomposed.spec(decomposed.tensor("self"))),
        first(self->shape().size() - dims_of(decomposed.call().schema())),
        results(std::move(sizes)),
        windows(
            *self, result_shape(), static_cast<int64_t>(first),
            [this](int64_t dim, const Run& run) {
              return along(static_cast<size_t>(dim)).read_by(run);
            }) {
    windows.follow_format(*self);
  }
  AdaptivePool(const AdaptivePool&) = delete;  // `windows` refers to it
  AdaptivePool& operator=(const AdaptivePool&) = delete;

  AdaptiveDim along(size_t dim) const {
    return {self->shape()[dim], results[dim - first]};
  }
  std::vector<int64_t> result_shape() const {
    std::vector<int64_t> shape = self->shape();
    std::copy(
        results.begin(), results.end(),
        shape.begin() + static_cast<int64_t>(first));
    return shape;
  }
  const std::vector<int64_t>& local_shape() const {
    return windows.result()->local_shape();
  }
  // The rank's indices of a dim of the result.
  Run run_of(const DecomposedCall& decomposed, size_t dim) const {
    return windows.result()->layout().runs(
        static_cast<int64_t>(dim), decomposed.coordinate())[0];
  }

  SpecPtr self;
  size_t first;  // dim of the image
  std::vector<int64_t> results;
  WindowedCall windows;
};

// What one call of the operator on a rank works on.
struct Tile {
  std::vector<int64_t> begin;    // of what it reads, in the halo, per dim
  std::vector<int64_t> sizes;    // of what it reads
  std::vector<int64_t> at;       // of its results, in the shard
  std::vector<int64_t> results;  // how many
};

at::Tensor part(
    at::Tensor t, const std::vector<int64_t>& begin,
    const std::vector<int64_t>& sizes) {
  for (size_t d = 0; d < begin.size(); ++d) {
    t = t.narrow(static_cast<int64_t>(d), begin[d], sizes[d]);
  }
  return t;
}

// Calls f for the tiles of a rank: all of it along regular dims and those that
// are not sharded, one result along the others.
void for_each_tile(
    const DecomposedCall& decomposed, const AdaptivePool& pool,
    const Halo& halo, const std::function<void(const Tile&)>& f) {
  if (c10::multiply_integers(pool.local_shape()) == 0) {
    return;
  }
  std::vector<Tile> tiles{{}};
  for (size_t d = 0; d < pool.local_shape().size(); ++d) {
    const int64_t count = pool.local_shape()[d];
    const bool whole = d < pool.first ||
                       !pool.windows.is_sharded(static_cast<int64_t>(d)) ||
                       pool.along(d).is_regular();
    std::vector<Tile> next;
    for (const Tile& tile : tiles) {
      for (int64_t i = 0; i < (whole ? 1 : count); ++i) {
        Run read{0, halo.padded_shape()[d]};
        if (!whole) {
          const int64_t result = pool.run_of(decomposed, d).begin + i;
          read = pool.along(d).read_by({result, result + 1});
          read.begin -= halo.begin(static_cast<int64_t>(d));
          read.end -= halo.begin(static_cast<int64_t>(d));
        }
        next.push_back(tile);
        next.back().begin.push_back(read.begin);
        next.back().sizes.push_back(read.length());
        next.back().at.push_back(i);
        next.back().results.push_back(whole ? count : 1);
      }
    }
    tiles = std::move(next);
  }
  for (const Tile& tile : tiles) {
    f(tile);
  }
}

std::vector<int64_t> image(const AdaptivePool& pool, const Tile& tile) {
  return {
      tile.results.begin() + static_cast<int64_t>(pool.first),
      tile.results.end()};
}

void adaptive_avg_pool(const OpCall& call) {
  DecomposedCall decomposed(call);
  const AdaptivePool pool(
      decomposed, decomposed.argument("output_size").toIntVector());
  pool.windows.announce(decomposed, "self");
  const at::Tensor x = decomposed.shard(
      "self", decomposed.tensor("self"), pool.windows.operand_placements());
  decomposed.finish({decomposed.wrap(pool.windows.result(), [&] {
    const Halo halo = pool.windows.halo(decomposed);
    const at::Tensor read = halo.gather(x, pool.windows.group(decomposed));
    const at::Tensor y = at::empty(pool.local_shape(), x.options());
    for_each_tile(decomposed, pool, halo, [&](const Tile& tile) {
      const auto result = decomposed.run_operator(
          {{"self", part(read, tile.begin, tile.sizes)},
           {"output_size", image(pool, tile)}});
      part(y, tile.at, tile.results).copy_(result[0].toTensor());
    });
    return y;
  })});
}

std::vector<int64_t> image_of(const at::Tensor& t, const OpCall& call) {
  const auto dims = static_cast<int64_t>(dims_of(call.schema()));
  return {t.sizes().end() - dims, t.sizes().end()};
}

void adaptive_avg_pool_backward(const OpCall& call) {
  DecomposedCall decomposed(call);
  const at::Tensor gradient = decomposed.tensor("grad_output");
  const AdaptivePool pool(decomposed, image_of(gradient, call));
  pool.windows.announce(decomposed, "self");
  const at::Tensor g = decomposed.shard(
      "grad_output", gradient, pool.windows.result()->placements());
  decomposed.finish({decomposed.wrap(pool.windows.operand(), [&] {
    const Halo halo = pool.windows.halo(decomposed);
    const at::Tensor read = at::zeros(halo.padded_shape(), g.options());
    for_each_tile(decomposed, pool, halo, [&](const Tile& tile) {
      const at::Tensor of_tile = part(read, tile.begin, tile.sizes);
      const auto result = decomposed.run_operator(
          {{"grad_output", part(g, tile.at, tile.results).contiguous()},
           // Read for its shape.
           {"self", at::empty(of_tile.sizes(), g.options())}});
      of_tile.add_(result[0].toTensor());
    });
    return halo.scatter_sum(read, pool.windows.group(decomposed));
  })});
}

void adaptive_max_pool(const OpCall& call) {
  DecomposedCall decomposed(call);
  const AdaptivePool pool(
      decomposed, decomposed.argument("output_size").toIntVector());
  pool.windows.announce(decomposed, "self");
  const at::Tensor x = decomposed.shard(
      "self", decomposed.tensor("self"), pool.windows.operand_placements());
  at::Tensor y, indices;
  if (decomposed.computes()) {
    const Halo halo = pool.windows.halo(decomposed);
    const at::Tensor read = halo.gather(x, pool.windows.group(decomposed));
    y = at::empty(pool.local_shape(), x.options());
    indices = at::empty(pool.local_shape(), x.options().dtype(at::kLong));
    for_each_tile(decomposed, pool, halo, [&](const Tile& tile) {
      const auto result = decomposed.run_operator(
          {{"self", part(read, tile.begin, tile.sizes)},
           {"output_size", image(pool, tile)}});
      PlanePart of_tile = plane_part(halo, *pool.self, pool.first);
      for (size_t i = 0; i < of_tile.begin.size(); ++i) {
        of_tile.begin[i] += tile.begin[pool.first + i];
        of_tile.sizes[i] = tile.sizes[pool.first + i];
      }
      part(y, tile.at, tile.results).copy_(result[0].toTensor());
      part(indices, tile.at, tile.results)
          .copy_(to_plane_indices(
              result[1].toTensor(), of_tile,
              std::vector<int64_t>(of_tile.begin.size(), 1)));
    });
  }
  decomposed.finish(
      {decomposed.wrap(pool.windows.result(), [&] { return y; }),
       decomposed.wrap(pool.windows.result()->with_dtype(at::kLong), [&] {
         return indices;
       })});
}

void adaptive_max_pool_backward(const OpCall& call) {
  DecomposedCall decomposed(call);
  const at::Tensor gradient = decomposed.tensor("grad_output");
  const AdaptivePool pool(decomposed, image_of(gradient, call));
  const auto shard = [&](const char* name) {
    return decomposed.shard(
        name, decomposed.tensor(name), pool.windows.result()->placements());
  };
  finish_max_backward(
      decomposed, pool.windows, pool.first, shard("grad_output"),
      shard("indices"));
}

bool is_sharded_image(
    const RuleCall& call, const Operand& self, c10::IntArrayRef sizes) {
  const size_t dims = dims_of(call.schema());
  return c10::isFloatingType(self.dtype) && sizes.size() == dims &&
         (self.shape.size() == dims + 1 || self.shape.size() == dims + 2) &&
         c10::multiply_integers(self.shape) > 0 &&
         std::all_of(
             sizes.begin(), sizes.end(), [](int64_t n) { return n > 0; }) &&
         shards_windows(
             *self.placements, static_cast<int64_t>(self.shape.size() - dims));
}

bool adaptive_pool_is_sharded(const RuleCall& call) {
  return is_sharded_image(call, call.operand(0), call.integers("output_size"));
}

bool adaptive_backward_is_sharded(const RuleCall& call) {
  const c10::IntArrayRef shape = call.operand(0).shape;
  const size_t dims = dims_of(call.schema());
  return shape.size() > dims &&
         is_sharded_image(
             call, call.operand(1), shape.slice(shape.size() - dims));
}

}  // namespace

void add_adaptive_pooling_decompositions(OpRegistry& ops) {
  for (const char* name :
       {"aten::_adaptive_avg_pool2d", "aten::_adaptive_avg_pool3d"}) {
    ops.at(name).decomposition = {adaptive_pool_is_sharded, adaptive_avg_pool};
  }
  for (const char* name :
       {"aten::_adaptive_avg_pool2d_backward",
        "aten::_adaptive_avg_pool3d_backward"}) {
    ops.at(name).decomposition = {
        adaptive_backward_is_sharded, adaptive_avg_pool_backward};
  }
  for (const char* name :
       {"aten::adaptive_max_pool2d", "aten::adaptive_max_pool3d"}) {
    ops.at(name).decomposition = {adaptive_pool_is_sharded, adaptive_max_pool};
  }
  for (const char* name :
       {"aten::adaptive_max_pool2d_backward",
        "aten::adaptive_max_pool3d_backward"}) {
    ops.at(name).decomposition = {
        adaptive_backward_is_sharded, adaptive_max_pool_backward};
  }
}

}  // namespace tessera::detail::inline tensor_layer
