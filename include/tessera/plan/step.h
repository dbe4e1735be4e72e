// Step: one move of a redistribution, over one or several mesh dims.
//
// A step is defined by the layouts before and after it. Which piece a rank
// sends or receives follows from those layouts, never from a division of the
// group into equal chunks, so every step is right for uneven nested shards.
#pragma once

#include <cstdint>
#include <iosfwd>
#include <string>
#include <vector>

#include <tessera/export.h>
#include <tessera/layout/layout.h>

namespace tessera {

/// What a step does on its mesh dims.
enum class StepKind : uint8_t {
  kAllGather,      // S -> R
  kAllReduce,      // P -> R
  kReduceScatter,  // P -> S
  kAllToAll,       // S -> another S
  kSlice,          // R -> S, local
  kToPartial,      // R -> P, local
  kExchange        // any -> any: one all_to_all_v of the intersecting boxes
};

/// Prints "all_gather", "all_reduce", "reduce_scatter", "all_to_all", "slice",
/// "to_partial" or "exchange".
TESSERA_API const char* to_string(StepKind kind);

/// One step of a plan.
struct TESSERA_API Step {
  StepKind kind;
  /// The mesh dims it works on, ascending; several are used as one group. An
  /// exchange works on all of them.
  std::vector<int64_t> mesh_dims;
  Layout before;
  Layout after;
  /// Bytes that a rank sends: the largest over ranks.
  int64_t bytes = 0;
  /// Seconds, by the machine model.
  double cost = 0;

  /// Tells whether no rank talks to another.
  bool is_local() const {
    return kind == StepKind::kSlice || kind == StepKind::kToPartial;
  }
  /// Tells whether the result may take the place of the input, unless that is
  /// the caller's tensor: all_reduce and to_partial.
  bool is_in_place() const {
    return kind == StepKind::kAllReduce || kind == StepKind::kToPartial;
  }
  /// Returns the placements of the step's mesh dims before it.
  Placements from() const;
  /// Returns the placements of the step's mesh dims after it.
  Placements to() const;
};

/// Prints what a step does: "all_gather tp: S(1) -> R".
TESSERA_API std::string describe(const Step& step);
/// Prints the names of its mesh dims: "dp, tp", or "0, 1" without names.
TESSERA_API std::string dims_of(const Step& step);
/// Prints "all_gather tp: S(1) -> R, 4096 bytes, 1.2e-05 s".
TESSERA_API std::string to_string(const Step& step);
/// Prints one JSON object: kind, mesh_dims, from, to, after, bytes, cost.
TESSERA_API std::string to_json(const Step& step);
TESSERA_API std::ostream& operator<<(std::ostream& out, const Step& step);

}  // namespace tessera
