// What is known of a tensor whose values do not exist yet: the calls that will
// make them.
//
// Note [Deferred tensors]
// Under a DeferredInit factories make Meta tensors, whose storage has no memory
// but owns a tape: the calls that wrote it so far. All tensors over a storage
// share its tape, also those that LibTorch makes behind the dispatcher's back
// (data(), module->clone(), a Python Parameter). So views need no record: a
// tensor is its storage, sizes, strides and offset, and is found again in real
// memory by these.
//
// A tape is a chain of versions of its storage, each made by one call, which
// refers to the versions that it read. References go back in time only, so
// chains form no circle, and a version that somebody refers to stays what it
// was: values of another tensor are those at the time of the call.
//
// They say that they are on the device that was asked for: programs that ask
// is_meta() skip their initialisers, and that must not happen here. Only while
// LibTorch runs a call for its shapes they say what they are.
//
// What calls need to draw is taken from the rank's counters when they are
// recorded, and given to them again when they run: see state/draws.h.
#pragma once

#include <cstdint>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include <ATen/core/Tensor.h>
#include <ATen/core/dispatch/Dispatcher.h>
#include <comm/engine/random_counters.h>

namespace tessera::detail::inline tensor_layer {

/// Where the elements of a tensor lie in its storage.
struct Geometry {
  explicit Geometry(const at::Tensor& t);
  int64_t numel() const;
  bool is_contiguous() const;
  friend bool operator==(const Geometry&, const Geometry&) = default;

  std::vector<int64_t> sizes;
  std::vector<int64_t> strides;
  int64_t offset;
  c10::ScalarType dtype;
  bool is_conjugated;
  bool is_negated;
};

struct RecordedCall;
struct StorageVersion;
using VersionPtr = std::shared_ptr<const StorageVersion>;

/// A storage after a call that made or wrote it.
struct StorageVersion {
  StorageVersion(
      uint64_t storage_id, std::shared_ptr<const RecordedCall> maker,
      VersionPtr version_before)
      : storage(storage_id),
        call(std::move(maker)),
        previous(std::move(version_before)) {}
  /// A chain may be long: its links are dropped one after the other.
  ~StorageVersion();
  StorageVersion(const StorageVersion&) = delete;
  StorageVersion& operator=(const StorageVersion&) = delete;

  const uint64_t storage;
  /// Mutable, as below, for the destructor alone.
  mutable std::shared_ptr<const RecordedCall> call;
  /// nullptr of the first.
  mutable VersionPtr previous;
};

/// A tensor among the arguments of a call.
struct RecordedArgument {
  /// nullptr where the tensor is not deferred: it is in `arguments` then.
  VersionPtr version;
  std::optional<Geometry> geometry;
  /// Writes to a tensor that is not deferred, until then.
  int64_t writes = -1;
  bool is_written = false;
  /// It shows each element of the storage once.
  bool covers_storage = false;
};

/// A tensor with a storage of its own that a call returned.
struct RecordedResult {
  size_t result;   // which return of the call
  size_t element;  // of a list
  uint64_t storage;
  Geometry geometry;
};

struct RecordedCall {
  /// None: memory was asked for, and no values.
  std::optional<c10::OperatorHandle> op;
  uint64_t sequence = 0;  // in the order of calls
  /// With an empty tensor in the place of each deferred one.
  std::vector<c10::IValue> arguments;
  /// The tensors of `arguments`, in the order of map_tensors().
  std::vector<RecordedArgument> tensors;
  std::vector<RandomOffset> offsets;
  std::vector<RecordedResult> results;
  /// Where results lie that say nothing else.
  c10::Device device = c10::kCPU;

  std::string name() const;
};

/// What the storage of a deferred tensor owns.
struct DeferredStorage {
  VersionPtr version;
  /// The device that was asked for.
  c10::Device device = c10::kCPU;
  /// Plain values, where a tensor over this storage has got them already.
  at::Tensor values;
};

/// Returns what the storage of a deferred tensor owns, nullptr of any other.
DeferredStorage* deferred_storage(const at::Tensor& t);
/// Tells whether there is a deferred tensor in this process.
bool exists_deferred();
/// Makes a Meta tensor a deferred one, and marks it.
void defer(const at::Tensor& t, VersionPtr version, c10::Device device);
/// Marks a tensor that shares the storage of a deferred one.
void mark_deferred(const at::Tensor& t);

/// Returns a number that no storage or call had before.
uint64_t next_sequence();

/// While it lives, these deferred tensors say that they are on Meta, and
/// LibTorch may ask for the memory of their storages, which it does to compare
/// addresses.
class OnMeta {
 public:
  explicit OnMeta(std::vector<at::Tensor> tensors);
  ~OnMeta();
  OnMeta(const OnMeta&) = delete;
  OnMeta& operator=(const OnMeta&) = delete;

 private:
  std::vector<at::Tensor> tensors_;
};

}  // namespace tessera::detail::inline tensor_layer
