// The demo's text as numbers: a vocabulary of characters, and batches.
#pragma once

#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

#include <ATen/core/Tensor.h>

namespace tessera::cli {

/// Windows of the text, [batch, length] each; a target is the character after
/// its input.
struct Batch {
  at::Tensor inputs;
  at::Tensor targets;
};

class Corpus {
 public:
  /// The vocabulary is the characters that occur, in order of their codes.
  explicit Corpus(std::string_view text);
  /// The text that comes with the program.
  static Corpus shipped();

  int64_t size() const { return codes_.size(0); }
  int64_t vocabulary() const {
    return static_cast<int64_t>(characters_.size());
  }
  /// Returns the numbers of characters; one that the text has not is an error.
  std::vector<int64_t> encode(std::string_view text) const;
  std::string decode(const std::vector<int64_t>& codes) const;
  /// Returns a batch of windows at random places, the same ones whenever and
  /// on whatever rank it is asked for.
  Batch batch(int step, int64_t windows, int64_t length) const;

 private:
  std::string characters_;
  at::Tensor codes_;
};

}  // namespace tessera::cli
