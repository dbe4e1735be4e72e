// What a Python process with torch.distributed running calls by ctypes: a
// program over one of its groups, found by name. Returns 0, or writes what went
// wrong into `error` and returns 1.
#include <cstdio>
#include <cstring>
#include <string>
#include <vector>

#include <ATen/ops/arange.h>
#include <ATen/ops/empty.h>
#include <ATen/ops/equal.h>
#include <ATen/ops/full.h>
#include <ATen/ops/matmul.h>
#include <ATen/ops/zeros.h>
#include <c10/util/Exception.h>
#include <tessera/comm/device_mesh.h>
#include <tessera/comm/from_process_group.h>
#include <tessera/tensor/dtensor.h>
#include <torch/csrc/distributed/c10d/GroupRegistry.hpp>

namespace {

using tessera::Communicator;
using tessera::Replicate;
using tessera::Shard;

constexpr auto kDeadline = std::chrono::milliseconds(20000);

Communicator group_of(const char* name) {
  return tessera::from_process_group(
      c10d::resolve_process_group(name), kDeadline);
}

at::Tensor values(int64_t rows, int64_t columns) {
  return at::arange(rows * columns, at::kDouble)
      .reshape({rows, columns})
      .mul(0.25)
      .sub(3);
}

void check_collectives(const Communicator& comm) {
  const int64_t n = comm.size();
  at::Tensor sum = at::full({3}, comm.rank() + 1, at::kFloat);
  comm.all_reduce(sum);
  TORCH_CHECK(sum[2].item<int64_t>() == n * (n + 1) / 2, "all_reduce");
  std::vector<int64_t> counts;
  for (int64_t r = 0; r < n; ++r) {
    counts.push_back(r);
  }
  at::Tensor all = at::empty({n * (n - 1) / 2}, at::kShort);
  comm.all_gather_v(
      all, at::full({comm.rank()}, comm.rank(), at::kShort), counts);
  TORCH_CHECK(all[-1].item<int64_t>() == n - 1 && all[0].item<int64_t>() == 1);
}

void check_sharded_program(const Communicator& comm) {
  const tessera::DeviceMesh mesh =
      tessera::DeviceMesh::from_group({comm}, at::kCPU, {}, {"all"})
          .unflatten("all", {2, comm.size() / 2}, {"dp", "tp"});
  const at::Tensor a = values(5, 6);
  const at::Tensor b = values(6, 7);
  const at::Tensor rows =
      tessera::distribute_tensor(a, mesh, {Shard(0), Replicate()});
  at::Tensor columns =
      tessera::distribute_tensor(b, mesh, {Replicate(), Shard(1)});
  columns.requires_grad_(true);
  const at::Tensor product = at::matmul(rows, columns);
  TORCH_CHECK(
      tessera::full_tensor(product).allclose(at::matmul(a, b)), "matmul");
  product.pow(2).sum().backward();
  const at::Tensor want = at::matmul(a.t(), at::matmul(a, b).mul(2));
  TORCH_CHECK(tessera::is_dtensor(columns.grad()), "gradient's layout");
  TORCH_CHECK(tessera::full_tensor(columns.grad()).allclose(want), "gradient");
}

// Every rank must throw; afterwards a new communicator works.
void check_mismatch(const char* name) {
  const Communicator comm = group_of(name);
  std::string text;
  try {
    comm.all_reduce(at::zeros({comm.rank() == 0 ? 4 : 5}));
  } catch (const c10::Error& error) {
    text = error.what_without_backtrace();
  }
  TORCH_CHECK(
      text.find("ranks disagree") != std::string::npos,
      "expected a disagreement; got '", text, "'");
  check_collectives(group_of(name));
}

void check_subgroup(const Communicator& comm) {
  const Communicator half = comm.split(comm.rank() % 2);
  at::Tensor sum = at::full({1}, comm.rank());
  half.all_reduce(sum);
  int64_t want = 0;
  for (int64_t r = comm.rank() % 2; r < comm.size(); r += 2) {
    want += r;
  }
  TORCH_CHECK(sum.item<int64_t>() == want, "sub-group");
}

}  // namespace

extern "C" int tessera_probe(const char* group, char* error, size_t size) {
  try {
    const Communicator comm = group_of(group);
    check_collectives(comm);
    check_sharded_program(comm);
    check_subgroup(comm);
    check_mismatch(group);
    return 0;
  } catch (const c10::Error& what) {
    std::snprintf(error, size, "%s", what.what_without_backtrace());
  } catch (const std::exception& what) {
    std::snprintf(error, size, "%s", what.what());
  }
  return 1;
}
