// What a rank saves: found from its own state, without talking to others.
#pragma once

#include <algorithm>
#include <cstdint>
#include <string>
#include <vector>

#include <ATen/core/Tensor.h>
#include <checkpoint/write/portions.h>
#include <checkpoint/write/snapshot.h>
#include <io/model/writer.h>
#include <tessera/checkpoint/state_dict.h>

namespace tessera::detail::inline checkpoint_layer {

struct SavePlan {
  io::RankContents contents;
  std::vector<at::Tensor> views;  // of contents.chunks; undefined: no elements
  /// A line for each name that all ranks must have alike.
  std::string shared;

  /// Returns how many bytes of elements this rank writes.
  int64_t bytes() const;
};

/// Throws for what no checkpoint can hold. `call` is what errors begin with;
/// the first rank saves the values.
SavePlan make_save_plan(
    const std::string& call, io::Format format, bool is_first_rank,
    checkpoint::StateDict& state);

/// Calls f(pointer, bytes) for portions of a tensor's elements, row-major.
template <class F>
void for_each_portion(const at::Tensor& t, const F& f) {
  const auto give = [&](const at::Tensor& part) {
    const at::Tensor plain =
        part.resolve_conj().resolve_neg().cpu().contiguous();
    for_each_portion(plain.const_data_ptr(), plain.nbytes(), f);
  };
  if (t.dim() == 0 || t.size(0) == 1 ||
      static_cast<int64_t>(t.nbytes()) <= kPortionBytes || is_plain_memory(t)) {
    return give(t);
  }
  const int64_t row_bytes = static_cast<int64_t>(t.nbytes()) / t.size(0);
  const int64_t rows = std::max<int64_t>(1, kPortionBytes / row_bytes);
  for (int64_t begin = 0; begin < t.size(0); begin += rows) {
    give(t.narrow(0, begin, std::min(rows, t.size(0) - begin)));
  }
}

}  // namespace tessera::detail::inline checkpoint_layer
