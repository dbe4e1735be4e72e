// Pools with windows of one size over sharded dims: of maxima and of averages.
// Ranks exchange the rows that their windows read beyond their own, and pool
// what they have; where windows end with the shards nothing moves.
#include <tensor/decompositions/images/pooling.h>

#include <algorithm>

#include <ATen/TensorOperators.h>
#include <ATen/ops/empty.h>
#include <ATen/ops/tensor.h>
#include <ATen/ops/zeros.h>
#include <c10/util/accumulate.h>
#include <tensor/decompositions/images/plane_indices.h>
#include <tensor/decompositions/table.h>
#include <tensor/state/value_limits.h>

namespace tessera::detail::inline tensor_layer {

namespace {

std::vector<int64_t> per_dim(std::vector<int64_t> list, size_t dims) {
  return list.size() == 1 ? std::vector<int64_t>(dims, list[0]) : list;
}

// The static arguments of a pool, one number per dim of the image.
struct PoolArguments {
  // `get(name)` returns a list of the call, `has(name)` tells whether there is
  // one.
  template <class Get, class Has>
  PoolArguments(size_t dims, bool ceil, const Get& get, const Has& has)
      : kernel(per_dim(get("kernel_size"), dims)),
        stride(get("stride").empty() ? kernel : per_dim(get("stride"), dims)),
        padding(per_dim(get("padding"), dims)),
        dilation(
            has("dilation") ? per_dim(get("dilation"), dims)
                            : std::vector<int64_t>(dims, 1)),
        rounds_up(ceil) {}

  Window along(size_t i) const {
    return {kernel[i], stride[i], padding[i], dilation[i]};
  }
  // Rounding up takes a window that ends beyond the padding, if it begins in
  // the image or in the padding before it.
  int64_t count(size_t i, int64_t rows) const {
    const Window w = along(i);
    const int64_t steps = rows + 2 * w.padding - w.span();
    if (steps < 0 || !rounds_up) {
      return w.count(rows);
    }
    const int64_t count = (steps + w.stride - 1) / w.stride + 1;
    return (count - 1) * w.stride >= rows + w.padding ? count - 1 : count;
  }

  std::vector<int64_t> kernel;
  std::vector<int64_t> stride;
  std::vector<int64_t> padding;
  std::vector<int64_t> dilation;
  bool rounds_up;
};

size_t image_dims_of(const c10::FunctionSchema& schema) {
  return schema.name().find("3d") != std::string::npos ? 3 : 2;
}

PoolArguments arguments_of(const DecomposedCall& decomposed, size_t dims) {
  return PoolArguments(
      dims, decomposed.argument("ceil_mode").toBool(),
      [&](const char* name) { return decomposed.argument(name).toIntVector(); },
      [&](const char* name) { return decomposed.has_argument(name); });
}

// A pool whose operand is sharded along dims of the image.
struct ShardedPool {
  explicit ShardedPool(const DecomposedCall& decomposed)
      : dims(image_dims_of(decomposed.call().schema())),
        arguments(arguments_of(decomposed, dims)),
        self(decomposed.spec(decomposed.tensor("self"))),
        first(self->shape().size() - dims),
        windows(
            *self, result_shape(), static_cast<int64_t>(first),
            [a = arguments, f = first](int64_t dim, const Run& results) {
              return a.along(static_cast<size_t>(dim) - f).read_by(results);
            }) {
    windows.follow_format(*self);
  }

  std::vector<int64_t> result_shape() const {
    std::vector<int64_t> shape = self->shape();
    for (size_t i = 0; i < dims; ++i) {
      shape[first + i] = arguments.count(i, shape[first + i]);
    }
    return shape;
  }
  bool is_sharded(size_t i) const {
    return windows.is_sharded(static_cast<int64_t>(first + i));
  }
  // The padding of the operator on what the halo gives.
  std::vector<int64_t> local_padding() const {
    std::vector<int64_t> padding = arguments.padding;
    for (size_t i = 0; i < dims; ++i) {
      padding[i] = is_sharded(i) ? 0 : padding[i];
    }
    return padding;
  }
  at::Tensor shard_of_self(DecomposedCall& decomposed) const {
    return decomposed.shard(
        "self", decomposed.tensor("self"), windows.operand_placements());
  }
  at::Tensor shard_of_result(
      DecomposedCall& decomposed, const char* name) const {
    return decomposed.shard(
        name, decomposed.tensor(name), windows.result()->placements());
  }
  bool gives_nothing() const {
    return c10::multiply_integers(windows.result()->local_shape()) == 0;
  }

