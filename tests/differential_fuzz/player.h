// Plays programs on the public API of the library, on whatever engine this
// process was started with, and says what came out of each step.
#pragma once

#include <cstdint>
#include <functional>
#include <string>
#include <vector>

#include <ATen/core/Tensor.h>
#include <tessera/comm/device_mesh.h>

#include "differential_fuzz/data.h"
#include "differential_fuzz/operators.h"
#include "differential_fuzz/program.h"

namespace tessera::programs {

/// What a step came to on this rank.
struct Outcome {
  int64_t step = 0;
  uint64_t hash = 0;
  /// "view.transpose", "collective.all_gather_v", ...
  std::string kind;
  /// The step with its operands and result, the same on all ranks.
  std::string text;
};

/// Makes a difference on purpose, to see it found: flips a bit of the result of
/// a step on the last rank.
struct Plant {
  uint64_t seed = 0;
  int64_t step = -1;
};

/// Plays one program. Every rank calls; `report` is called after each step.
class Player {
 public:
  Player(Program program, Plant plant, std::function<void(Outcome)> report);
  /// Throws what goes wrong, with seed and step in front.
  void play();

 private:
  // A result of a step: sharded, and as a plain tensor where the program
  // determines its bits.
  struct Value {
    int64_t id = 0;
    int64_t mesh = 0;
    at::Tensor tensor;
    at::Tensor plain;
  };
  using Test = std::function<bool(const Value&)>;

  void play_step(const Step& step);
  Value perform(const Step& step);
  Value make(const Step& step, const List& shape, c10::ScalarType dtype);
  Value make_from_local(const Step& step, Value value, const Placements& p);
  Value apply(const Step& step);
  Value redistribute_step(const Step& step);
  Value other_mesh(const Step& step);
  Value visit(const Step& step);
  Value through_plain(const Step& step);
  Value through_local(const Step& step);
  Value backward(const Step& step);
  Value communicate(const Step& step);
  Value family(const Step& step);

  const DeviceMesh& mesh_of(int64_t choice) {
    return meshes_[static_cast<size_t>(choice)];
  }
  /// Returns the operand that the step names, or the nearest that suits, or
  /// one of its own.
  Value pick(const Step& step, size_t which, const Test& suits, bool numeric);
  Value partner(const Step& step, const Value& first);
  Placements placements_of(const Step& step, const Value& value) const;
  void check(const Value& value) const;
  void flip_bit(const Value& value);
  void say(const std::string& text) { text_ += text; }

  Program program_;
  Plant plant_;
  std::function<void(Outcome)> report_;
  std::vector<DeviceMesh> meshes_;
  std::vector<Value> values_;
  std::vector<at::Tensor> leaves_;
  Hash hash_;
  std::string kind_;
  std::string text_;
};

}  // namespace tessera::programs
