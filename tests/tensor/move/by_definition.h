// Shards straight from the definition of the placements: element number k of a
// tensor (row-major) has the value k + 1, and the addends of a Partial combine
// to it exactly. Shares no arithmetic with the library.
#pragma once

#include <optional>
#include <sstream>
#include <string>
#include <vector>

#include <ATen/ops/empty.h>

#include "harness/sharded_test.h"
#include "layout/reference.h"

namespace tessera::by_definition {

using reference::List;

/// Sanitized programs run about ten times slower, and do a tenth.
#if defined(__SANITIZE_ADDRESS__) || defined(__SANITIZE_THREAD__)
inline constexpr int64_t kSlow = 10;
#else
inline constexpr int64_t kSlow = 1;
#endif

/// Returns the numbers of the elements that a coordinate holds, in storage
/// order.
inline List numbers(
    const List& shape, const List& mesh_sizes, const Placements& placements,
    const List& coordinate) {
  List result{0};
  for (size_t d = 0; d < shape.size(); ++d) {
    const List held = reference::held(
        shape[d], static_cast<int64_t>(d), mesh_sizes, placements, coordinate);
    List longer;
    for (const int64_t outer : result) {
      for (const int64_t i : held) {
        longer.push_back(outer * shape[d] + i);
      }
    }
    result = std::move(longer);
  }
  return result;
}

/// Returns what coordinate `c` of `n` adds so that all of them combine to
/// `value`; irregular, and exact in any dtype that holds small integers and
/// halves of them.
inline double addend(
    ReduceOp op, double value, int64_t number, int64_t c, int64_t n) {
  const auto other = [&](int64_t at) {
    return static_cast<double>((number * 7 + at * 13) % 11 - 5);
  };
  const bool chosen = number % n == c;
  double rest = 0;
  switch (op) {
    case ReduceOp::kSum:
    case ReduceOp::kAvg:
      for (int64_t at = 0; at + 1 < n; ++at) {
        rest += other(at);
      }
      value *= op == ReduceOp::kAvg ? static_cast<double>(n) : 1.0;
      return c + 1 < n ? other(c) : value - rest;
    case ReduceOp::kMax:
      return chosen ? value : value - 1 - static_cast<double>(c);
    case ReduceOp::kMin:
      return chosen ? value : value + 1 + static_cast<double>(c);
    case ReduceOp::kProduct:
      return n == 1 ? value : c == 0 ? -value : c == 1 ? -1.0 : 1.0;
  }
  return 0;
}

inline double combine(ReduceOp op, double a, double b) {
  switch (op) {
    case ReduceOp::kSum:
    case ReduceOp::kAvg:
      return a + b;
    case ReduceOp::kMax:
      return std::max(a, b);
    case ReduceOp::kMin:
      return std::min(a, b);
    case ReduceOp::kProduct:
      return a * b;
  }
  return 0;
}

/// Returns the shard of this rank, as a plain f64 tensor; of any shape [0] on a
/// rank outside.
inline at::Tensor shard(
    const List& shape, const DeviceMesh& mesh, const Placements& placements) {
  const at::TensorOptions options = testing::f64();
  if (!mesh.coordinate()) {
    return at::empty({0}, options);
  }
  const List& coordinate = *mesh.coordinate();
  std::vector<double> values;
  for (const int64_t number :
       numbers(shape, mesh.shape(), placements, coordinate)) {
    double value = static_cast<double>(number) + 1;
    for (size_t m = 0; m < placements.size(); ++m) {
      if (placements[m].is_partial()) {
        value = addend(
            placements[m].reduce_op(), value, number, coordinate[m],
            mesh.size(static_cast<int64_t>(m)));
      }
    }
    values.push_back(value);
  }
  List local;
  for (size_t d = 0; d < shape.size(); ++d) {
    local.push_back(
        static_cast<int64_t>(reference::held(
                                 shape[d], static_cast<int64_t>(d),
                                 mesh.shape(), placements, coordinate)
                                 .size()));
  }
  return at::tensor(values, at::kDouble).reshape(local).to(options);
}

/// Makes the sharded tensor of a layout, without the library's help.
inline at::Tensor make(
    const List& shape, const DeviceMesh& mesh, const Placements& placements) {
  return from_local(
      shard(shape, mesh, placements), mesh, placements, {.shape = shape});
}

inline std::vector<double> values_of(const at::Tensor& local) {
  const at::Tensor flat =
      local.to(at::kCPU, at::kDouble).contiguous().reshape({-1});
  const double* data = flat.const_data_ptr<double>();
  return {data, data + flat.numel()};
}

/// Says where this rank's shard of a tensor without Partial differs from the
/// definition, or nothing.
inline std::optional<std::string> difference(const at::Tensor& tensor) {
  const DTensorSpec& spec = tessera::spec(tensor);
  if (!spec.has_shard()) {
    return std::nullopt;
  }
  const auto got = values_of(to_local(tensor));
  const List want = numbers(
      spec.shape(), spec.mesh().shape(), spec.placements(),
      *spec.mesh().coordinate());
  bool same = got.size() == want.size();
  for (size_t i = 0; same && i < want.size(); ++i) {
    same = got[i] == static_cast<double>(want[i]) + 1;
  }
  if (same) {
    return std::nullopt;
  }
  std::ostringstream text;
  text << to_string(spec) << ", rank " << rank() << ": got";
  for (const double x : got) {
    text << ' ' << x;
  }
  text << ", want one more than";
  for (const int64_t x : want) {
    text << ' ' << x;
  }
  return text.str();
}

/// The shards of all ranks, for tensors whose addends have to be combined. One
/// object for all rank threads.
class Exhibition {
 public:
  explicit Exhibition(int64_t ranks) : shards_(static_cast<size_t>(ranks)) {}