  size_t dims;
  PoolArguments arguments;
  SpecPtr self;
  size_t first;  // dim of the image
  WindowedCall windows;
};

void max_pool(const OpCall& call) {
  DecomposedCall decomposed(call);
  const ShardedPool pool(decomposed);
  pool.windows.announce(decomposed, "self");
  const at::Tensor x = pool.shard_of_self(decomposed);
  at::Tensor y, indices;
  if (decomposed.computes()) {
    const Halo halo = pool.windows.halo(decomposed);
    const at::Tensor read = halo.gather(
        x, pool.windows.group(decomposed), smallest_value(x.scalar_type()));
    if (pool.gives_nothing()) {
      y = at::empty(pool.windows.result()->local_shape(), x.options());
      indices = at::empty(y.sizes(), x.options().dtype(at::kLong));
    } else {
      const auto results = decomposed.run_operator(
          {{"self", read}, {"padding", pool.local_padding()}});
      y = results[0].toTensor();
      indices = to_plane_indices(
          results[1].toTensor(), plane_part(halo, *pool.self, pool.first),
          pool.arguments.dilation);
    }
  }
  decomposed.finish(
      {decomposed.wrap(pool.windows.result(), [&] { return y; }),
       decomposed.wrap(pool.windows.result()->with_dtype(at::kLong), [&] {
         return indices;
       })});
}

void max_pool_backward(const OpCall& call) {
  DecomposedCall decomposed(call);
  const ShardedPool pool(decomposed);
  finish_max_backward(
      decomposed, pool.windows, pool.first,
      pool.shard_of_result(decomposed, "grad_output"),
      pool.shard_of_result(decomposed, "indices"));
}

// How many elements each of a rank's windows is divided by: the product of a
// number per row, per column ...
struct Divisors {
  Divisors(const DecomposedCall& decomposed, const ShardedPool& pool) {
    const std::vector<int64_t>& coordinate = decomposed.coordinate();
    const bool padded = decomposed.argument("count_include_pad").toBool();
    for (size_t i = 0; i < pool.dims; ++i) {
      const auto d = static_cast<int64_t>(pool.first + i);
      const int64_t rows = pool.self->shape()[pool.first + i];
      const Window w = pool.arguments.along(i);
      per_dim.emplace_back();
      for (const Run& run :
           pool.windows.result()->layout().runs(d, coordinate)) {
        for (int64_t row = run.begin; row < run.end; ++row) {
          const int64_t begin = row * w.stride - w.padding;
          const int64_t end = std::min(begin + w.size, rows + w.padding);
          per_dim.back().push_back(
              padded ? end - begin
                     : std::min(end, rows) - std::max<int64_t>(begin, 0));
        }
      }
    }
  }

  // The one number, where all windows are divided by the same.
  std::optional<int64_t> uniform() const {
    int64_t product = 1;
    for (const auto& counts : per_dim) {
      if (counts.empty() ||
          std::count(counts.begin(), counts.end(), counts[0]) !=
              static_cast<int64_t>(counts.size())) {
        return std::nullopt;
      }
      product *= counts[0];
    }
    return product;
  }

  at::Tensor divided(at::Tensor t) const {
    for (size_t i = 0; i < per_dim.size(); ++i) {
      std::vector<int64_t> shape(per_dim.size(), 1);
      shape[i] = static_cast<int64_t>(per_dim[i].size());
      t = t / at::tensor(per_dim[i], at::kLong).to(t.device()).view(shape);
    }
    return t;
  }

