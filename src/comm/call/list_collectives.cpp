#include "comm/call/list_collectives.h"

#include <algorithm>
#include <vector>

#include "comm/call/reduce.h"
#include "comm/call/strided_copy.h"

namespace tessera::detail::inline comm_layer {
namespace {

constexpr int64_t kSliceAlignment = 64;

// Tensor number `i` of every rank, as reduce_on_host() wants it.
class ListReduction {
 public:
  ListReduction(const Calls& calls, size_t i) : first_(*calls[0]) {
    const at::Tensor& sample = first_.list->inputs[i];
    width_ = static_cast<int64_t>(sample.element_size());
    for (const CollectiveCall* call : calls) {
      const at::Tensor& input = call->list->inputs[i];
      inputs_.push_back(
          input.numel() == 0
              ? nullptr
              : static_cast<const char*>(input.const_data_ptr()));
    }
  }
  void add_output(const at::Tensor& output) {
    outputs_.push_back(static_cast<char*>(output.mutable_data_ptr()));
  }

  // Combines `count` elements at `from` of the inputs into those at `to`.
  void run(int64_t from, int64_t to, int64_t count) {
    from_.clear();
    to_.clear();
    for (const char* input : inputs_) {
      from_.push_back(input + width_ * from);
    }
    for (char* output : outputs_) {
      to_.push_back(output + width_ * to);
    }
    reduce_on_host(
        from_, to_, count, first_.sample().scalar_type(), first_.reduce_op);
  }

  // The same for a strided run of elements.
  void run(const StridedCopy& part, size_t dim, int64_t from, int64_t to) {
    const size_t dims = part.sizes.size();
    if (dim == dims) {
      return run(from, to, 1);
    }
    const bool is_run = dim + 1 == dims && part.from_strides[dim] == 1 &&
                        part.to_strides[dim] == 1;
    if (is_run) {
      return run(from, to, part.sizes[dim]);
    }
    for (int64_t i = 0; i < part.sizes[dim]; ++i) {
      run(part, dim + 1, from + i * part.from_strides[dim],
          to + i * part.to_strides[dim]);
    }
  }

 private:
  const CollectiveCall& first_;
  int64_t width_ = 0;
  std::vector<const char*> inputs_;
  std::vector<char*> outputs_;
  std::vector<const void*> from_;
  std::vector<void*> to_;
};

void gather_list(const Calls& calls, const TensorList& mine) {
  for (size_t i = 0; i < mine.outputs.size(); ++i) {
    for (size_t r = 0; r < calls.size(); ++r) {
      run_copies(
          (*mine.copies[i])[r], calls[r]->list->inputs[i], 0, mine.outputs[i],
          0);
    }
  }
}

void reduce_parts(const Calls& calls, const TensorList& mine) {
  for (size_t i = 0; i < mine.outputs.size(); ++i) {
    if (mine.outputs[i].numel() == 0) {
      continue;
    }
    ListReduction reduction(calls, i);
    reduction.add_output(mine.outputs[i]);
    for (const StridedCopy& part : mine.copies[i]->front()) {
      reduction.run(part, 0, part.from, part.to);
    }
  }
}

void all_reduce_slice(const Calls& calls, int64_t chunk) {
  const TensorList& any = *calls[0]->list;
  const auto [begin, end] = slice_of(
      calls[0]->input_numel(), static_cast<int64_t>(calls.size()), chunk);
  int64_t offset = 0;  // of tensor i among all elements
  for (size_t i = 0; i < any.inputs.size(); ++i) {
    const int64_t numel = any.inputs[i].numel();
    const int64_t from = std::max(begin, offset);
    const int64_t count = std::min(end, offset + numel) - from;
    if (count > 0) {
      ListReduction reduction(calls, i);
      for (const CollectiveCall* call : calls) {
        reduction.add_output(call->list->outputs[i]);
      }
      reduction.run(from - offset, from - offset, count);
    }
    offset += numel;
  }
}

}  // namespace

std::pair<int64_t, int64_t> slice_of(
    int64_t numel, int64_t size, int64_t chunk) {
  const int64_t per_rank = (numel + size - 1) / size;
  const int64_t per_chunk =
      (per_rank + kSliceAlignment - 1) / kSliceAlignment * kSliceAlignment;
  const int64_t begin = std::min(numel, chunk * per_chunk);
  return {begin, std::min(numel, begin + per_chunk)};
}

void run_list_chunk(const Calls& calls, int64_t chunk) {
  const CollectiveCall& mine = *calls[static_cast<size_t>(chunk)];
  if (mine.kind == CallKind::kAllGather) {
    gather_list(calls, *mine.list);
  } else if (mine.kind == CallKind::kReduceScatter) {
    reduce_parts(calls, *mine.list);
  } else {
    all_reduce_slice(calls, chunk);
  }
}

}  // namespace tessera::detail::inline comm_layer
