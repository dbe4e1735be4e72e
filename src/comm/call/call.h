// One communication as data. The front end turns every public function into a
// CollectiveCall; an engine moves what it describes. Errors, agreement between
// ranks and logs all print it with describe().
#pragma once

#include <array>
#include <cstdint>
#include <iosfwd>
#include <memory>
#include <string>
#include <vector>

#include <ATen/core/Tensor.h>
#include <comm/call/strided_copy.h>
#include <tessera/layout/placement.h>

namespace tessera::detail::inline comm_layer {

enum class CallKind : uint8_t {
  kAllGather,
  kReduceScatter,
  kAllReduce,
  kAllToAll,
  kBroadcast,
  kScatter,
  kGather,
  kSend,
  kRecv,
  kBarrier,
  kSplit,  // moves as kAllGather
};

/// How far a rank has come in its random numbers. Draws from a RandomStream or
/// a generator do not count.
struct RandomStamp {
  uint64_t seed = 0;
  uint64_t operations = 0;
  friend bool operator==(const RandomStamp&, const RandomStamp&) = default;
};

/// What leads to a call: an operator, or a function of ours; equal on all
/// ranks, so that two calls that happen to have equal counts are not taken for
/// one.
struct CauseFingerprint {
  uint64_t label = 0;              // a hash of the name, equal in every build
  std::array<char, 96> name = {};  // its beginning, for errors
  /// The rank has made shards of which it did not know how large those of the
  /// others are; not compared, but what may be behind counts that differ.
  bool took_shards_for_equal = false;
};

/// Several tensors of ranks that share an address space, moved by one call
/// without buffers; all on the CPU, contiguous and of one dtype. Tensor i of
/// one rank goes with tensor i of the others.
struct TensorList {
  std::vector<at::Tensor> inputs = {};  // one at least
  std::vector<at::Tensor> outputs = {};
  /// Per tensor, where elements come from; they outlive the call. all_gather:
  /// per group rank, from that rank's input to my output; reduce_scatter: one
  /// list, from the sum of the inputs to my output; all_reduce: none.
  std::vector<const std::vector<StridedCopies>*> copies = {};
};

/// What one rank passes to one collective, after check_call().
///
/// Counts are elements per group rank, with one entry per rank where the kind
/// cuts a tensor, else empty:
///   all_gather, gather, split   output_counts cut the output; the input of
///                               rank r has output_counts[r] elements
///   reduce_scatter, scatter     input_counts cut the input; the output of rank
///                               r has input_counts[r] elements
///   all_to_all                  both
///
/// With `reads`, for ranks that share an address space, an all_gather or
/// all_to_all copies straight from the input of rank r to the output, as
/// reads[r] says; the counts still tell what would be sent, which in an
/// all_to_all is not what stays on a rank.
struct CollectiveCall {
  CallKind kind = CallKind::kBarrier;
  at::Tensor input = {};  // contiguous; undefined where this rank gives nothing
  at::Tensor output = {};  // contiguous; undefined where this rank gets nothing
  std::vector<int64_t> input_counts = {};
  std::vector<int64_t> output_counts = {};
  /// Of an all_gather: the output has no run of this rank's own. Of a
  /// reduce_scatter: the input has none, and the output holds it before.
  bool without_own = false;
  /// Of such a reduce_scatter: where runs of the other ranks arrive, as many
  /// elements for each as the output has.
  at::Tensor landing = {};
  ReduceOp reduce_op = ReduceOp::kSum;
  int64_t peer = -1;  // root, destination or source, as a group rank
  int64_t tag = 0;
  const std::vector<StridedCopies>* reads = nullptr;  // outlives the call
  /// Instead of input and output: of an all_gather, reduce_scatter, all_reduce.
  std::shared_ptr<const TensorList> list = nullptr;
  RandomStamp stamp = {};  // must agree between ranks, but for send and recv
  CauseFingerprint cause = {};  // so must this
  uint64_t thread = 0;  // and this: a hash of the RankGuard's name, if any