  std::vector<std::vector<int64_t>> per_dim;
};

// The divisor with which the operator runs on a rank: its own where the call
// names one or all windows have one; 1, and `divides`, where they differ.
struct LocalDivisor {
  LocalDivisor(const DecomposedCall& decomposed, const ShardedPool& pool)
      : divisors(decomposed, pool) {
    const c10::IValue& given = decomposed.argument("divisor_override");
    const auto same = given.isNone() ? divisors.uniform()
                                     : std::optional<int64_t>(given.toInt());
    divides = !same.has_value();
    override_by = same.value_or(1);
  }
  Divisors divisors;
  bool divides = false;
  int64_t override_by = 1;
};

void avg_pool(const OpCall& call) {
  DecomposedCall decomposed(call);
  const ShardedPool pool(decomposed);
  pool.windows.announce(decomposed, "self");
  const at::Tensor x = pool.shard_of_self(decomposed);
  decomposed.finish({decomposed.wrap(pool.windows.result(), [&] {
    const at::Tensor read =
        pool.windows.halo(decomposed).gather(x, pool.windows.group(decomposed));
    if (pool.gives_nothing()) {
      return at::empty(pool.windows.result()->local_shape(), x.options());
    }
    const LocalDivisor divisor(decomposed, pool);
    const at::Tensor y =
        decomposed
            .run_operator(
                {{"self",
                  divisor.divides ? read.to(sum_type(x.scalar_type())) : read},
                 {"padding", pool.local_padding()},
                 {"divisor_override", divisor.override_by}})[0]
            .toTensor();
    return divisor.divides ? divisor.divisors.divided(y).to(x.scalar_type())
                           : y;
  })});
}

void avg_pool_backward(const OpCall& call) {
  DecomposedCall decomposed(call);
  const ShardedPool pool(decomposed);
  pool.windows.announce(decomposed, "self");
  const at::Tensor g = pool.shard_of_result(decomposed, "grad_output");
  decomposed.finish({decomposed.wrap(pool.windows.operand(), [&] {
    const Halo halo = pool.windows.halo(decomposed);
    const auto format = g.suggest_memory_format();
    at::Tensor gradient;
    if (pool.gives_nothing()) {
      gradient = at::zeros(halo.padded_shape(), g.options());
    } else {
      const LocalDivisor divisor(decomposed, pool);
      gradient =
          decomposed
              .run_operator(
                  {{"grad_output", divisor.divides ? divisor.divisors.divided(g)
                                                         .to(g.scalar_type())
                                                         .contiguous(format)
                                                   : g.contiguous(format)},
                   // Read for its shape.
                   {"self",
                    at::empty(halo.padded_shape(), g.options(), format)},
                   {"padding", pool.local_padding()},
                   {"divisor_override", divisor.override_by}})[0]
              .toTensor();
    }
    return halo.scatter_sum(gradient, pool.windows.group(decomposed));
  })});
}

// Kernels fail on empty images, and say what is wrong with a call.
bool pool_is_sharded(const RuleCall& call, const Operand& self) {
  const size_t dims = image_dims_of(call.schema());
  if (self.shape.size() != dims + 1 && self.shape.size() != dims + 2) {
    return false;
  }
  const size_t first = self.shape.size() - dims;
  if (!shards_any(*self.placements)) {
    return false;
  }
  const PoolArguments a(
      dims, call.boolean("ceil_mode"),
      [&](const char* name) { return call.integers(name); },
      [&](const char* name) { return call.has_argument(name); });
  for (size_t i = 0; i < dims; ++i) {
    const Window w = a.along(i);
    if (w.size < 1 || w.stride < 1 || w.dilation < 1 || w.padding < 0 ||
        2 * w.padding > w.span() || a.count(i, self.shape[first + i]) < 1) {
      return false;
    }
  }
  return c10::multiply_integers(self.shape) > 0;
}

bool max_pool_is_sharded(const RuleCall& call) {
  return pool_is_sharded(call, call.operand(0));
}
bool avg_pool_is_sharded(const RuleCall& call) {
  return c10::isFloatingType(call.operand(0).dtype) &&
         pool_is_sharded(call, call.operand(0));
}
bool pool_backward_is_sharded(const RuleCall& call) {
  return pool_is_sharded(call, call.operand(1));
}

bool wants_pool(
    const RuleCall& call, const Operand& self, const MeshShape& mesh) {
  return wants_windowed_call(
      self, self.ndim() - static_cast<int64_t>(image_dims_of(call.schema())),
      mesh);
}
bool pool_is_wanted(const RuleCall& call, const MeshShape& mesh) {
  return wants_pool(call, call.operand(0), mesh);
}
bool pool_backward_is_wanted(const RuleCall& call, const MeshShape& mesh) {
  return wants_pool(call, call.operand(1), mesh);
}

}  // namespace

PlanePart plane_part(const Halo& halo, const DTensorSpec& self, size_t first) {
  PlanePart part;
  for (size_t d = first; d < self.shape().size(); ++d) {
    part.plane.push_back(self.shape()[d]);
    part.begin.push_back(halo.begin(static_cast<int64_t>(d)));
    part.sizes.push_back(halo.padded_shape()[d]);
  }
  return part;
}

void finish_max_backward(
    const DecomposedCall& decomposed, const WindowedCall& windows, size_t first,
    const at::Tensor& gradient, const at::Tensor& indices) {
  windows.announce(decomposed, "self");
  decomposed.finish({decomposed.wrap(windows.operand(), [&] {
    const Halo halo = windows.halo(decomposed);
    const at::Tensor read = at::zeros(halo.padded_shape(), gradient.options());
    if (gradient.numel() > 0) {
      const auto from = static_cast<int64_t>(first);
      const at::Tensor at =
          to_part_indices(indices, plane_part(halo, *windows.operand(), first));
      read.flatten(from).scatter_add_(
          -1, at.flatten(from), gradient.flatten(from));
    }
    return halo.scatter_sum(read, windows.group(decomposed));
  })});
}

void add_pooling_decompositions(OpRegistry& ops) {
  for (const std::string dims : {"2d", "3d"}) {
    ops.at("aten::max_pool" + dims + "_with_indices").decomposition = {
        max_pool_is_sharded, max_pool, pool_is_wanted};
    ops.at("aten::max_pool" + dims + "_with_indices_backward").decomposition = {
        pool_backward_is_sharded, max_pool_backward, pool_backward_is_wanted};
    ops.at("aten::avg_pool" + dims).decomposition = {
        avg_pool_is_sharded, avg_pool, pool_is_wanted};
    ops.at("aten::avg_pool" + dims + "_backward").decomposition = {
        pool_backward_is_sharded, avg_pool_backward, pool_backward_is_wanted};
  }
}

}  // namespace tessera::detail::inline tensor_layer
