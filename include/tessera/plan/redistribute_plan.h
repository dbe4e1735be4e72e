// Redistribution plans: how to bring a tensor from one layout to another, found
// by search, priced and printable. No tensor and no communicator is needed.
#pragma once

#include <cstdint>
#include <iosfwd>
#include <string>
#include <vector>

#include <tessera/export.h>
#include <tessera/plan/cost.h>
#include <tessera/plan/step.h>

namespace tessera {

/// The steps from `source` to `target` and their price.
struct RedistributePlan {
  Layout source;
  Layout target;
  /// Bytes of one element.
  int64_t element_size = 1;
  /// None when nothing has to be done.
  std::vector<Step> steps = {};
  /// Bytes that a rank sends in all steps: the sum of the largest.
  int64_t bytes = 0;
  /// Seconds, by the machine model.
  double cost = 0;
  /// Bytes that a rank holds at most: the source, which the caller keeps, and
  /// the input and the output of one step (one of them where it works in
  /// place). At most source + target + the largest input or output of a step.
  int64_t peak_memory = 0;
};

/// Returns the cheapest plan. All ranks get the same one, whatever they hold.
/// The layouts must have one shape; their meshes may differ in shape and ranks.
TESSERA_API RedistributePlan plan_redistribution(
    const Layout& source, const Layout& target, int64_t element_size,
    const MachineModel& model = {});

/// Prints one line per step, then the sums.
TESSERA_API std::string to_string(const RedistributePlan& plan);
/// Prints one JSON object: source, target, element_size, steps, bytes, cost,
/// peak_memory.
TESSERA_API std::string to_json(const RedistributePlan& plan);
TESSERA_API std::ostream& operator<<(
    std::ostream& out, const RedistributePlan& plan);

}  // namespace tessera
