// What all ranks have to say, under any launcher: examples share it.
#pragma once

#include <iostream>
#include <string>

#include <ATen/ops/empty.h>
#include <ATen/ops/zeros.h>
#include <tessera/tessera.h>

/// Prints the text of each rank, one after the other. Rank 0 does it for all:
/// lines of several processes may arrive in any order.
inline void print_in_order(const std::string& text) {
  constexpr int64_t kLongest = 256;
  const int64_t ranks = tessera::world_size();
  const at::Tensor mine = at::zeros({kLongest}, at::kByte);
  text.copy(static_cast<char*>(mine.mutable_data_ptr()), kLongest - 1);
  const at::Tensor all = at::empty({ranks * kLongest}, at::kByte);
  tessera::init().communicator().all_gather(all, mine);
  for (int64_t r = 0; tessera::rank() == 0 && r < ranks; ++r) {
    const void* part = all.const_data_ptr<uint8_t>() + r * kLongest;
    std::cout << static_cast<const char*>(part) << std::flush;
  }
}
