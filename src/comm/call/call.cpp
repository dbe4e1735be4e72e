#include "comm/call/call.h"

#include <algorithm>
#include <ostream>
#include <utility>

#include <base/hash.h>
#include <c10/util/StringUtil.h>
#include <c10/util/accumulate.h>

namespace tessera::detail::inline comm_layer {
namespace {

std::string list(at::IntArrayRef values, const char* separator) {
  std::string text;
  for (const int64_t value : values) {
    text.append(text.empty() ? "" : separator).append(std::to_string(value));
  }
  return text;
}

std::string describe_tensor(const CallOutline& call) {
  std::string text = c10::str(dtype_name(call.dtype), "[", call.numel, "]");
  if (!call.device.is_cpu()) {
    text.append(" ").append(call.device.str());
  }
  return text;
}

}  // namespace

const char* name_of(CallKind kind) {
  switch (kind) {
    case CallKind::kAllGather:
      return "all_gather";
    case CallKind::kReduceScatter:
      return "reduce_scatter";
    case CallKind::kAllReduce:
      return "all_reduce";
    case CallKind::kAllToAll:
      return "all_to_all";
    case CallKind::kBroadcast:
      return "broadcast";
    case CallKind::kScatter:
      return "scatter";
    case CallKind::kGather:
      return "gather";
    case CallKind::kSend:
      return "send";
    case CallKind::kRecv:
      return "recv";
    case CallKind::kBarrier:
      return "barrier";
    case CallKind::kSplit:
      return "split";
  }
  return "?";
}

bool has_root(CallKind kind) {
  return kind == CallKind::kBroadcast || kind == CallKind::kScatter ||
         kind == CallKind::kGather;
}

bool is_reduction(CallKind kind) {
  return kind == CallKind::kReduceScatter || kind == CallKind::kAllReduce;
}

bool is_point_to_point(CallKind kind) {
  return kind == CallKind::kSend || kind == CallKind::kRecv;
}

std::string dtype_name(at::ScalarType dtype) {
  static const std::pair<at::ScalarType, const char*> names[] = {
      {at::kFloat, "f32"},        {at::kDouble, "f64"},
      {at::kHalf, "f16"},         {at::kBFloat16, "bf16"},
      {at::kByte, "u8"},          {at::kUInt16, "u16"},
      {at::kUInt32, "u32"},       {at::kUInt64, "u64"},
      {at::kChar, "i8"},          {at::kShort, "i16"},
      {at::kInt, "i32"},          {at::kLong, "i64"},
      {at::kBool, "bool"},        {at::kComplexHalf, "c32"},
      {at::kComplexFloat, "c64"}, {at::kComplexDouble, "c128"},
  };
  for (const auto& [type, name] : names) {
    if (type == dtype) {
      return name;
    }
  }
  return c10::toString(dtype);
}

namespace {
int64_t numel_of(const at::Tensor& one, const std::vector<at::Tensor>* list) {
  if (list == nullptr) {
    return one.defined() ? one.numel() : 0;
  }
  int64_t count = 0;
  for (const at::Tensor& tensor : *list) {
    count += tensor.numel();
  }
  return count;
}
}  // namespace

int64_t CollectiveCall::input_numel() const {
  if (without_own && kind == CallKind::kReduceScatter) {
    return c10::sum_integers(input_counts);
  }
  return numel_of(input, list ? &list->inputs : nullptr);
}

int64_t CollectiveCall::output_numel() const {
  if (without_own && kind == CallKind::kAllGather) {
    return c10::sum_integers(output_counts);
  }
  return numel_of(output, list ? &list->outputs : nullptr);
}

CallOutline outline_of(const CollectiveCall& call) {
  CallOutline outline{
      .kind = call.kind,
      .reduce_op = call.reduce_op,
      .peer = call.peer,
      .tag = call.tag};
  if (const at::Tensor& sample = call.sample(); sample.defined()) {
    outline.dtype = sample.scalar_type();
    outline.device = sample.device();
    outline.numel =
        call.list || call.without_own ? call.input_numel() : sample.numel();
  }
  return outline;
}

std::string describe(const CollectiveCall& call) {
  return describe(
      outline_of(call), call.input_counts, call.output_counts, /*cut=*/false);
}

std::string describe(
    const CallOutline& call, at::IntArrayRef input_counts,
    at::IntArrayRef output_counts, bool truncated) {
  const char* more = truncated ? " ..." : "";
  std::string text = name_of(call.kind);
  if (call.kind == CallKind::kBarrier || call.kind == CallKind::kSplit) {
    return text + "()";
  }
  text += c10::str("(", describe_tensor(call));
  if (call.kind == CallKind::kAllToAll) {
    text += c10::str(
        ", input counts ", list(input_counts, " "), more, ", output counts ",
        list(output_counts, " "), more);
  } else if (!input_counts.empty() || !output_counts.empty()) {
    text += c10::str(
        ", counts ", list(input_counts, " "), list(output_counts, " "), more);
  }
  if (is_reduction(call.kind)) {
    text += c10::str(", ", to_string(call.reduce_op));
  }
  if (has_root(call.kind)) {
    text += c10::str(", root ", call.peer);
  }
  if (is_point_to_point(call.kind)) {
    text += c10::str(
        call.kind == CallKind::kSend ? ", to " : ", from ", call.peer, ", tag ",
        call.tag);
  }
  return text + ")";
}

std::string describe_group(const std::vector<int64_t>& ranks) {
  constexpr size_t kListed = 64;
  if (ranks.size() > kListed) {
    return c10::str(
        "group {", ranks[0], ", ", ranks[1], ", ..., ", ranks.back(), "; ",
        ranks.size(), " ranks}");
  }
  return c10::str("group {", list(ranks, ", "), "}");
}

std::ostream& operator<<(std::ostream& out, const CallSite& site) {
  return out << name_of(site.kind) << " on " << describe_group(site.group)
             << ", rank " << site.group[static_cast<size_t>(site.group_rank)];
}

CollectiveFingerprint fingerprint_of(
    const CollectiveCall& call, int64_t other) {
  CollectiveFingerprint fingerprint{
      .kind = call.kind,
      .reduce_op = is_reduction(call.kind) ? call.reduce_op : ReduceOp::kSum,
      .peer = has_root(call.kind) ? call.peer : -1,
      .tag = is_point_to_point(call.kind) ? call.tag : 0,
      .stamp = call.stamp,
      .cause = call.cause,
      .thread = call.thread};
  if (!call.sample().defined()) {
    return fingerprint;
  }
  fingerprint.dtype = call.sample().scalar_type();
  fingerprint.device_type = call.sample().device().type();
  if (call.kind == CallKind::kAllToAll) {
    fingerprint.gives = call.input_counts[static_cast<size_t>(other)];
    fingerprint.takes = call.output_counts[static_cast<size_t>(other)];
    return fingerprint;
  }
  fingerprint.counts = base::hash_combine(
      base::hash_combine(0, call.input_counts), call.output_counts);
  const bool same_numel = call.kind == CallKind::kAllReduce ||
                          call.kind == CallKind::kBroadcast ||
                          is_point_to_point(call.kind);
  fingerprint.numel = same_numel ? outline_of(call).numel : 0;
  return fingerprint;
}

namespace {
std::string name_of(const CauseFingerprint& cause) {
  return cause.label == 0 ? "a collective of its own" : cause.name.data();
}

// Why one operator may communicate other amounts on two ranks; nothing where
// neither has taken shards to be equal.
std::string hint(const CauseFingerprint& a, const CauseFingerprint& b) {
  const bool may_be = a.took_shards_for_equal || b.took_shards_for_equal;
  return may_be && a.label != 0 && a.label == b.label
             ? c10::str(
                   " (in ", name_of(a),
                   "; from_local() without .shape takes all shards to be as "
                   "large as its own: pass .shape, the global one, where they "
                   "are not, or .run_check to find out)")
             : "";
}
}  // namespace

std::string mismatch(
    const CollectiveFingerprint& a, const CollectiveFingerprint& b) {
  if (a.kind != b.kind && !is_point_to_point(a.kind)) {
    return "the operation" + hint(a.cause, b.cause);
  }
  if (a.thread != b.thread) {
    return "which of their threads calls (a RankGuard must have the same name "
           "on all ranks, and threads that share a group one order)";
  }
  if (a.stamp.seed != b.stamp.seed) {
    return c10::str(
        "the random seed (", a.stamp.seed, " and ", b.stamp.seed,
        "; call manual_seed() alike on all ranks)");
  }
  if (a.stamp != b.stamp) {
    return c10::str(
        "the number of random operations so far (", a.stamp.operations, " and ",
        b.stamp.operations, "; a rank that draws alone needs a RandomStream)");
  }
  if (a.peer != b.peer) {
    return "the root";
  }
  if (a.tag != b.tag) {
    return "the tag";
  }
  if (a.reduce_op != b.reduce_op) {
    return "the reduce op";
  }
  if (a.dtype != b.dtype) {
    return "the dtype";
  }
  if (a.device_type != b.device_type) {
    return "the device type";
  }
  if (a.counts != b.counts || a.gives != b.takes || a.takes != b.gives) {
    return "the counts" + hint(a.cause, b.cause);
  }
  if (a.numel != b.numel) {
    return "the number of elements" + hint(a.cause, b.cause);
  }
  if (a.cause.label != b.cause.label) {
    return c10::str(
        "what they communicate for (", name_of(a.cause), " and ",
        name_of(b.cause), "; every rank must make the same calls)");
  }
  return "";
}

namespace {

struct Bytes {
  const char* begin;
  const char* end;
};

Bytes bytes_of(const at::Tensor& tensor) {
  if (!tensor.defined() || tensor.numel() == 0 || tensor.is_meta()) {
    return {nullptr, nullptr};
  }
  const char* begin = static_cast<const char*>(tensor.const_data_ptr());
  return {begin, begin + tensor.nbytes()};
}

}  // namespace

bool overlap(const at::Tensor& a, const at::Tensor& b) {
  const Bytes x = bytes_of(a);
  const Bytes y = bytes_of(b);
  return x.begin < y.end && y.begin < x.end;
}

namespace {

// Tensor by tensor: two lists of hundreds would be slow to compare whole.
bool shares_memory(const TensorList& a, const TensorList& b) {
  for (size_t i = 0; i < std::min(a.inputs.size(), b.inputs.size()); ++i) {
    if (overlap(a.outputs[i], b.outputs[i]) ||
        overlap(a.outputs[i], b.inputs[i]) ||
        overlap(a.inputs[i], b.outputs[i])) {
      return true;
    }
  }
  return false;
}

}  // namespace

bool shares_memory(const CollectiveCall& a, const CollectiveCall& b) {
  if (a.list && b.list) {
    return shares_memory(*a.list, *b.list);
  }
  return overlap(a.output, b.output) || overlap(a.output, b.input) ||
         overlap(a.input, b.output);
}

}  // namespace tessera::detail::inline comm_layer
