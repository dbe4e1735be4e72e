// The kernels of a user's own operators.
#include <torch/library.h>
#include <torch/torch.h>

#include <vector>

namespace tessera {
namespace {

// Kernels read pointers, as custom kernels do: they must only ever see shards.
const at::Tensor& checked(const at::Tensor& x) {
  static_cast<void>(x.const_data_ptr());
  return x;
}

at::Tensor scale(const at::Tensor& x, double by) {
  return checked(x) * by;
}
at::Tensor& scale_in_place(at::Tensor& x, double by) {
  return checked(x), x.mul_(by);
}
at::Tensor& scale_out(const at::Tensor& x, double by, at::Tensor& out) {
  return at::mul_out(out, checked(x), at::scalar_tensor(by, x.options()));
}
std::vector<at::Tensor> scale_list(at::TensorList xs, double by) {
  std::vector<at::Tensor> out;
  for (const at::Tensor& x : xs) {
    out.push_back(scale(x, by));
  }
  return out;
}
void scale_list_in_place(at::TensorList xs, double by) {
  for (const at::Tensor& x : xs) {
    checked(x).mul_(by);
  }
}
at::Tensor product(const at::Tensor& a, const at::Tensor& b) {
  return checked(a).mm(checked(b));
}
at::Tensor add_product(
    const at::Tensor& c, const at::Tensor& a, const at::Tensor& b) {
  return checked(c) + product(a, b);
}
at::Tensor total(const at::Tensor& x, at::IntArrayRef dim, bool keepdim) {
  return checked(x).sum(dim, keepdim);
}
at::Tensor centered(const at::Tensor& x, int64_t dim) {
  return checked(x) - x.mean(dim, true);
}
at::Tensor inverse(const at::Tensor& x) {
  return at::inverse(checked(x));
}
at::Tensor pick(const at::Tensor& table, const at::Tensor& index) {
  return checked(table).index_select(0, index);
}
at::Tensor main_diagonal(const at::Tensor& x) {
  return checked(x).diagonal().clone();
}

TORCH_LIBRARY(rule_user_test, m) {
  m.def("scale(Tensor x, float by) -> Tensor");
  m.def("scale_(Tensor(a!) x, float by) -> Tensor(a!)");
  m.def("scale.out(Tensor x, float by, *, Tensor(a!) out) -> Tensor(a!)");
  m.def("_foreach_scale(Tensor[] x, float by) -> Tensor[]");
  m.def("_foreach_scale_(Tensor(a!)[] x, float by) -> ()");
  m.def("scales(Tensor[] x, float by) -> Tensor[]");
  m.def("product(Tensor a, Tensor b) -> Tensor");
  m.def("add_product(Tensor c, Tensor a, Tensor b) -> Tensor");
  m.def("total(Tensor x, int[] dim, bool keepdim) -> Tensor");
  m.def("centered(Tensor x, int dim) -> Tensor");
  m.def("inverse(Tensor x) -> Tensor");
  m.def("pick(Tensor table, Tensor index) -> Tensor");
  m.def("main_diagonal(Tensor x) -> Tensor");
}

void implement(torch::Library& m) {
  m.impl("scale", &scale);
  m.impl("scale_", &scale_in_place);
  m.impl("scale.out", &scale_out);
  m.impl("_foreach_scale", &scale_list);
  m.impl("_foreach_scale_", &scale_list_in_place);
  m.impl("scales", &scale_list);
  m.impl("product", &product);
  m.impl("add_product", &add_product);
  m.impl("total", &total);
  m.impl("centered", &centered);
  m.impl("inverse", &inverse);
  m.impl("pick", &pick);
  m.impl("main_diagonal", &main_diagonal);
}
TORCH_LIBRARY_IMPL(rule_user_test, CPU, m) {
  implement(m);
}
TORCH_LIBRARY_IMPL(rule_user_test, CUDA, m) {
  implement(m);
}

}  // namespace
}  // namespace tessera
