// CommLog: what this rank communicated, and why.
//
// A log belongs to a rank, not to a thread: it also sees what backward does on
// threads of its own. Without a log a collective pays for one load.
#pragma once

#include <cstdint>
#include <iosfwd>
#include <memory>
#include <string>
#include <vector>

#include <c10/core/ScalarType.h>
#include <tessera/comm/communicator.h>
#include <tessera/export.h>

namespace tessera {

namespace detail::inline comm_layer {
class CallLogs;
class CallRecords;
}  // namespace detail::inline comm_layer

/// One collective that this rank took part in, asynchronous or not. Groups of
/// one rank communicate nothing and are left out.
struct TESSERA_API CommLogEntry {
  /// What led to it: an operator ("aten::mm"), a function ("redistribute",
  /// "gradient of redistribute"), or "user" for a Communicator's own function.
  std::string cause;
  /// Asked for by the function called, rather than implied by an operator.
  bool asked = true;
  /// Made while a backward ran.
  bool in_backward = false;
  /// "all_gather", ...; a direct exchange is an "exchange".
  std::string kind;
  /// The group's global ranks, in group order.
  std::vector<int64_t> ranks;
  /// "tp" or "dp, tp", numbers where they have no names; "" where not known.
  std::string mesh_dims;
  /// The same as numbers of the mesh's dims.
  std::vector<int64_t> dims;
  /// The placements that a step of a plan starts from and leads to, else "".
  std::string from;
  std::string to;
  /// Of the data; undefined for a barrier.
  c10::ScalarType dtype = c10::ScalarType::Undefined;
  /// Bytes that this rank moved. With G the larger of its input and output and
  /// n ranks: all_gather, reduce_scatter and the all_to_all of a plan G - G/n
  /// (whole elements), all_reduce twice that. Exchange, scatter, gather and
  /// all_to_all by the user: the larger of sent and received, without what
  /// stays. Broadcast, send and recv: the tensor. Barrier: 0.
  int64_t bytes = 0;
  /// Bytes that this rank writes in its own memory: its output, of a plan's
  /// step the shard after it.
  int64_t written = 0;
  /// What it does and where: "all_gather tp: S(1) -> R".
  std::string text;

  /// Prints "all_gather tp: S(1) -> R, 4096 bytes": the line of the step in
  /// explain() and, with the largest bytes of all ranks, in a plan.
  std::string line() const;
  friend bool operator==(const CommLogEntry&, const CommLogEntry&) = default;
};

/// The collectives of one cause, summed.
struct CommLogSum {
  std::string cause;
  bool asked = true;
  int64_t count = 0;
  int64_t bytes = 0;
  friend bool operator==(const CommLogSum&, const CommLogSum&) = default;
};

/// Records this rank's collectives while it lives. Logs may nest and overlap;
/// each sees everything.
/// Example: CommLog log; at::mm(a, b); std::cout << log;
class TESSERA_API CommLog {
 public:
  CommLog();
  ~CommLog();
  CommLog(const CommLog&) = delete;
  CommLog& operator=(const CommLog&) = delete;

  /// Returns the entries so far, in the order of their calls.
  std::vector<CommLogEntry> entries() const;
  /// Returns how many collectives there were.
  int64_t count() const;
  /// Returns the bytes of all of them.
  int64_t bytes() const;
  /// Returns one sum per cause, the largest first.
  std::vector<CommLogSum> by_cause() const;
  /// Forgets the entries.
  void clear();

  /// Returns the entries with the largest bytes that a rank of the group has,
  /// so that the lines are those of a plan. Collective, but not recorded: all
  /// ranks must have recorded the same calls, else this is an error on all.
  std::vector<CommLogEntry> largest_over(const Communicator& group) const;

 private:
  std::shared_ptr<detail::CallLogs> logs_;  // of this rank
  std::shared_ptr<detail::CallRecords> records_;
};

/// Prints the entry's line and what led to it: "all_gather tp: S(1) -> R, 4096
/// bytes; aten::mm, implied".
TESSERA_API std::string to_string(const CommLogEntry& entry);
/// Prints one line per entry, then a table by cause.
TESSERA_API std::string to_string(const CommLog& log);
/// Prints one JSON object: entries, by_cause, count, bytes.
TESSERA_API std::string to_json(const CommLog& log);
TESSERA_API std::ostream& operator<<(std::ostream& out, const CommLog& log);

}  // namespace tessera
