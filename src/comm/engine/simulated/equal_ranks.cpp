#include "comm/engine/simulated/equal_ranks.h"

#include <algorithm>
#include <cstring>
#include <numeric>

#include <ATen/core/LegacyTypeDispatch.h>
#include <ATen/ops/mul.h>
#include <ATen/ops/ones_like.h>

#include "comm/call/reduce.h"
#include "comm/call/shared_memory_collectives.h"

namespace tessera::detail::inline comm_layer {
namespace {

int64_t before(const std::vector<int64_t>& counts, int64_t group_rank) {
  return std::accumulate(
      counts.begin(), counts.begin() + group_rank, int64_t{0});
}

at::Tensor flat_run(const at::Tensor& tensor, int64_t begin, int64_t count) {
  return tensor.view({-1}).narrow(0, begin, count);
}

void zero_run(const at::Tensor& tensor, int64_t begin, int64_t count) {
  if (count == 0) {
    return;
  }
  if (!tensor.is_cpu()) {
    flat_run(tensor, begin, count).zero_();
    return;
  }
  const size_t width = tensor.element_size();
  std::memset(
      static_cast<char*>(tensor.mutable_data_ptr()) + width * begin, 0,
      width * static_cast<size_t>(count));
}

struct Span {
  int64_t begin;
  int64_t count;
};

// Copies a span of the input to one of the output, cut or padded with zeros.
void fill(const CollectiveCall& call, Span from, Span to) {
  const int64_t shared = std::min(from.count, to.count);
  copy_run(call.output, to.begin, call.input, from.begin, shared);
  zero_run(call.output, to.begin + shared, to.count - shared);
}

void gather(const CollectiveCall& call, int64_t group_rank) {
  int64_t begin = 0;
  for (size_t r = 0; r < call.output_counts.size(); ++r) {
    if (call.without_own && static_cast<int64_t>(r) == group_rank) {
      continue;
    }
    const int64_t count = call.output_counts[r];
    fill(call, {0, call.input.numel()}, {begin, count});
    begin += count;
  }
}

void exchange(const CollectiveCall& call) {
  int64_t from = 0;
  int64_t to = 0;
  for (size_t r = 0; r < call.output_counts.size(); ++r) {
    fill(call, {from, call.input_counts[r]}, {to, call.output_counts[r]});
    from += call.input_counts[r];
    to += call.output_counts[r];
  }
}

// Integers wrap around alike whatever their sign, and ATen has few kernels for
// the unsigned ones.
at::Tensor as_signed(const at::Tensor& tensor) {
  const at::ScalarType dtype = tensor.scalar_type();
  if (dtype == at::kUInt16) {
    return tensor.view(at::kShort);
  }
  if (dtype == at::kUInt32) {
    return tensor.view(at::kInt);
  }
  return dtype == at::kUInt64 ? tensor.view(at::kLong) : tensor;
}

// x^n by squaring: exact where x^n is, for every dtype that multiplies.
at::Tensor power(at::Tensor x, int64_t n) {
  at::Tensor result = at::ones_like(x);
  for (; n > 0; n /= 2) {
    if (n % 2 == 1) {
      result = at::mul(result, x);
    }
    x = at::mul(x, x);
  }
  return result;
}

// Combines `size` copies of the run of `input` at `begin`.
void reduce(
    const CollectiveCall& call, const at::Tensor& input, int64_t begin,
    int64_t size) {
  const int64_t count = call.output.numel();
  const bool idempotent = call.reduce_op == ReduceOp::kAvg ||
                          call.reduce_op == ReduceOp::kMax ||
                          call.reduce_op == ReduceOp::kMin ||
                          input.scalar_type() == at::kBool || size == 1;
  if (idempotent) {
    if (!call.output.is_same(input)) {
      copy_run(call.output, 0, input, begin, count);
    }
    return;
  }
  const at::Tensor mine = as_signed(flat_run(input, begin, count));
  const at::Tensor wide = mine.to(accumulate_dtype(mine.scalar_type()));
  as_signed(call.output.view({-1}))
      .copy_(
          call.reduce_op == ReduceOp::kSum ? at::mul(wide, size)
                                           : power(wide, size));
}

}  // namespace

void complete_alone(
    const CollectiveCall& call, int64_t group_rank, int64_t size) {
  if (!call.output.defined() || call.output.is_meta()) {
    return;
  }
  // The front end has marked the output as written.
  const at::AutoDispatchBelowADInplaceOrView below;
  switch (call.kind) {
    case CallKind::kAllGather:
    case CallKind::kGather:
    case CallKind::kSplit:
      return gather(call, group_rank);
    case CallKind::kAllToAll:
      return exchange(call);
    case CallKind::kAllReduce:
      return reduce(call, call.input, 0, size);
    case CallKind::kReduceScatter:
      return call.without_own
                 ? reduce(call, call.output, 0, size)
                 : reduce(
                       call, call.input, before(call.input_counts, group_rank),
                       size);
    case CallKind::kScatter:
      return call.input.defined()
                 ? fill(
                       call,
                       {before(call.input_counts, group_rank),
                        call.output.numel()},
                       {0, call.output.numel()})
                 : zero_run(call.output, 0, call.output.numel());
    case CallKind::kRecv:
      return zero_run(call.output, 0, call.output.numel());
    case CallKind::kBroadcast:
    case CallKind::kSend:
    case CallKind::kBarrier:
      return;
  }
}

}  // namespace tessera::detail::inline comm_layer
