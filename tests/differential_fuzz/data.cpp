#include "differential_fuzz/data.h"

#include <algorithm>

#include <ATen/ATen.h>
#include <tessera/layout/layout.h>
#include <tessera/layout/notation.h>
#include <tessera/tensor/dtensor.h>

namespace tessera::programs {
namespace {

int64_t count_of(const Placements& placements, bool (*test)(const Placement&)) {
  return std::count_if(placements.begin(), placements.end(), test);
}

// Addends of one mesh dim combine in the order of its coordinates; of two, the
// plan is free to choose.
at::Tensor whole_of(
    const std::vector<at::Tensor>& addends, c10::ScalarType dtype,
    const Placements& placements) {
  const auto partial = [](const Placement& p) { return p.is_partial(); };
  const int64_t dims = count_of(placements, partial);
  if (dims == 0) {
    return addends[0];
  }
  const ReduceOp op =
      std::find_if(placements.begin(), placements.end(), partial)->reduce_op();
  const bool any_order =
      dtype == at::kLong || op == ReduceOp::kMax || op == ReduceOp::kMin;
  return dims == 1 || any_order ? combine(addends, op) : at::Tensor();
}

}  // namespace

at::Tensor distinct(const List& shape, c10::ScalarType dtype, int64_t salt) {
  const int64_t n = c10::multiply_integers(shape);
  const at::Tensor number = at::arange(n, at::kLong);
  if (dtype == at::kBFloat16) {
    // Few bits: quarters, distinct for up to 251 elements.
    return number.mul(31)
        .add(salt * 7)
        .remainder(251)
        .sub(125)
        .to(at::kDouble)
        .div(4)
        .reshape(shape)
        .to(dtype);
  }
  const at::Tensor mixed =
      number.mul(7919).add(salt * 104729).remainder(1000003);
  if (dtype == at::kBool) {
    return mixed.remainder(7).lt(3).reshape(shape);
  }
  if (dtype == at::kLong) {
    return mixed.sub(500001).reshape(shape).contiguous();
  }
  return mixed.to(at::kDouble)
      .div(250000.75)
      .sub(2.0)
      .reshape(shape)
      .to(dtype)
      .contiguous();
}

at::Tensor combine(const std::vector<at::Tensor>& addends, ReduceOp op) {
  const c10::ScalarType dtype = addends[0].scalar_type();
  const c10::ScalarType wide = dtype == at::kBFloat16 ? at::kFloat : dtype;
  at::Tensor total = addends[0].to(wide);
  for (size_t i = 1; i < addends.size(); ++i) {
    const at::Tensor next = addends[i].to(wide);
    switch (op) {
      case ReduceOp::kSum:
      case ReduceOp::kAvg:
        total = dtype == at::kBool ? total.logical_or(next) : total.add(next);
        break;
      case ReduceOp::kMax:
        total = at::maximum(total, next);
        break;
      case ReduceOp::kMin:
        total = at::minimum(total, next);
        break;
      case ReduceOp::kProduct:
        total = total.mul(next);
        break;
    }
  }
  if (op == ReduceOp::kAvg) {
    total = total.div(static_cast<double>(addends.size()));
  }
  return total.to(dtype);
}

Cut cut_distinct(
    const List& shape, c10::ScalarType dtype, int64_t salt,
    const DeviceMesh& mesh, const Placements& placements) {
  const Layout layout(shape, mesh.mesh_shape(), placements);
  const List& mine = *mesh.coordinate();
  int64_t parts = 1;
  int64_t part = 0;
  for (size_t m = 0; m < placements.size(); ++m) {
    if (placements[m].is_partial()) {
      const int64_t size = mesh.size(static_cast<int64_t>(m));
      parts *= size;
      part = part * size + mine[m];
    }
  }
  std::vector<at::Tensor> addends;
  for (int64_t p = 0; p < parts; ++p) {
    addends.push_back(distinct(shape, dtype, salt + p));
  }
  at::Tensor local = addends[static_cast<size_t>(part)];
  for (int64_t d = 0; d < local.dim(); ++d) {
    std::vector<at::Tensor> pieces{local.narrow(d, 0, 0)};
    for (const Layout::Run& run : layout.runs(d, mine)) {
      pieces.push_back(local.narrow(d, run.begin, run.length()));
    }
    local = at::cat(pieces, d);
  }
  return {local.clone(), whole_of(addends, dtype, placements)};
}

void Hash::add(const void* data, size_t bytes) {
  const auto* next = static_cast<const unsigned char*>(data);
  for (size_t i = 0; i < bytes; ++i) {
    value_ = (value_ ^ next[i]) * 0x100000001b3;
  }
}

void Hash::add_plain(const at::Tensor& tensor) {
  const at::Tensor dense = tensor.contiguous();
  add(dtype_name(dense.scalar_type()) + shape_to_string(dense.sizes().vec()));
  add(dense.const_data_ptr(), dense.nbytes());
}

void Hash::add(const at::Tensor& tensor) {
  const at::Tensor value = tensor.detach();
  if (!is_dtensor(value)) {
    return add_plain(value);
  }
  add(to_string(spec(value)));
  add_plain(to_local(value));
}

}  // namespace tessera::programs
