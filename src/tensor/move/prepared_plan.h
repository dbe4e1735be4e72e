// A redistribution as one rank carries it out: every question about regions,
// groups and counts is answered once, so that a plan met again costs a lookup.
#pragma once

#include <cstdint>
#include <memory>
#include <utility>
#include <vector>

#include <plan/transfer/transfer_plan.h>
#include <tensor/state/spec_fwd.h>
#include <tessera/comm/communicator.h>
#include <tessera/plan/redistribute_plan.h>

namespace tessera::detail::inline tensor_layer {

/// One step of a plan on this rank.
struct PreparedStep {
  const Step* step;
  /// False on a rank that has nothing to do in it.
  bool takes_part = true;
  Communicator group = {};          // where it communicates
  std::vector<int64_t> shape = {};  // of the result
  TransferPlan transfer = {};       // from the shard to the result
  /// The shard is the send buffer; the receive buffer is the result.
  bool sends_shard = false;
  bool receives_result = false;
  /// to_partial: the ops, and this rank's coordinates.
  std::vector<std::pair<ReduceOp, int64_t>> partials = {};
};

/// A plan between two specs, prepared for the rank of their meshes. Keeps both
/// specs, so that they are found again when a program makes them anew.
struct PreparedPlan {
  PreparedPlan(SpecPtr from, SpecPtr to, RedistributePlan by);
  PreparedPlan(const PreparedPlan&) = delete;
  PreparedPlan& operator=(const PreparedPlan&) = delete;

  SpecPtr source;
  SpecPtr target;
  RedistributePlan plan;
  std::vector<PreparedStep> steps;
  /// Those of this rank's shard of the target; empty where it is row-major, as
  /// steps leave it, or where there is none.
  std::vector<int64_t> strides;
};

/// Prepares one step for the rank of the mesh on which it happens. The step
/// must outlive the result.
PreparedStep prepare_step(const Step& step, const DeviceMesh& mesh);

}  // namespace tessera::detail::inline tensor_layer