  /// Says where the combined addends differ from the definition. All ranks of
  /// the mesh call.
  std::optional<std::string> difference(const at::Tensor& tensor) {
    const DTensorSpec& spec = tessera::spec(tensor);
    if (!spec.has_shard()) {
      return std::nullopt;
    }
    const Communicator all = spec.mesh().whole();
    shards_[static_cast<size_t>(rank())] = values_of(to_local(tensor));
    all.barrier();
    auto wrong = compare(spec);
    all.barrier();
    return wrong;
  }

 private:
  std::optional<std::string> compare(const DTensorSpec& spec) const {
    const List& mine = *spec.mesh().coordinate();
    const List want =
        numbers(spec.shape(), spec.mesh().shape(), spec.placements(), mine);
    for (size_t i = 0; i < want.size(); ++i) {
      const double got = combined(spec, mine, 0, i);
      if (got != static_cast<double>(want[i]) + 1) {
        std::ostringstream text;
        text << to_string(spec) << ", rank " << rank() << ": element "
             << want[i] << " combines to " << got;
        return text.str();
      }
    }
    return std::nullopt;
  }

  double combined(
      const DTensorSpec& spec, List at, size_t m, size_t position) const {
    if (m == at.size()) {
      const int64_t owner = spec.mesh().mesh_shape().rank_at(at);
      return shards_[static_cast<size_t>(owner)].at(position);
    }
    if (!spec.placements()[m].is_partial()) {
      return combined(spec, at, m + 1, position);
    }
    const ReduceOp op = spec.placements()[m].reduce_op();
    const int64_t n = spec.mesh().size(static_cast<int64_t>(m));
    double total = 0;
    for (int64_t c = 0; c < n; ++c) {
      at[m] = c;
      const double next = combined(spec, at, m + 1, position);
      total = c == 0 ? next : combine(op, total, next);
    }
    return op == ReduceOp::kAvg ? total / static_cast<double>(n) : total;
  }

  std::vector<std::vector<double>> shards_;
};

}  // namespace tessera::by_definition