  /// Returns a tensor that tells dtype and device; undefined for a barrier.
  const at::Tensor& sample() const {
    return list ? list->inputs.front() : input.defined() ? input : output;
  }
  /// Return how many elements this rank gives and gets; 0 where it does not.
  /// Its own run counts, wherever it is.
  int64_t input_numel() const;
  int64_t output_numel() const;
};

/// Returns the public function's name: "all_gather".
const char* name_of(CallKind kind);
bool has_root(CallKind kind);
bool is_reduction(CallKind kind);
bool is_point_to_point(CallKind kind);

/// What the text of a call shows beside its counts; keeps no tensor alive.
struct CallOutline {
  CallKind kind = CallKind::kBarrier;
  ReduceOp reduce_op = ReduceOp::kSum;
  at::ScalarType dtype = at::ScalarType::Undefined;
  at::Device device = at::kCPU;
  int64_t numel = 0;
  int64_t peer = -1;
  int64_t tag = 0;
};
CallOutline outline_of(const CollectiveCall& call);

/// Prints a dtype as the notation does: "f32", "bf16", "i64", ...
std::string dtype_name(at::ScalarType dtype);
/// Prints "all_reduce(f32[10], sum)", "scatter(f32, counts 3 3 1, root 0)".
std::string describe(const CollectiveCall& call);
/// The same; " ..." stands for what is missing where `truncated`.
std::string describe(
    const CallOutline& call, at::IntArrayRef input_counts,
    at::IntArrayRef output_counts, bool truncated);
/// Prints "group {0, 2}", "group {0, 1, ..., 99; 100 ranks}".
std::string describe_group(const std::vector<int64_t>& ranks);

/// The calls of one collective by group rank, or a send and its receive.
using Calls = std::vector<const CollectiveCall*>;

/// Where a call is made; prints "all_gather on group {0, 2}, rank 2".
struct CallSite {
  CallKind kind;
  const std::vector<int64_t>& group;  // global ranks
  int64_t group_rank;                 // of the caller in it

  int64_t size() const { return static_cast<int64_t>(group.size()); }
};
std::ostream& operator<<(std::ostream& out, const CallSite& site);

/// Engines have tags of 30 bits, two for each of ours.
inline constexpr int64_t kMaxTag = (int64_t{1} << 29) - 2;

/// What two ranks of a group must agree on: one rank's call as another one sees
/// it. A value without pointers, which may travel between processes.
struct CollectiveFingerprint {
  CallKind kind = CallKind::kBarrier;
  ReduceOp reduce_op = ReduceOp::kSum;
  at::ScalarType dtype = at::ScalarType::Undefined;
  at::DeviceType device_type = at::kCPU;
  int64_t peer = -1;
  int64_t tag = 0;
  RandomStamp stamp = {};
  CauseFingerprint cause = {};
  uint64_t thread = 0;
  int64_t numel = 0;    // where all ranks must have as many
  uint64_t counts = 0;  // a hash of the counts that all ranks must share
  int64_t gives = 0;    // all_to_all: to the other rank
  int64_t takes = 0;    // all_to_all: from the other rank
};

/// Returns the fingerprint of a call for the rank at place `other` of the
/// group.
CollectiveFingerprint fingerprint_of(const CollectiveCall& call, int64_t other);

/// Returns what two ranks disagree on ("the dtype"), or nothing; each as the
/// other sees it. Both calls belong to one sequence number, or are a send and
/// its receive.
std::string mismatch(
    const CollectiveFingerprint& a, const CollectiveFingerprint& b);

/// Tells whether two contiguous tensors share a byte; not if one is undefined.
bool overlap(const at::Tensor& a, const at::Tensor& b);
/// Tells whether one call writes memory that the other reads or writes.
bool shares_memory(const CollectiveCall& a, const CollectiveCall& b);

}  // namespace tessera::detail::inline comm_layer
