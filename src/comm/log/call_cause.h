// Why this thread communicates: what a CommLog writes beside a collective.
// Both classes here only store pointers; text is made when a log asks.
#pragma once

#include <cstdint>
#include <optional>
#include <string_view>

#include <comm/call/call.h>
#include <tessera/comm/comm_log.h>
#include <tessera/comm/device_mesh.h>

namespace tessera::detail::inline comm_layer {

/// Names what leads to this thread's collectives while it lives. The outermost
/// counts: full_tensor() redistributes, and a log says full_tensor.
class CallCause {
 public:
  enum class Reason : uint8_t { kAsked, kImplied };

  /// The texts and the mesh must outlive this; `overload` is what follows a
  /// dot in an operator's name. Groups are named by the dims of the mesh.
  CallCause(
      std::string_view name, std::string_view overload, Reason reason,
      const DeviceMesh* mesh);
  /// A function of ours that the user called.
  explicit CallCause(std::string_view name, const DeviceMesh* mesh = nullptr)
      : CallCause(name, {}, Reason::kAsked, mesh) {}
  ~CallCause();
  CallCause(const CallCause&) = delete;
  CallCause& operator=(const CallCause&) = delete;

  /// Returns the outermost one of this thread, or nullptr.
  static const CallCause* current();
  std::string name() const;
  /// Passes the pieces of name() to `append`, without making a string.
  template <typename Append>
  void append_name(const Append& append) const {
    append(name_);
    if (!overload_.empty()) {
      append(std::string_view("."));
      append(overload_);
    }
  }
  bool asked() const { return reason_ == Reason::kAsked; }
  const DeviceMesh* mesh() const { return mesh_; }

 private:
  std::string_view name_;
  std::string_view overload_;
  Reason reason_;
  const DeviceMesh* mesh_;
  bool outermost_;
};

/// Returns what ranks compare of this thread's cause; nothing of none.
CauseFingerprint current_cause_fingerprint();

/// Says which tensors this thread's collectives join, while it lives: ranks
/// compare that with the cause, since lists of equal shapes look alike. The
/// text must outlive it. Example: "'blocks.3' {weight, bias}".
class JoinedTensors {
 public:
  explicit JoinedTensors(std::string_view text);
  ~JoinedTensors();
  JoinedTensors(const JoinedTensors&) = delete;
  JoinedTensors& operator=(const JoinedTensors&) = delete;

 private:
  std::string_view outer_;
};

/// While it lives, ranks do not compare what leads to this thread's
/// collectives: those that find out what each rank called.
class Unlabelled {
 public:
  Unlabelled();
  ~Unlabelled();
  Unlabelled(const Unlabelled&) = delete;
  Unlabelled& operator=(const Unlabelled&) = delete;
};

/// Says what this thread's next collectives are a step of, while it lives.
class CallLabel {
 public:
  /// Fills in kind, mesh_dims, from, to and text.
  using Describe = void (*)(const void* step, CommLogEntry& entry);

  /// The elements of this rank's shards before and after a step, since its
  /// all_to_all leaves out what stays.
  struct Shards {
    int64_t larger;
    int64_t after;
  };
  CallLabel(const void* step, Describe how, std::optional<Shards> shards);
  ~CallLabel();
  CallLabel(const CallLabel&) = delete;
  CallLabel& operator=(const CallLabel&) = delete;

  /// Returns the innermost one of this thread, or nullptr.
  static const CallLabel* current();
  void describe(CommLogEntry& entry) const { describe_(step_, entry); }
  const std::optional<Shards>& shards() const { return shards_; }

 private:
  const void* step_;
  Describe describe_;
  std::optional<Shards> shards_;
  const CallLabel* outer_;
};

/// While it lives, this thread's collectives are not recorded: those that logs
/// make themselves.
class Unrecorded {
 public:
  Unrecorded();
  ~Unrecorded();
  Unrecorded(const Unrecorded&) = delete;
  Unrecorded& operator=(const Unrecorded&) = delete;
  static bool active();
};

}  // namespace tessera::detail::inline comm_layer
