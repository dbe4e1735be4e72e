#include "comm/engine/call.h"

#include <ostream>
#include <utility>

#include <c10/util/StringUtil.h>

namespace tessera::detail {
namespace {

std::string list(const std::vector<int64_t>& values, const char* separator) {
  std::string text;
  for (const int64_t value : values) {
    text.append(text.empty() ? "" : separator).append(std::to_string(value));
  }
  return text;
}

std::string describe_tensor(const at::Tensor& tensor) {
  std::string text =
      c10::str(dtype_name(tensor.scalar_type()), "[", tensor.numel(), "]");
  if (!tensor.is_cpu()) {
    text.append(" ").append(tensor.device().str());
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

std::string describe(const CollectiveCall& call) {
  std::string text = name_of(call.kind);
  if (call.kind == CallKind::kBarrier || call.kind == CallKind::kSplit) {
    return text + "()";
  }
  text += c10::str("(", describe_tensor(call.sample()));
  if (call.kind == CallKind::kAllToAll) {
    text += c10::str(
        ", input counts ", list(call.input_counts, " "), ", output counts ",
        list(call.output_counts, " "));
  } else if (!call.input_counts.empty() || !call.output_counts.empty()) {
    text += c10::str(
        ", counts ", list(call.input_counts, " "),
        list(call.output_counts, " "));
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
  return c10::str("group {", list(ranks, ", "), "}");
}

std::ostream& operator<<(std::ostream& out, const CallSite& site) {
  return out << name_of(site.kind) << " on " << describe_group(site.group)
             << ", rank " << site.group[static_cast<size_t>(site.place)];
}

std::string disagreement(
    const CollectiveCall& a, int64_t rank_a, const CollectiveCall& b,
    int64_t rank_b) {
  if (a.kind != b.kind && !is_point_to_point(a.kind)) {
    return "the operation";
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
  if (has_root(a.kind) && a.peer != b.peer) {
    return "the root";
  }
  if (is_reduction(a.kind) && a.reduce_op != b.reduce_op) {
    return "the reduce op";
  }
  if (a.kind == CallKind::kBarrier) {
    return "";
  }
  if (a.sample().scalar_type() != b.sample().scalar_type()) {
    return "the dtype";
  }
  if (a.sample().device().type() != b.sample().device().type()) {
    return "the device type";
  }
  if (a.kind == CallKind::kAllToAll) {
    const auto agree = [](const auto& sender, int64_t from,
                          const auto& receiver, int64_t to) {
      return sender.input_counts[static_cast<size_t>(to)] ==
             receiver.output_counts[static_cast<size_t>(from)];
    };
    const bool ok = agree(a, rank_a, b, rank_b) && agree(b, rank_b, a, rank_a);
    return ok ? "" : "the counts";
  }
  if (a.input_counts != b.input_counts || a.output_counts != b.output_counts) {
    return "the counts";
  }
  const bool same_numel = a.kind == CallKind::kAllReduce ||
                          a.kind == CallKind::kBroadcast ||
                          is_point_to_point(a.kind);
  if (same_numel && a.sample().numel() != b.sample().numel()) {
    return "the number of elements";
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

bool shares_memory(const CollectiveCall& a, const CollectiveCall& b) {
  return overlap(a.output, b.output) || overlap(a.output, b.input) ||
         overlap(a.input, b.output);
}

}  // namespace tessera::detail
