// An operator of one's own on sharded tensors. Tessera has never heard of it,
// so it gathers the arguments and runs it on whole values; one line, a sharding
// rule, says how it may be cut, and then it runs on the shards.
//
//   build/bin/tessera run -n 2 -- build/bin/04_custom_rule
//   mpirun -n 4 build/bin/04_custom_rule
//
// Prints explain() of the same calls without and with the rule, the bytes that
// they then move, and whether values and gradients are those of plain tensors.
#include <iostream>
#include <string>
#include <vector>

#include <tessera/tessera.h>
#include <torch/torch.h>

namespace {

// result[b] = sum over k of x[b, k] * y[b, k] * w[k]
at::Tensor weighted_dot(
    const at::Tensor& x, const at::Tensor& y, const at::Tensor& w) {
  return (x * y).matmul(w);
}

at::Tensor call(const at::Tensor& x, const at::Tensor& y, const at::Tensor& w) {
  static const auto op = c10::Dispatcher::singleton()
                             .findSchemaOrThrow("toy::weighted_dot", "")
                             .typed<decltype(weighted_dot)>();
  return op.call(x, y, w);
}

// The derivative is written with LibTorch's operators, which have their rules.
struct WeightedDot : torch::autograd::Function<WeightedDot> {
  static at::Tensor forward(
      torch::autograd::AutogradContext* context, const at::Tensor& x,
      const at::Tensor& y, const at::Tensor& w) {
    context->save_for_backward({x, y, w});
    const at::AutoDispatchBelowAutograd below;
    return call(x, y, w);
  }
  static torch::autograd::variable_list backward(
      torch::autograd::AutogradContext* context,
      const torch::autograd::variable_list& gradients) {
    const auto saved = context->get_saved_variables();
    const at::Tensor &x = saved[0], &y = saved[1], &w = saved[2];
    const at::Tensor g = gradients[0].unsqueeze(1);
    return {g * y * w, g * x * w, (g * x * y).sum(0)};
  }
};

}  // namespace

TORCH_LIBRARY(toy, m) {
  m.def("weighted_dot(Tensor x, Tensor y, Tensor w) -> Tensor");
  m.impl("weighted_dot", c10::DispatchKey::CPU, TORCH_FN(weighted_dot));
  m.impl("weighted_dot", c10::DispatchKey::Meta, TORCH_FN(weighted_dot));
  m.impl(
      "weighted_dot", c10::DispatchKey::Autograd,
      [](const at::Tensor& x, const at::Tensor& y, const at::Tensor& w) {
        return WeightedDot::apply(x, y, w);
      });
}

namespace {

using namespace tessera;

void print(const std::string& line) {
  std::cout << (rank() == 0 ? line + "\n" : "") << std::flush;
}

// Calls the operator on x and y cut along `dim`.
void try_cut(const DeviceMesh& mesh, int64_t dim) {
  const at::Tensor values = at::linspace(-1, 1, 24, at::kDouble).view({4, 6});
  std::vector<at::Tensor> alone = {values, values.cos(), values[0].exp()};
  std::vector<at::Tensor> sharded = {
      distribute_tensor(alone[0], mesh, {Shard(dim)}),
      distribute_tensor(alone[1], mesh, {Shard(dim)}),
      distribute_tensor(alone[2], mesh, {dim == 1 ? Shard(0) : Replicate()})};
  for (size_t i = 0; i < alone.size(); ++i) {
    alone[i].requires_grad_();
    sharded[i].requires_grad_();
  }
  print(explain("toy::weighted_dot", sharded[0], sharded[1], sharded[2]));

  const CommLog log;
  const at::Tensor result = call(sharded[0], sharded[1], sharded[2]);
  print(c10::str("moved ", log.bytes(), " bytes, ", to_string(spec(result))));

  const at::Tensor expected = call(alone[0], alone[1], alone[2]);
  result.square().sum().backward();
  expected.square().sum().backward();
  bool equal = at::allclose(full_tensor(result), expected);
  for (size_t i = 0; i < alone.size(); ++i) {
    const at::Tensor gradient = full_tensor(sharded[i].grad());
    equal = equal && at::allclose(gradient, alone[i].grad());
  }
  print(equal ? "equal\n" : "differs\n");
}

void body(const std::string& title) {
  print(title);
  const auto mesh = init_device_mesh(at::kCPU, {world_size()}, {"tp"});
  try_cut(mesh, 0);
  try_cut(mesh, 1);
}

}  // namespace

int main() {
  tessera::run([] { body("without a rule"); });
  // Letters that stand together are cut together; k, which the result has not,
  // leaves each rank an addend of the sum. The ranks of a process share the
  // table: change it while none of them runs.
  tessera::rules().factors("toy::weighted_dot", "bk,bk,k->b");
  tessera::run([] { body("with a rule"); });
}
