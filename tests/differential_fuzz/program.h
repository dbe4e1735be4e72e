// Random programs on tensors, as data: a list of steps, each complete in
// itself.
//
// A step names its operands by the step that made them; where that step is gone
// or does not suit, the nearest one that does stands in, else a tensor that the
// step brings along. So any subset of a program's steps is a legal program, and
// a failing program can be shrunk by dropping steps.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include <c10/core/ScalarType.h>
#include <tessera/layout/placement.h>

namespace tessera::programs {

using List = std::vector<int64_t>;

/// What a step does. kFamily is the ShardedTensor family.
enum class Kind : uint8_t {
  kMake,
  kRedistribute,
  kAsyncRedistribute,
  kOtherMesh,
  kVisit,
  kUnary,
  kBinary,
  kMatmul,
  kReduce,
  kView,
  kJoin,
  kInPlace,
  kIndex,
  kPlain,
  kLocal,
  kDraw,
  kBackward,
  kCollective,
  kOverlap,
  kMessages,
  kFamily
};
inline constexpr int64_t kKinds = 21;

const char* to_string(Kind kind);

/// The tensor that a step makes where it has no operand: everything but its
/// mesh, which the player knows.
struct Source {
  List shape;
  c10::ScalarType dtype = c10::ScalarType::Float;
  List placement_codes;  // per mesh dim; see placements_for()
  bool reversed = false;
  bool requires_grad = false;
  int64_t way = 0;  // distribute_tensor, from_local, a factory
};

struct Step {
  int64_t id = 0;
  Kind kind = Kind::kMake;
  int64_t mesh = 0;
  Source source;
  List wanted;  // steps whose results are the operands
  List codes;   // free choices, each used modulo what there is to choose

  int64_t code(size_t i, int64_t choices) const {
    return codes[i % codes.size()] % choices;
  }
};

struct Program {
  uint64_t seed = 0;
  int64_t ranks = 1;
  std::vector<Step> steps;
};

/// Draws the program of a seed; the same on every machine.
Program draw_program(uint64_t seed, int64_t ranks);

/// A mesh of all ranks: its shape, and its ranks row-major.
struct MeshChoice {
  List sizes;
  List ranks;
};

/// Returns the meshes that programs use: one and two dims, other orders.
std::vector<MeshChoice> mesh_choices(int64_t ranks);

/// Turns codes into placements that are legal for a shape and dtype: even,
/// strided and ragged cuts, replicas, and addends where the dtype has them.
Placements placements_for(
    const List& shape, const List& mesh_sizes, c10::ScalarType dtype,
    const Source& source);

}  // namespace tessera::programs
