#include "comm/call/check_call.h"

#include <numeric>

#include <ATen/ops/contiguous.h>
#include <ATen/ops/resolve_conj.h>
#include <ATen/ops/resolve_neg.h>
#include <c10/core/GradMode.h>
#include <c10/util/Exception.h>

#include "comm/call/reduce.h"

namespace tessera::detail::inline comm_layer {
namespace {

bool gives_input(const CollectiveCall& call, int64_t rank) {
  const bool root_gives =
      call.kind == CallKind::kScatter || call.kind == CallKind::kBroadcast;
  return call.kind != CallKind::kRecv && (!root_gives || rank == call.peer);
}

bool gets_output(const CollectiveCall& call, int64_t rank) {
  if (call.kind == CallKind::kBroadcast) {
    return rank != call.peer;
  }
  return call.kind != CallKind::kSend &&
         (call.kind != CallKind::kGather || rank == call.peer);
}

void check_tensor(
    const at::Tensor& tensor, const char* role, const CallSite& where) {
  TORCH_CHECK_VALUE(
      tensor.defined(), where, ": the ", role,
      " must be a tensor; it is undefined");
  TORCH_CHECK_TYPE(
      tensor.layout() == at::kStrided && tensor.has_storage(), where, ": the ",
      role, " must be a plain dense tensor; got layout ", tensor.layout(),
      tensor.has_storage() ? "" : " without storage",
      "; pass the local tensor or to_dense()");
  const at::ScalarType dtype = tensor.scalar_type();
  TORCH_CHECK_NOT_IMPLEMENTED(
      dtype != at::kQUInt4x2 && dtype != at::kQUInt2x4, where, ": dtype ",
      c10::toString(dtype),
      " packs several elements into a byte and cannot be cut; pass int_repr()");
}

void check_output(const at::Tensor& tensor, const CallSite& where) {
  check_tensor(tensor, "output", where);
  TORCH_CHECK_VALUE(
      tensor.is_contiguous(), where,
      ": the output must be contiguous; got sizes ", tensor.sizes(),
      " and strides ", tensor.strides(),
      "; pass a contiguous tensor and copy_() from it");
  TORCH_CHECK_VALUE(
      !tensor.is_conj() && !tensor.is_neg(), where,
      ": the output must not be a lazy conjugate or negative view; pass a "
      "tensor of its own");
}

void prepare_input(at::Tensor& tensor, const CallSite& where) {
  check_tensor(tensor, "input", where);
  const c10::AutoGradMode no_grad(false);
  tensor = tensor.resolve_conj().resolve_neg().contiguous();
}

void check_counts(
    const std::vector<int64_t>& counts, int64_t size, const char* role,
    const CallSite& where) {
  TORCH_CHECK_VALUE(
      static_cast<int64_t>(counts.size()) == size, where, ": the ", role,
      " counts must have one entry per rank; got ", counts.size(), " for ",
      size, " ranks");
  for (const int64_t count : counts) {
    TORCH_CHECK_VALUE(
        count >= 0, where, ": counts must not be negative; got ", counts);
  }
}

void check_numel(
    const at::Tensor& tensor, int64_t wanted, const char* role,
    const CallSite& where) {
  TORCH_CHECK_VALUE(
      tensor.numel() == wanted, where, ": the ", role, " must have ", wanted,
      " elements as the counts or the input say; got ", tensor.numel());
}

int64_t total(const std::vector<int64_t>& counts) {
  return std::accumulate(counts.begin(), counts.end(), int64_t{0});
}

// Counts cut one tensor into runs; `full` is that tensor, `run` is the one run
// that this rank holds itself.
struct RunsOf {
  const at::Tensor& full;
  const char* full_role;
  const at::Tensor& run;
  const char* run_role;
};

void check_runs(
    const std::vector<int64_t>& counts, const RunsOf& runs,
    const CollectiveCall& call, const CallSite& where) {
  const int64_t mine = counts[static_cast<size_t>(where.group_rank)];
  if (runs.full.defined()) {
    check_numel(
        runs.full, total(counts) - (call.without_own ? mine : 0),
        runs.full_role, where);
  }
  check_numel(runs.run, mine, runs.run_role, where);
}

void check_sizes(
    const CollectiveCall& call, int64_t size, const CallSite& where) {
  switch (call.kind) {
    case CallKind::kAllGather:
    case CallKind::kGather:
    case CallKind::kSplit:
      check_counts(call.output_counts, size, "output", where);
      return check_runs(
          call.output_counts, {call.output, "output", call.input, "input"},
          call, where);
    case CallKind::kReduceScatter:
    case CallKind::kScatter:
      check_counts(call.input_counts, size, "input", where);
      return check_runs(
          call.input_counts, {call.input, "input", call.output, "output"}, call,
          where);
    case CallKind::kAllToAll:
      check_counts(call.output_counts, size, "output", where);
      check_counts(call.input_counts, size, "input", where);
      if (call.reads != nullptr) {
        return;
      }
      check_numel(call.output, total(call.output_counts), "output", where);
      return check_numel(call.input, total(call.input_counts), "input", where);
    case CallKind::kAllReduce:
      return check_numel(call.output, call.input.numel(), "output", where);
    case CallKind::kBroadcast:
    case CallKind::kSend:
    case CallKind::kRecv:
    case CallKind::kBarrier:
      return;
  }
}

void check_reduce_op(const CollectiveCall& call, const CallSite& where) {
  const at::ScalarType dtype = call.sample().scalar_type();
  TORCH_CHECK_TYPE(
      has_arithmetic(dtype), where, ": dtype ", c10::toString(dtype),
      " has no arithmetic to reduce with; view it as an integer dtype");
  const bool integral = c10::isIntegralType(dtype, /*includeBool=*/true);
  TORCH_CHECK_TYPE(
      call.reduce_op != ReduceOp::kAvg || !integral, where,
      ": avg wants a floating point or complex dtype; got ", dtype_name(dtype),
      "; convert first, or use sum");
  const bool ordered =
      call.reduce_op == ReduceOp::kMax || call.reduce_op == ReduceOp::kMin;
  TORCH_CHECK_TYPE(
      !ordered || !c10::isComplexType(dtype), where, ": ",
      to_string(call.reduce_op), " wants an ordered dtype; got ",
      dtype_name(dtype));
}

void check_pair(const CollectiveCall& call, const CallSite& where) {
  TORCH_CHECK_TYPE(
      call.input.scalar_type() == call.output.scalar_type(), where,
      ": input and output must have one dtype; got ",
      dtype_name(call.input.scalar_type()), " and ",
      dtype_name(call.output.scalar_type()));
  TORCH_CHECK_VALUE(
      call.input.device() == call.output.device(), where,
      ": input and output must be on one device; got ", call.input.device(),
      " and ", call.output.device());
}

// What a list says of its tensors holds already; ranks compare what follows.
void check_list(const CollectiveCall& call, const CallSite& where) {
  const TensorList& list = *call.list;
  for (size_t i = 0; i < list.inputs.size(); ++i) {
    TORCH_INTERNAL_ASSERT(
        list.inputs.size() == list.outputs.size() &&
        list.inputs[i].is_contiguous() && list.outputs[i].is_contiguous() &&
        list.inputs[i].scalar_type() == list.outputs[i].scalar_type());
  }
  if (call.kind == CallKind::kAllGather) {
    check_counts(call.output_counts, where.size(), "output", where);
  } else if (call.kind == CallKind::kReduceScatter) {
    check_counts(call.input_counts, where.size(), "input", where);
  }
  if (is_reduction(call.kind)) {
    check_reduce_op(call, where);
  }
}

}  // namespace

void check_call(CollectiveCall& call, const CallSite& where) {
  if (call.list) {
    return check_list(call, where);
  }
  const int64_t rank = where.group_rank;
  const int64_t size = where.size();
  if (call.kind == CallKind::kBarrier) {
    return;
  }
  if (has_root(call.kind) || is_point_to_point(call.kind)) {
    TORCH_CHECK_INDEX(
        call.peer >= 0 && call.peer < size, where,
        has_root(call.kind) ? ": the root" : ": the peer",
        " must be a rank of the group, 0 to ", size - 1, "; got ", call.peer);
  }
  const bool in_place =
      call.input.defined() && call.input.is_same(call.output) &&
      (call.kind == CallKind::kAllReduce || call.kind == CallKind::kBroadcast);
  if (is_point_to_point(call.kind)) {
    TORCH_CHECK_VALUE(
        call.tag >= 0 && call.tag <= kMaxTag, where, ": the tag must be 0 to ",
        kMaxTag, "; got ", call.tag);
  }
  if (gets_output(call, rank)) {
    check_output(call.output, where);
  }
  if (gives_input(call, rank) && !in_place) {
    prepare_input(call.input, where);
  }
  check_sizes(call, size, where);
  if (call.input.defined() && call.output.defined()) {
    check_pair(call, where);
  }
  if (is_reduction(call.kind)) {
    check_reduce_op(call, where);
  }
  TORCH_CHECK_VALUE(
      in_place || !overlap(call.input, call.output), where,
      ": input and output must not share memory; clone() one of them");
  if (call.output.defined() && !call.output.is_inference()) {
    call.output.unsafeGetTensorImpl()->bump_version();
  }
}

}  // namespace tessera::detail::inline comm_layer
