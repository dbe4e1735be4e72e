// Random sequences of redistributions: other placements, other meshes, strided
// and ragged cuts, any order of cuts. A sequence is data, so a failing one is
// shrunk: stages are dropped and sizes lowered as long as it still fails.
// Rerun one with TESSERA_SEED=n.
#include <cstdlib>

#include "layout/random_case.h"
#include "plan/cases.h"
#include "tensor/move/by_definition.h"

namespace tessera {
namespace {

using by_definition::List;

constexpr int kRanks = 6;

/// A mesh of the world: ranks and their arrangement.
struct MeshChoice {
  List sizes;
  List ranks;
};

const std::vector<MeshChoice>& mesh_choices() {
  static const std::vector<MeshChoice> choices{
      {{6}, {0, 1, 2, 3, 4, 5}},
      {{6}, {3, 1, 5, 0, 2, 4}},
      {{2, 3}, {0, 1, 2, 3, 4, 5}},
      {{3, 2}, {0, 1, 2, 3, 4, 5}},
      {{2, 3}, {5, 4, 3, 2, 1, 0}},
      {{2, 2}, {0, 1, 2, 3}},
      {{2, 2}, {5, 1, 4, 2}},
      {{4}, {2, 3, 4, 5}},
      {{3}, {1, 3, 5}},
      {{2}, {4, 0}},
      {{1}, {2}},
      {{2, 1, 3}, {0, 2, 4, 1, 3, 5}},
      {{1, 2, 2}, {0, 1, 2, 3}},
  };
  return choices;
}

/// One layout of a sequence. Codes turn into placements when the shape is
/// known, so that a sequence stays valid while it shrinks.
struct Stage {
  size_t mesh;
  List codes;  // per mesh dim
  bool reversed;
};

struct Sequence {
  List shape;
  std::vector<Stage> stages;
};

Placement placement_of(int64_t code, const List& shape, int64_t parts) {
  static const ReduceOp ops[] = {
      ReduceOp::kSum, ReduceOp::kSum, ReduceOp::kMax, ReduceOp::kProduct};
  const int64_t kind = code % 8;
  const int64_t dim = code / 8 % static_cast<int64_t>(shape.size());
  const int64_t choice = code / 32;
  switch (kind) {
    case 0:
      return Replicate();
    case 1:
      return Partial(ops[choice % 4]);
    case 2:
      return StridedShard(dim, 2 + choice % 3);
    case 3: {
      List sizes(static_cast<size_t>(parts), 0);
      for (int64_t i = 0; i < shape[static_cast<size_t>(dim)]; ++i) {
        ++sizes[static_cast<size_t>((choice + i * i) % parts)];
      }
      return RaggedShard(dim, sizes);
    }
    default:
      return Shard(dim);
  }
}

// The placements of a stage; where they do not fit together (two ragged cuts of
// one dim, partial kinds that do not mix), mesh dims from the right give way.
Placements placements_of(const Stage& stage, const List& shape) {
  const List& sizes = mesh_choices()[stage.mesh].sizes;
  Placements result;
  for (size_t m = 0; m < sizes.size(); ++m) {
    result.push_back(placement_of(stage.codes[m], shape, sizes[m]));
  }
  if (stage.reversed) {
    for (size_t d = 0; d < shape.size(); ++d) {
      int64_t turn = 0;
      for (size_t m = result.size(); m-- > 0;) {
        if (result[m].is_shard(static_cast<int64_t>(d))) {
          result[m] = result[m].with_order(turn++);
        }
      }
    }
  }
  for (size_t m = result.size(); m-- > 0;) {
    try {
      return Layout(shape, MeshShape(sizes), result).placements();
    } catch (const c10::Error&) {
      for (Placement& p : result) {
        if (p.is_shard()) {
          p = p.with_order(-1);
        }
      }
      result[m] = Replicate();
    }
  }
  return result;
}

Sequence draw(Random& random) {
  Sequence sequence;
  const int64_t ndim = random.between(1, 3);
  for (int64_t d = 0; d < ndim; ++d) {
    sequence.shape.push_back(random.between(0, ndim == 1 ? 13 : 7));
  }
  const int64_t stages = random.between(1, 8) + 1;
  auto mesh = static_cast<size_t>(
      random.between(0, static_cast<int64_t>(mesh_choices().size()) - 1));
  for (int64_t s = 0; s < stages; ++s) {
    if (random.between(0, 2) == 0) {
      mesh = static_cast<size_t>(
          random.between(0, static_cast<int64_t>(mesh_choices().size()) - 1));
    }
    Stage stage{mesh, {}, random.between(0, 3) == 0};
    for (size_t m = 0; m < mesh_choices()[mesh].sizes.size(); ++m) {
      stage.codes.push_back(random.between(0, 127));
    }
    sequence.stages.push_back(std::move(stage));
  }
  return sequence;
}

std::string to_text(const Sequence& sequence) {
  std::ostringstream text;
  text << "shape " << at::IntArrayRef(sequence.shape);
  for (const Stage& stage : sequence.stages) {
    text << "\n  " << to_string(placements_of(stage, sequence.shape)) << " @ "
         << MeshShape::from_ranks(
                mesh_choices()[stage.mesh].ranks,
                mesh_choices()[stage.mesh].sizes);
  }
  return text.str();
}

/// One rank's meshes, made once.
std::vector<DeviceMesh> all_meshes() {
  std::vector<DeviceMesh> meshes;
  for (const MeshChoice& choice : mesh_choices()) {
    meshes.emplace_back(
        testing::device(), MeshShape::from_ranks(choice.ranks, choice.sizes));
  }
  return meshes;
}

/// Runs a sequence on one rank; says what went wrong.
std::optional<std::string> run(
    const Sequence& sequence, const std::vector<DeviceMesh>& meshes,
    by_definition::Exhibition& exhibition) {
  const Stage& first = sequence.stages[0];
  at::Tensor tensor = by_definition::make(
      sequence.shape, meshes[first.mesh], placements_of(first, sequence.shape));
  std::optional<std::string> wrong;
  for (size_t s = 1; s < sequence.stages.size(); ++s) {
    const Stage& stage = sequence.stages[s];
    tensor = redistribute(
        tensor, meshes[stage.mesh], placements_of(stage, sequence.shape),
        {.async = s % 2 == 0});
    const bool partial = spec(tensor).layout().has_partial();
    const auto found = partial ? exhibition.difference(tensor)
                               : by_definition::difference(tensor);
    if (found && !wrong) {
      wrong = "stage " + std::to_string(s) + ": " + *found;
    }
  }
  return wrong;
}

/// Runs one sequence in a world of its own.
std::optional<std::string> fails(const Sequence& sequence) {
  std::vector<std::string> wrong(kRanks);
  by_definition::Exhibition exhibition(kRanks);
  try {
    run_ranks(kRanks, [&] {
      wrong[static_cast<size_t>(rank())] =
          run(sequence, all_meshes(), exhibition).value_or("");
    });
  } catch (const std::exception& e) {
    return e.what();
  }
  for (const std::string& text : wrong) {
    if (!text.empty()) {
      return text;
    }
  }
  return std::nullopt;
}

Sequence shrunk(Sequence sequence) {
  bool smaller = true;
  const auto keep_if_failing = [&](const Sequence& candidate) {
    if (!fails(candidate)) {
      return false;
    }
    sequence = candidate;
    smaller = true;
    return true;
  };
  while (smaller) {
    smaller = false;
    for (size_t s = 0; s < sequence.stages.size(); ++s) {
      Sequence candidate = sequence;
      candidate.stages.erase(
          candidate.stages.begin() + static_cast<std::ptrdiff_t>(s));
      if (candidate.stages.size() > 1 && keep_if_failing(candidate)) {
        break;
      }
    }
    for (size_t d = 0; d < sequence.shape.size(); ++d) {
      Sequence candidate = sequence;
      if (candidate.shape[d] > 0) {
        --candidate.shape[d];
        keep_if_failing(candidate);
      }
    }
    for (size_t s = 0; s < sequence.stages.size(); ++s) {
      for (size_t m = 0; m < sequence.stages[s].codes.size(); ++m) {
        Sequence candidate = sequence;
        if (candidate.stages[s].codes[m] != 0) {
          candidate.stages[s].codes[m] = 0;  // R
          keep_if_failing(candidate);
        }
      }
    }
  }
  return sequence;
}

void report(uint64_t seed) {
  Random random(seed);
  const Sequence sequence = draw(random);
  const auto wrong = fails(sequence);
  if (!wrong) {
    ADD_FAILURE() << "TESSERA_SEED=" << seed
                  << " failed among others, but not alone: "
                  << to_text(sequence);
    return;
  }
  const Sequence least = shrunk(sequence);
  ADD_FAILURE() << "TESSERA_SEED=" << seed << ": " << *wrong << "\nshrunk to "
                << to_text(least) << "\n"
                << fails(least).value_or("");
}

/// Runs seeds begin .. end-1 in one world; returns the first that failed.
std::optional<uint64_t> first_failure(uint64_t begin, uint64_t end) {
  std::atomic<uint64_t> bad{end};
  std::vector<uint64_t> at(kRanks, begin);
  by_definition::Exhibition exhibition(kRanks);
  try {
    run_ranks(kRanks, [&] {
      const auto meshes = all_meshes();
      for (uint64_t seed = begin; seed < end; ++seed) {
        at[static_cast<size_t>(rank())] = seed;
        Random random(seed);
        if (run(draw(random), meshes, exhibition)) {
          for (uint64_t known = bad; seed < known;) {
            if (bad.compare_exchange_weak(known, seed)) {
              break;
            }
          }
        }
      }
    });
  } catch (const std::exception&) {
    bad = std::min<uint64_t>(bad, *std::max_element(at.begin(), at.end()));
  }
  return bad < end ? std::optional<uint64_t>(bad) : std::nullopt;
}

TEST(RandomSequences, KeepEveryElement) {
  if (const char* seed = std::getenv("TESSERA_SEED")) {
    Random random(std::strtoull(seed, nullptr, 10));
    const Sequence sequence = draw(random);
    std::cout << to_text(sequence) << '\n';
    EXPECT_EQ(fails(sequence).value_or(""), "");
    return;
  }
  const uint64_t count =
      (std::getenv("TESSERA_LONG") != nullptr ? 200'000 : 20'000) /
      by_definition::kSlow;
  if (const auto seed = first_failure(0, count)) {
    report(*seed);
  }
  std::cout << count << " sequences\n";
}

}  // namespace
}  // namespace tessera
