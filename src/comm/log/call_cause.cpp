#include "comm/log/call_cause.h"

#include <algorithm>
#include <utility>

#include <base/copy_bytes.h>
#include <base/hash.h>

namespace tessera::detail::inline comm_layer {

namespace {
thread_local const CallCause* current_cause = nullptr;
thread_local const CallLabel* current_label = nullptr;
thread_local std::string_view joined_tensors;
thread_local int unrecorded_depth = 0;
thread_local int unlabelled_depth = 0;
}  // namespace

CallCause::CallCause(
    std::string_view name, std::string_view overload, Reason reason,
    const DeviceMesh* mesh)
    : name_(name),
      overload_(overload),
      reason_(reason),
      mesh_(mesh),
      outermost_(current_cause == nullptr) {
  if (outermost_) {
    current_cause = this;
  }
}

CallCause::~CallCause() {
  if (outermost_) {
    current_cause = nullptr;
  }
}

const CallCause* CallCause::current() {
  return current_cause;
}

std::string CallCause::name() const {
  std::string text(name_);
  return overload_.empty() ? text : text.append(".").append(overload_);
}

JoinedTensors::JoinedTensors(std::string_view text)
    : outer_(std::exchange(joined_tensors, text)) {}
JoinedTensors::~JoinedTensors() {
  joined_tensors = outer_;
}

Unlabelled::Unlabelled() {
  ++unlabelled_depth;
}
Unlabelled::~Unlabelled() {
  --unlabelled_depth;
}

CauseFingerprint current_cause_fingerprint() {
  CauseFingerprint fingerprint;
  const CallCause* cause = current_cause;
  if (unlabelled_depth > 0 || (cause == nullptr && joined_tensors.empty())) {
    return fingerprint;
  }
  fingerprint.label = base::hash_bytes({});
  size_t length = 0;
  const auto append = [&](std::string_view piece) {
    fingerprint.label = base::hash_bytes(piece, fingerprint.label);
    const size_t more =
        std::min(piece.size(), fingerprint.name.size() - 1 - length);
    base::copy_bytes(fingerprint.name.data() + length, piece.data(), more);
    length += more;
  };
  if (cause != nullptr) {
    cause->append_name(append);
  }
  if (!joined_tensors.empty()) {
    append(cause != nullptr ? " " : "");
    append(joined_tensors);
  }
  return fingerprint;
}

CallLabel::CallLabel(
    const void* step, Describe how, std::optional<Shards> shards)
    : step_(step), describe_(how), shards_(shards), outer_(current_label) {
  current_label = this;
}

CallLabel::~CallLabel() {
  current_label = outer_;
}

const CallLabel* CallLabel::current() {
  return current_label;
}

Unrecorded::Unrecorded() {
  ++unrecorded_depth;
}

Unrecorded::~Unrecorded() {
  --unrecorded_depth;
}

bool Unrecorded::active() {
  return unrecorded_depth > 0;
}

}  // namespace tessera::detail::inline comm_layer
