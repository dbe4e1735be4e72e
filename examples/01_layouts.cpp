// Layouts and redistribution: the same 5 x 4 matrix, cut in different ways over
// a mesh of two dims, 2 x 2 on four ranks. Prints the layouts, what each rank
// holds, and sums of rows. Run it alone, on threads, or on processes:
//
//   build/bin/tessera run -n 4 -- build/bin/01_layouts
//   build/bin/tessera run -n 4 --engine gloo -- build/bin/01_layouts
//   mpirun -n 4 build/bin/01_layouts
#include <iostream>
#include <sstream>
#include <string>

#include <ATen/ops/arange.h>
#include <tessera/tessera.h>

#include "print_in_order.h"

namespace {

using namespace tessera;

void show(const std::string& title, const at::Tensor& t) {
  std::ostringstream line;
  if (rank() == 0) {
    line << title << ": " << to_string(spec(t)) << '\n';
  }
  line << "  rank " << rank() << " holds " << to_local(t).sizes();
  for (const auto& chunk : chunk_list(t)) {
    line << ' ' << to_string(Box{chunk.offsets, chunk.sizes});
  }
  line << '\n';
  print_in_order(line.str());
}

void body() {
  const int64_t tp = world_size() % 2 == 0 ? 2 : 1;
  const auto mesh =
      init_device_mesh(at::kCPU, {world_size() / tp, tp}, {"dp", "tp"});
  const at::Tensor matrix = at::arange(20, at::kFloat).reshape({5, 4});

  // Every rank has the whole value here; distribute_tensor keeps its part.
  const auto rows = distribute_tensor(matrix, mesh, {Shard(0), Replicate()});
  show("rows over dp", rows);

  // Both mesh dims may cut one tensor dim: 5 rows -> 3 and 2 -> 2 1 1 1.
  const auto nested = redistribute(rows, {Shard(0), Shard(0)});
  show("rows over dp, then tp", nested);

  // The order of the cuts is part of a placement: here tp cuts first.
  show(
      "rows over tp, then dp",
      redistribute(nested, parse_placements("S(0)[1] S(0)[0]")));

  // Operators work on any of them and see the global tensor.
  const auto sums = nested.sum(1);
  if (rank() == 0) {
    std::cout << "row sums: " << to_string(spec(sums)) << '\n';
  }
  const at::Tensor whole = full_tensor(sums);
  if (rank() == 0) {
    std::cout << "first " << whole[0].item<float>() << ", last "
              << whole[4].item<float>() << '\n';
  }
}

}  // namespace

int main() {
  tessera::run(body);
}
