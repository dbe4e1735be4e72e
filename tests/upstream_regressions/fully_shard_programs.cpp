// Programs on which PyTorch's fully_shard fails or gives wrong numbers, on
// ours: fully_shard_test.py runs each of them on both sides.
//
//   fully_shard_programs NAME    prints "right", "wrong: ..." or "error: ..."
#include <tessera/tessera.h>
#include <torch/torch.h>

#include <algorithm>
#include <cmath>
#include <functional>
#include <iostream>
#include <map>
#include <string>

namespace tessera {
namespace {

using torch::nn::Linear;

// Equal on all ranks, distinct per element.
at::Tensor values(at::IntArrayRef shape, double shift) {
  return at::arange(c10::multiply_integers(shape), at::kDouble)
      .mul(0.7390851)
      .add(shift)
      .sin()
      .reshape(shape);
}

struct Net : torch::nn::Module {
  Net() {
    a = register_module("a", Linear(8, 8));
    b = register_module("b", Linear(8, 8));
    e = register_module("e", torch::nn::Embedding(8, 8));
    set_values();
  }
  void set_values() {
    to(at::kDouble);
    const torch::NoGradGuard guard;
    double shift = 0;
    for (const at::Tensor& p : parameters()) {
      p.copy_(values(p.sizes(), shift++));
    }
  }
  Linear a = nullptr, b = nullptr;
  torch::nn::Embedding e = nullptr;
};

DeviceMesh mesh() {
  return init_device_mesh(at::kCPU, {2}, {"dp"});
}

at::Tensor batch() {
  return values({4, 8}, 0.5);
}
at::Tensor indices() {
  return at::arange(4, at::kLong);
}

// The first parameter whose gradient is not that of the plain net, or "".
std::string difference(const Net& net, const Net& plain) {
  const auto mine = net.named_parameters();
  for (const auto& p : plain.named_parameters()) {
    const at::Tensor& want = p.value().grad();
    const at::Tensor& got = mine[p.key()].grad();
    const double tolerance =
        p.value().scalar_type() == at::kFloat ? 1e-4 : 1e-10;
    if (want.defined() != got.defined() ||
        (want.defined() && !at::allclose(full_tensor(got), want, tolerance))) {
      return p.key();
    }
  }
  return "";
}

using Loss = std::function<at::Tensor(Net&, const at::Tensor& x)>;

// The same loss of a plain net on the whole batch, and of a sharded one.
void expect_alike(
    const Loss& loss, const FullyShardOptions& options, const at::Tensor& input,
    const std::function<void(Net&)>& prepare = {}) {
  Net plain;
  Net net;
  for (Net* each : {&plain, &net}) {
    if (prepare) {
      prepare(*each);
    }
  }
  loss(plain, input).backward();
  const DeviceMesh on = mesh();
  const auto sharded = fully_shard(net, on, options);
  loss(net, distribute_tensor(input, on, {Shard(0)})).backward();
  const std::string wrong = difference(net, plain);
  TORCH_CHECK(wrong.empty(), "wrong gradient of ", wrong);
}

at::Tensor in_place_loss(Net& net, const at::Tensor& x) {
  at::Tensor y = net.a(net.b(x)).unsqueeze(0).squeeze(0);
  y += 1;  // a view of what a group gave
  return net.b(y).square().sum();
}

void view() {
  expect_alike(in_place_loss, {.groups = {"a"}}, batch());
}

// No forward() is called, here or in the groups.
void method() {
  expect_alike(
      [](Net& net, const at::Tensor& x) {
        return at::linear(x, net.a->weight, net.a->bias).square().sum();
      },
      {.groups = {"a", "b"}}, batch());
}

void tied() {
  expect_alike(
      [](Net& net, const at::Tensor& x) {
        return at::linear(net.e(x), net.b->weight).square().sum();
      },
      {.groups = {"e", "b"}}, indices(),
      [](Net& net) { net.b->weight = net.e->weight; });
}

void uneven() {
  expect_alike(
      [](Net& net, const at::Tensor& x) {
        return net.b(net.a(x.narrow(1, 0, 7))).square().sum();
      },
      {.groups = {"a"},
       .placement = [](const std::string&,
                       const at::Tensor& p) { return Shard(p.dim() - 1); }},
      batch(),
      [](Net& net) {
        net.a = net.replace_module("a", Linear(7, 8));
        net.set_values();
      });
}

// Parameters of two dtypes in one group.
void dtypes() {
  expect_alike(
      [](Net& net, const at::Tensor& x) {
        return net.b(net.a(x.to(at::kFloat)).to(at::kDouble)).square().sum();
      },
      {}, batch(), [](Net& net) { net.a->to(at::kFloat); });
}

Loss by_rank() {
  return [](Net& net, const at::Tensor& x) {
    return (rank() == 0 ? net.a(x) : net.b(x)).sum();
  };
}

// Ranks use different parameters of equal shapes.
void diverge() {
  Net net;
  const auto sharded = fully_shard(net, mesh());
  by_rank()(net, distribute_tensor(batch(), mesh(), {Shard(0)})).backward();
}

void average() {
  Net net;
  const auto sharded = fully_shard(net, mesh());
  Ema ema(net, 0.5, at::kDouble);
  {
    const torch::NoGradGuard guard;
    for (const at::Tensor& p : net.parameters()) {
      p.add_(2);
    }
  }
  ema.update();
  const at::Tensor average = full_tensor(ema.averages().at(0).second);
  TORCH_CHECK(
      at::allclose(average, full_tensor(net.parameters()[0]) - 1),
      "wrong average");
}

// Parameters on two meshes.
void clip() {
  const DeviceMesh two = init_device_mesh(at::kCPU, {1, 2}, {"x", "y"});
  std::vector<at::Tensor> all{
      distribute_tensor(values({4, 4}, 0), mesh(), {Shard(0)}),
      distribute_tensor(values({4, 4}, 1), two, {Replicate(), Shard(0)})};
  double squares = 0;
  for (size_t i = 0; i < all.size(); ++i) {
    all[i].mutable_grad() = all[i].clone();
    squares +=
        values({4, 4}, static_cast<double>(i)).square().sum().item<double>();
  }
  const double norm = clip_grad_norm(all, 1.0).item<double>();
  TORCH_CHECK(std::abs(norm - std::sqrt(squares)) < 1e-9, "wrong norm ", norm);
}

const std::map<std::string, void (*)()>& programs() {
  static const std::map<std::string, void (*)()> all = {
      {"view", view},       {"method", method}, {"tied", tied},
      {"uneven", uneven},   {"dtypes", dtypes}, {"diverge", diverge},
      {"average", average}, {"clip", clip}};
  return all;
}

std::string run_program(const std::string& name) {
  try {
    run_ranks(2, programs().at(name));
  } catch (const c10::Error& error) {
    return std::string("error: ") + error.what_without_backtrace();
  }
  return "right";
}

}  // namespace
}  // namespace tessera

int main(int argc, char** argv) {
  for (int i = 1; i < argc; ++i) {
    std::string text = tessera::run_program(argv[i]);
    std::replace(text.begin(), text.end(), '\n', ' ');
    std::cout << argv[i] << ": " << text << "\n";
  }
}
