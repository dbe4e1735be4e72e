// What moves bytes between processes: the one thing that MPI and c10d do each
// in their own way. The engine above it (process_world.h) knows calls,
// agreement, reductions and failures.
#pragma once

#include <cstdint>
#include <exception>
#include <memory>
#include <string>
#include <vector>

#include "comm/engine/process/peer_events.h"

namespace tessera::detail::inline comm_layer {

/// Bytes on their way; their buffers must live until buffers_are_free().
class Transfer {
 public:
  virtual ~Transfer() = default;
  /// Moves on; tells whether this rank's part is complete. Throws a
  /// std::exception when it never will be.
  virtual bool done() = 0;
  /// Asks for an early end; buffers_are_free() says when buffers are free.
  virtual void cancel() noexcept {}
  /// Tells whether buffers are free, after success or not.
  virtual bool buffers_are_free() noexcept {
    try {
      return done();
    } catch (const std::exception&) {
      return true;
    }
  }
};
using TransferPtr = std::unique_ptr<Transfer>;

/// A group of processes. Every rank starts the same transfers in the same
/// order, messages aside. Counts are bytes per place of the group, in its
/// order; runs lie one after the other in a buffer.
class Channel {
 public:
  virtual ~Channel() = default;
  /// Concatenates the inputs of all ranks; of this rank as much as its count
  /// says, all of its `size` bytes or none.
  virtual TransferPtr all_gather(
      const void* input, int64_t size, void* output,
      const std::vector<int64_t>& counts) = 0;
  /// Sends run r to place r; receives in the order of places.
  virtual TransferPtr all_to_all(
      const void* input, const std::vector<int64_t>& sent, void* output,
      const std::vector<int64_t>& received) = 0;
  /// Copies the root's buffer to all.
  virtual TransferPtr broadcast(void* data, int64_t bytes, int64_t root) = 0;
  /// One message; those of one pair and one tag arrive in order.
  virtual TransferPtr send(
      const void* data, int64_t bytes, int64_t group_rank, int64_t tag) = 0;
  virtual TransferPtr receive(
      void* data, int64_t bytes, int64_t group_rank, int64_t tag) = 0;
  /// Returns the places that are known not to have joined yet.
  virtual std::vector<int64_t> absent() { return {}; }
  /// Ends what is under way, here and on the others, as far as the channel can.
  virtual void close() noexcept = 0;
};

/// Makes channels, and carries events of failures past them.
class Transport {
 public:
  virtual ~Transport() = default;
  virtual int64_t rank() const = 0;
  virtual int64_t size() const = 0;
  /// Returns the engine's name: "mpi", "gloo", ...
  virtual std::string name() const = 0;
  /// Joins the ranks, this one among them, in a channel of their own.
  /// Collective over them; `key` is equal on all and used once.
  virtual std::unique_ptr<Channel> join(
      const std::vector<int64_t>& ranks, const std::string& key) = 0;

  /// Tells other ranks; a rank that has ended may not answer any more.
  virtual void notify(
      const std::vector<int64_t>& ranks, const PeerEvent& event) noexcept = 0;
  /// Returns the events of a world not returned before; does not wait. Those of
  /// other worlds, which a rank may have entered earlier or later, are kept.
  virtual std::vector<PeerEvent> poll_events(uint64_t world) = 0;
};

}  // namespace tessera::detail::inline comm_layer
