// Which boxes of a tensor this rank holds, and which of them it writes.
//
// Note [Who writes which copy]
// Copies of an element are written once. Ranks that hold equal boxes are
// numbered by their coordinates along the mesh dims that do not cut; a box of
// kSplitBytes or more is divided among them, so that all write equally much; a
// smaller one is written whole by one of them, in turn from tensor to tensor.
// Every rank finds its part by itself, from its own layout: planning is
// proportional to the shards of the rank, and nothing is exchanged.
//
//   f32[1000, 512] S(0) R @ mesh(dp=2, tp=4): shards of 500 rows, 4 copies each
//   rank at (1, 2) holds rows 500 .. 999 and writes rows 750 .. 874
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include <ATen/core/Tensor.h>
#include <io/model/entry.h>
#include <tessera/checkpoint/state_dict.h>

namespace tessera::detail::inline checkpoint_layer {

inline constexpr int64_t kSplitBytes = int64_t{1} << 20;

/// A box of a tensor, and this rank's memory of it: a view of that shape, on
/// the tensor's device, outside of autograd.
struct HeldBox {
  io::Box box;
  at::Tensor view;
};

/// What a checkpoint needs to know of a tensor of either family.
struct TensorMeta {
  c10::ScalarType dtype;
  std::vector<int64_t> shape;
  /// Every rank has all of it: a plain tensor.
  bool is_plain;
  /// "f32[8, 16] S(0) R @ mesh(dp=2, tp=4)", for errors and comparisons.
  std::string text;
};

/// Throws for tensors that no checkpoint can hold: undefined, sparse,
/// quantized, with partial values. `what` is what the error begins with.
TensorMeta tensor_meta(
    const std::string& what, const checkpoint::StateValue& value);

/// Returns the boxes that this rank holds, without empty ones.
std::vector<HeldBox> held_boxes(const checkpoint::StateValue& value);

/// How a box is shared among the ranks that hold it.
struct Sharing {
  /// Divides large boxes; else one rank writes all of a box.
  bool splits = true;
  /// The number of the tensor, which chooses the rank that writes a small box.
  int64_t turn = 0;
};

/// Returns the boxes that this rank writes: all ranks together write each
/// element once. A tensor of no elements has one empty box, written by its
/// first rank.
std::vector<HeldBox> written_boxes(
    const checkpoint::StateValue& value, const Sharing& sharing);

}  // namespace tessera::detail::inline checkpoint_layer
