#include "differential_fuzz/program.h"

#include <algorithm>
#include <numeric>
#include <random>

#include <c10/util/Exception.h>
#include <tessera/layout/layout.h>

namespace tessera::programs {
namespace {

class Random {
 public:
  explicit Random(uint64_t seed) : engine_(seed) {}
  int64_t below(int64_t n) {
    return static_cast<int64_t>(engine_() % static_cast<uint64_t>(n));
  }
  bool one_in(int64_t n) { return below(n) == 0; }

 private:
  std::mt19937_64 engine_;
};

// How often a kind occurs, in the order of Kind.
constexpr int64_t kWeights[kKinds] = {6, 8, 4, 3, 2, 6, 8, 4, 6, 7, 3,
                                      6, 5, 2, 2, 2, 6, 4, 2, 2, 2};

Kind draw_kind(Random& random) {
  int64_t left = random.below(
      std::accumulate(std::begin(kWeights), std::end(kWeights), int64_t{0}));
  int64_t kind = 0;
  while (left >= kWeights[kind]) {
    left -= kWeights[kind++];
  }
  return static_cast<Kind>(kind);
}

// Small and uneven; now and then empty, or long enough that a reduction is cut
// into slices.
List draw_shape(Random& random) {
  if (random.one_in(60)) {
    return {80 + random.below(40), 65 + random.below(20)};
  }
  List shape;
  const int64_t ndim = 1 + random.below(3);
  for (int64_t d = 0; d < ndim; ++d) {
    shape.push_back(
        random.one_in(25) ? 0 : 1 + random.below(ndim == 1 ? 13 : 7));
  }
  return shape;
}

c10::ScalarType draw_dtype(Random& random) {
  static const c10::ScalarType dtypes[] = {
      c10::ScalarType::Float,    c10::ScalarType::Float,
      c10::ScalarType::Double,   c10::ScalarType::Double,
      c10::ScalarType::Long,     c10::ScalarType::Long,
      c10::ScalarType::BFloat16, c10::ScalarType::Bool};
  return dtypes[random.below(8)];
}

Source draw_source(Random& random) {
  Source source;
  source.shape = draw_shape(random);
  source.dtype = draw_dtype(random);
  source.placement_codes = {random.below(4096), random.below(4096)};
  source.reversed = random.one_in(4);
  source.requires_grad = !random.one_in(3);
  source.way = random.below(12);
  return source;
}

bool has_addends(c10::ScalarType dtype, ReduceOp op) {
  return dtype != c10::ScalarType::Bool &&
         (op != ReduceOp::kAvg || dtype != c10::ScalarType::Long);
}

Placement placement_of(
    int64_t code, const List& shape, int64_t parts, c10::ScalarType dtype) {
  static const ReduceOp ops[] = {
      ReduceOp::kSum, ReduceOp::kSum, ReduceOp::kAvg, ReduceOp::kMax,
      ReduceOp::kMin};
  const int64_t kind = code % 8;
  const int64_t choice = code / 32;
  if (kind <= 1 || shape.empty()) {
    const ReduceOp op = ops[choice % 5];
    return kind == 1 && has_addends(dtype, op) ? Partial(op) : Replicate();
  }
  const int64_t dim = code / 8 % static_cast<int64_t>(shape.size());
  if (kind == 2) {
    return StridedShard(dim, 2 + choice % 3);
  }
  if (kind == 3) {
    List sizes(static_cast<size_t>(parts), 0);
    for (int64_t i = 0; i < shape[static_cast<size_t>(dim)]; ++i) {
      ++sizes[static_cast<size_t>((choice + i * i) % parts)];
    }
    return RaggedShard(dim, sizes);
  }
  return Shard(dim);
}

// Turns of the cuts of one dim, the last mesh dim first.
void reverse_turns(Placements& placements) {
  for (size_t m = 0; m < placements.size(); ++m) {
    if (placements[m].is_shard()) {
      const int64_t dim = placements[m].dim();
      const auto after = std::count_if(
          placements.begin() + static_cast<std::ptrdiff_t>(m) + 1,
          placements.end(),
          [&](const Placement& p) { return p.is_shard(dim); });
      placements[m] = placements[m].with_order(after);
    }
  }
}

}  // namespace

const char* to_string(Kind kind) {
  static const char* const names[kKinds] = {
      "make",    "redistribute", "async redistribute",
      "mesh",    "visit",        "unary",
      "binary",  "matmul",       "reduce",
      "view",    "join",         "in place",
      "index",   "full_tensor",  "to_local",
      "draw",    "backward",     "collective",
      "overlap", "messages",     "ShardedTensor"};
  return names[static_cast<size_t>(kind)];
}

Program draw_program(uint64_t seed, int64_t ranks) {
  Random random(seed * 1000003 + static_cast<uint64_t>(ranks));
  Program program{.seed = seed, .ranks = ranks, .steps = {}};
  const auto meshes = static_cast<int64_t>(mesh_choices(ranks).size());
  const int64_t home = random.below(meshes);
  const int64_t count = 6 + random.below(9);
  for (int64_t id = 0; id < count; ++id) {
    Step step;
    step.id = id;
    step.kind = id == 0 ? Kind::kMake : draw_kind(random);
    step.mesh = step.kind == Kind::kOtherMesh || random.one_in(12)
                    ? random.below(meshes)
                    : home;
    step.source = draw_source(random);
    for (int i = 0; i < 2; ++i) {
      // Late results more often than early ones: long chains.
      step.wanted.push_back(
          id == 0 ? 0 : std::max(random.below(id), random.below(id)));
    }
    for (int i = 0; i < 10; ++i) {
      step.codes.push_back(random.below(1 << 20));
    }
    program.steps.push_back(std::move(step));
  }
  return program;
}

std::vector<MeshChoice> mesh_choices(int64_t ranks) {
  List order(static_cast<size_t>(ranks));
  std::iota(order.begin(), order.end(), int64_t{0});
  List backward(order.rbegin(), order.rend());
  std::vector<MeshChoice> choices{
      {{ranks}, order}, {{ranks}, order}, {{ranks}, backward}};
  if (ranks % 2 == 0 && ranks > 2) {
    List mixed = order;
    std::swap(mixed[0], mixed[3]);
    choices.push_back({{2, ranks / 2}, order});
    choices.push_back({{2, ranks / 2}, order});
    choices.push_back({{ranks / 2, 2}, mixed});
  }
  choices.push_back({{1, ranks}, order});
  choices.push_back({{ranks, 1}, order});
  return choices;
}

Placements placements_for(
    const List& shape, const List& mesh_sizes, c10::ScalarType dtype,
    const Source& source) {
  Placements result;
  for (size_t m = 0; m < mesh_sizes.size(); ++m) {
    result.push_back(placement_of(
        source.placement_codes[m % source.placement_codes.size()], shape,
        mesh_sizes[m], dtype));
  }
  if (source.reversed) {
    reverse_turns(result);
  }
  // Where placements do not fit together (two ragged cuts of one dim, addends
  // of two kinds), mesh dims from the right give way.
  for (size_t m = result.size(); m-- > 0;) {
    try {
      return Layout(shape, MeshShape(mesh_sizes), result).placements();
    } catch (const c10::Error&) {
      for (Placement& p : result) {
        p = p.is_shard() ? p.with_order(-1) : p;
      }
      result[m] = Replicate();
    }
  }
  return result;
}

}  // namespace tessera::programs
