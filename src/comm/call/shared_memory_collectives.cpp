#include "comm/call/shared_memory_collectives.h"

#include <algorithm>
#include <numeric>

#include <ATen/ops/empty.h>

#include "base/copy_bytes.h"
#include "base/stream_copy.h"
#include "comm/call/device_reduce.h"
#include "comm/call/list_collectives.h"
#include "comm/call/reduce.h"

namespace tessera::detail::inline comm_layer {
namespace {

int64_t before(const std::vector<int64_t>& counts, int64_t group_rank) {
  return std::accumulate(
      counts.begin(), counts.begin() + group_rank, int64_t{0});
}

// The same memory as bytes, whatever the dtype.
at::Tensor as_bytes(const at::Tensor& tensor, int64_t begin, int64_t count) {
  const auto width = static_cast<int64_t>(tensor.element_size());
  at::Tensor bytes = at::empty({0}, tensor.options().dtype(at::kByte));
  return bytes.set_(
      tensor.storage(), (tensor.storage_offset() + begin) * width,
      {count * width}, {1});
}

void read_chunk(const Calls& calls, const CollectiveCall& mine) {
  for (size_t r = 0; r < calls.size(); ++r) {
    run_copies((*mine.reads)[r], calls[r]->input, 0, mine.output, 0);
  }
}

void all_gather_chunk(const Calls& calls, const CollectiveCall& mine) {
  int64_t begin = 0;
  for (const CollectiveCall* call : calls) {
    if (call == &mine && mine.without_own) {
      continue;
    }
    copy_run(mine.output, begin, call->input, 0, call->input.numel());
    begin += call->input.numel();
  }
}

void all_to_all_chunk(const Calls& calls, int64_t chunk) {
  const CollectiveCall& mine = *calls[static_cast<size_t>(chunk)];
  int64_t begin = 0;
  for (const CollectiveCall* call : calls) {
    const int64_t count = call->input_counts[static_cast<size_t>(chunk)];
    copy_run(
        mine.output, begin, call->input, before(call->input_counts, chunk),
        count);
    begin += count;
  }
}

// Reduces `count` elements that start at `begin` of every input.
void reduce_run(
    const Calls& calls, int64_t begin, const std::vector<at::Tensor>& outputs,
    int64_t output_begin, int64_t count) {
  const CollectiveCall& first = *calls[0];
  if (count == 0) {
    return;
  }
  if (!first.input.is_cpu()) {
    return reduce_on_device(calls, begin, outputs, output_begin, count);
  }
  const size_t width = first.input.element_size();
  std::vector<const void*> from;
  for (const CollectiveCall* call : calls) {
    from.push_back(
        static_cast<const char*>(call->input.const_data_ptr()) + width * begin);
  }
  std::vector<void*> to;
  for (const at::Tensor& output : outputs) {
    to.push_back(
        static_cast<char*>(output.mutable_data_ptr()) + width * output_begin);
  }
  reduce_on_host(from, to, count, first.input.scalar_type(), first.reduce_op);
}

// This rank's own run is in its output.
void reduce_with_own(const Calls& calls, int64_t chunk) {
  const auto me = static_cast<size_t>(chunk);
  const at::Tensor& output = calls[me]->output;
  std::vector<CollectiveCall> runs;
  Calls all;
  for (size_t r = 0; r < calls.size(); ++r) {
    const std::vector<int64_t>& counts = calls[r]->input_counts;
    const int64_t begin = before(counts, chunk) - (r < me ? counts[r] : 0);
    runs.push_back(
        {.kind = CallKind::kReduceScatter,
         .input = r == me ? output
                          : calls[r]->input.view({-1}).narrow(
                                0, begin, output.numel()),
         .reduce_op = calls[r]->reduce_op});
  }
  for (const CollectiveCall& run : runs) {
    all.push_back(&run);
  }
  reduce_run(all, 0, {output}, 0, output.numel());
}

void all_reduce_chunk(const Calls& calls, int64_t chunk) {
  const auto [begin, end] = slice_of(
      calls[0]->input.numel(), static_cast<int64_t>(calls.size()), chunk);
  std::vector<at::Tensor> outputs;
  for (const CollectiveCall* call : calls) {
    outputs.push_back(call->output);
  }
  reduce_run(calls, begin, outputs, begin, end - begin);
}

}  // namespace

void copy_run(
    const at::Tensor& dst, int64_t dst_begin, const at::Tensor& src,
    int64_t src_begin, int64_t count) {
  if (count == 0) {
    return;
  }
  if (!dst.is_cpu() || !src.is_cpu()) {
    as_bytes(dst, dst_begin, count).copy_(as_bytes(src, src_begin, count));
    return;
  }
  const size_t width = dst.element_size();
  void* to = static_cast<char*>(dst.mutable_data_ptr()) + width * dst_begin;
  const void* from =
      static_cast<const char*>(src.const_data_ptr()) + width * src_begin;
  const size_t bytes = width * static_cast<size_t>(count);
  if (static_cast<int64_t>(dst.nbytes()) >= base::kStreamBytes) {
    base::stream_copy(to, from, bytes);
    base::stream_fence();
  } else {
    base::copy_bytes(to, from, bytes);
  }
}

void run_chunk(const Calls& calls, int64_t chunk) {
  const CollectiveCall* mine = calls[static_cast<size_t>(chunk)];
  const auto root = static_cast<size_t>(std::max<int64_t>(mine->peer, 0));
  if (mine->list != nullptr) {
    return run_list_chunk(calls, chunk);
  }
  if (mine->reads != nullptr) {
    return read_chunk(calls, *mine);
  }
  switch (mine->kind) {
    case CallKind::kAllGather:
    case CallKind::kSplit:
      return all_gather_chunk(calls, *mine);
    case CallKind::kAllToAll:
      return all_to_all_chunk(calls, chunk);
    case CallKind::kReduceScatter:
      if (mine->without_own) {
        return reduce_with_own(calls, chunk);
      }
      return reduce_run(
          calls, before(mine->input_counts, chunk), {mine->output}, 0,
          mine->output.numel());
    case CallKind::kAllReduce:
      return all_reduce_chunk(calls, chunk);
    case CallKind::kBroadcast:
      if (mine->output.defined()) {
        copy_run(mine->output, 0, calls[root]->input, 0, mine->output.numel());
      }
      return;
    case CallKind::kScatter:
      return copy_run(
          mine->output, 0, calls[root]->input,
          before(mine->input_counts, chunk), mine->output.numel());
    case CallKind::kGather:
      return copy_run(
          calls[root]->output, before(mine->output_counts, chunk), mine->input,
          0, mine->input.numel());
    case CallKind::kSend:
      return copy_run(calls[1]->output, 0, mine->input, 0, mine->input.numel());
    case CallKind::kRecv:
    case CallKind::kBarrier:
      return;
  }
}

int64_t bytes_written(const Calls& calls) {
  int64_t bytes = 0;
  for (const CollectiveCall* call : calls) {
    if (const at::Tensor& sample = call->sample(); sample.defined()) {
      bytes +=
          call->output_numel() * static_cast<int64_t>(sample.element_size());
    }
  }
  return bytes;
}

}  // namespace tessera::detail::inline comm_layer
