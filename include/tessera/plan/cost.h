// What a step costs: a machine model, and the formulas that price a step.
//
// Prices depend on the layouts alone, and on the largest shard over all ranks,
// so every rank computes the same one. What one rank moves is asked apart.
#pragma once

#include <cstdint>
#include <limits>
#include <string_view>
#include <vector>

#include <tessera/export.h>
#include <tessera/plan/step.h>

namespace tessera {

/// How fast ranks talk along a mesh dim.
struct Link {
  /// Seconds per message.
  double latency = 5e-6;
  /// Bytes per second that a rank sends.
  double bandwidth = 10e9;
};

/// The machine that plans are priced for. The defaults are those of one host.
struct TESSERA_API MachineModel {
  /// The link of every mesh dim that `links` does not list.
  Link link = {};
  /// Links of mesh dims 0, 1, ..., as far as they differ from `link`.
  std::vector<Link> links = {};
  /// Bytes per second that a rank writes in its own memory.
  double copy_bandwidth = 20e9;
  /// Bytes that a rank may hold of what one redistribution moves, or of the
  /// operands of one call: what needs more loses against what does not,
  /// whatever it costs. Where nothing fits, a redistribution is planned without
  /// a limit and a call takes what needs least.
  int64_t memory_limit = std::numeric_limits<int64_t>::max();

  /// Returns the link of one mesh dim.
  const Link& of(int64_t mesh_dim) const;
  /// Returns the link of a group over several mesh dims: the largest latency
  /// and the smallest bandwidth of them.
  Link over(const std::vector<int64_t>& mesh_dims) const;
};

/// Returns how many messages follow each other in a step among `ranks` ranks:
/// each doubles how many of them have heard of a value, so log2(ranks), rounded
/// up; twice that for an all_reduce, which scatters sums and gathers them, 0
/// for a local step. One step over several mesh dims never waits longer than
/// one step per mesh dim. Example: 3 for an all_gather among 5, 6, 7 or 8
/// ranks, 1 among 2.
TESSERA_API int64_t message_count(StepKind kind, int64_t ranks);
/// Returns the same for a recorded call by its name: one message for a "send"
/// or "recv", else as for the step of that name, an exchange where none has it.
TESSERA_API int64_t message_count(std::string_view call, int64_t ranks);

/// Returns the elements that a rank sends in a collective among `ranks` ranks,
/// from the sizes of the largest shard before and after it. With G the larger:
/// G - G / ranks, twice that for an all_reduce, 0 for a local step.
/// Example: an all_gather of 2 to 8 elements among 4 ranks sends 8 - 2 = 6.
TESSERA_API int64_t
elements_sent(StepKind kind, int64_t ranks, int64_t before, int64_t after);

/// Returns the seconds of a step: messages x latency + bytes / bandwidth +
/// bytes written / copy bandwidth.
/// Example: 1 message, 1e6 bytes, 2e6 written: 5e-6 + 1e-4 + 1e-4 s.
TESSERA_API double step_cost(
    const MachineModel& model, const Link& link, int64_t messages,
    int64_t bytes, int64_t written);

/// Returns the seconds in which one mesh dim goes from one placement to
/// another, before there are layouts: `bytes` is what a rank holds of a tensor
/// that this mesh dim does not cut, and cuts are taken for even. Nothing for
/// equal ones, a nanosecond at least for what is local; infinity where no step
/// leads there. Example: S(0) -> R of 8e6 bytes among 4 ranks costs two
/// messages, 6e6 bytes sent and 8e6 written.
TESSERA_API double transition_cost(
    const MachineModel& model, int64_t mesh_dim, int64_t ranks,
    const Placement& from, const Placement& to, double bytes);

/// Returns the bytes that the rank at a coordinate of `step.before` moves: as
/// elements_sent() says, for the shards of that coordinate; for an exchange
/// what it sends or receives, whichever is more. The largest over ranks is
/// `step.bytes`, unless the mesh is too large to count an exchange.
/// Example: 5 rows gathered from pieces of 3 and 2 on mesh(2): 5 - 5 / 2 = 3
/// rows on both.
TESSERA_API int64_t bytes_on(
    const Step& step, int64_t element_size,
    const std::vector<int64_t>& coordinate);
/// Returns the same for a global rank; 0 for a rank that takes no part. Also
/// for ranks of `step.after` alone, where an exchange changes the mesh.
TESSERA_API int64_t
bytes_on_rank(const Step& step, int64_t element_size, int64_t rank);

}  // namespace tessera
