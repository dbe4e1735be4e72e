// A StateDict as a list: what a checkpoint has a name for.
//
//   {"a": {"w": tensor, "betas": [1, 2]}, "l": [tensor, 3]}
//   a.w      tensor
//   a.betas  the list [1, 2]
//   l.0      tensor
//   l.1      3
//
// Lists that hold a tensor or a dict are entered, others are one value: as
// PyTorch's distributed checkpoint has it, whose files we read and write.
#pragma once

#include <string>
#include <vector>

#include <io/model/entry.h>
#include <tessera/checkpoint/state_dict.h>

namespace tessera::detail::inline checkpoint_layer {

struct Leaf {
  std::string name;
  io::Path path;
  /// Part of the dict, which must outlive the leaf.
  checkpoint::StateValue* value;

  bool is_tensor() const;
};

/// Returns the leaves in the order of the dict. Two of one name are an error;
/// `call` is what it begins with.
std::vector<Leaf> leaves_of(
    const std::string& call, checkpoint::StateDict& dict);

/// Turns values that are no tensors into those of a file, and back.
io::Value to_io(const checkpoint::StateValue& value);
checkpoint::StateValue from_io(const io::Value& value);
/// Prints a value of a file: `3`, `"adamw"`, `[1,2]`.
std::string text_of(const io::Value& value);

}  // namespace tessera::detail::inline checkpoint_layer
