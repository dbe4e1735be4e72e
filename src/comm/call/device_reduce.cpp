#include "comm/call/device_reduce.h"

#include <ATen/ops/empty.h>
#include <ATen/ops/empty_like.h>
#include <ATen/ops/maximum.h>
#include <ATen/ops/minimum.h>
#include <c10/util/Exception.h>

#include "comm/call/reduce.h"

namespace tessera::detail::inline comm_layer {
namespace {

at::Tensor flat_run(const at::Tensor& tensor, int64_t begin, int64_t count) {
  return tensor.view({-1}).narrow(0, begin, count);
}

// ATen has few kernels for these; they are reduced in host memory.
bool reduces_on_host(at::ScalarType dtype) {
  return dtype == at::kUInt16 || dtype == at::kUInt32 || dtype == at::kUInt64;
}

void combine(at::Tensor& total, const at::Tensor& next, ReduceOp op) {
  const bool is_bool = total.scalar_type() == at::kBool;
  switch (op) {
    case ReduceOp::kSum:
    case ReduceOp::kAvg:
      is_bool ? total.logical_or_(next) : total.add_(next);
      return;
    case ReduceOp::kProduct:
      is_bool ? total.logical_and_(next) : total.mul_(next);
      return;
    case ReduceOp::kMax:
      is_bool ? total.logical_or_(next) : at::maximum_out(total, total, next);
      return;
    case ReduceOp::kMin:
      is_bool ? total.logical_and_(next) : at::minimum_out(total, total, next);
      return;
  }
}

at::Tensor reduce_by_host(const Calls& calls, int64_t begin, int64_t count) {
  std::vector<at::Tensor> copies;
  std::vector<const void*> inputs;
  for (const CollectiveCall* call : calls) {
    copies.push_back(flat_run(call->input, begin, count).cpu());
    inputs.push_back(copies.back().const_data_ptr());
  }
  at::Tensor total = at::empty_like(copies[0]);
  reduce_on_host(
      inputs, {total.mutable_data_ptr()}, count, total.scalar_type(),
      calls[0]->reduce_op);
  return total;
}

at::Tensor reduce_by_kernels(
    const Calls& calls, int64_t begin, const at::Tensor& output,
    int64_t count) {
  const ReduceOp op = calls[0]->reduce_op;
  const at::TensorOptions options =
      output.options().dtype(accumulate_dtype(output.scalar_type()));
  at::Tensor total = at::empty({count}, options);
  total.copy_(flat_run(calls[0]->input, begin, count));
  for (size_t r = 1; r < calls.size(); ++r) {
    combine(total, flat_run(calls[r]->input, begin, count).to(options), op);
  }
  if (op == ReduceOp::kAvg) {
    total.div_(static_cast<double>(calls.size()));
  }
  return total;
}

}  // namespace

void reduce_on_device(
    const Calls& calls, int64_t begin, const std::vector<at::Tensor>& outputs,
    int64_t output_begin, int64_t count) {
  const at::Tensor total =
      reduces_on_host(outputs[0].scalar_type())
          ? reduce_by_host(calls, begin, count)
          : reduce_by_kernels(calls, begin, outputs[0], count);
  for (const at::Tensor& output : outputs) {
    flat_run(output, output_begin, count).copy_(total);
  }
}

}  // namespace tessera::detail::inline comm_layer
