// Sharded tensors made in place.
#include <tessera/tensor/factories.h>

#include "bindings.h"

namespace tessera::python {
namespace {

using Sizes = std::vector<int64_t>;
using MaybeDtype = std::optional<at::ScalarType>;

at::TensorOptions options_of(MaybeDtype dtype, bool requires_grad) {
  return at::TensorOptions().dtype(dtype).requires_grad(requires_grad);
}

template <class T>
const T& unwrap(const T& argument) {
  return argument;
}
const at::Scalar& unwrap(const ScalarArg& argument) {
  return argument.value;
}

// Binds a factory whose arguments begin with those named in `leading`, then the
// mesh, the placements and the options.
template <class... Leading, class Make, class... Names>
void bind_factory(
    py::module_& module, const char* name, const char* text, const Make& make,
    const Names&... leading) {
  module.def(
      name,
      [make](
          const Leading&... first, const DeviceMesh& mesh,
          const PlacementsArg& placements, MaybeDtype dtype,
          bool requires_grad) {
        return make(
            unwrap(first)..., mesh, placements.value,
            options_of(dtype, requires_grad));
      },
      leading..., py::arg("mesh"), py::arg("placements"), py::kw_only(),
      py::arg("dtype") = py::none(), py::arg("requires_grad") = false, NoGil(),
      text);
}

void bind_filled(py::module_& module) {
  const py::arg size("size");
  bind_factory<Sizes>(
      module, "zeros", R"doc(
Fills with zeros.

>>> tessera.zeros([4], mesh, "S(0)", dtype=torch.float64).dtype
torch.float64)doc",
      [](const auto&... a) { return zeros(a...); }, size);
  bind_factory<Sizes>(
      module, "ones", R"doc(
Fills with ones; on a Partial dim the addends combine to one.

>>> tessera.ones([4], mesh, "S(0)").sum().item()
4.0)doc",
      [](const auto&... a) { return ones(a...); }, size);
  bind_factory<Sizes>(
      module, "empty", R"doc(
Leaves the values undefined.

>>> tessera.empty([4, 2], mesh, "S(0)").shape
torch.Size([4, 2]))doc",
      [](const auto&... a) { return empty(a...); }, size);
  bind_factory<Sizes, ScalarArg>(
      module, "full", R"doc(
Fills with one value.

>>> tessera.full([2], 7, mesh, "S(0)").sum().item()
14)doc",
      [](const auto&... a) { return full(a...); }, size, py::arg("fill_value"));
}

void bind_ranges(py::module_& module) {
  using Scalar = ScalarArg;
  bind_factory<Scalar, Scalar, Scalar>(
      module, "arange", R"doc(
Counts from `start` to before `end` by `step`.

>>> tessera.full_tensor(tessera.arange(0, 6, 2, mesh, "S(0)"))
tensor([0, 2, 4]))doc",
      [](const auto&... a) { return arange(a...); }, py::arg("start"),
      py::arg("end"), py::arg("step"));
  bind_factory<Scalar, Scalar, int64_t>(
      module, "linspace", R"doc(
Places `steps` values evenly from `start` to `end`, both included.

>>> tessera.full_tensor(tessera.linspace(0, 1, 3, mesh, "S(0)"))
tensor([0.0000, 0.5000, 1.0000]))doc",
      [](const auto&... a) { return linspace(a...); }, py::arg("start"),
      py::arg("end"), py::arg("steps"));
  bind_factory<Scalar, Scalar, int64_t, double>(
      module, "logspace", R"doc(
Places `steps` powers of `base`, exponents evenly from `start` to `end`.

>>> tessera.full_tensor(tessera.logspace(0, 2, 3, 2.0, mesh, "S(0)"))
tensor([1., 2., 4.]))doc",
      [](const auto&... a) { return logspace(a...); }, py::arg("start"),
      py::arg("end"), py::arg("steps"), py::arg("base"));
}

void bind_draws(py::module_& module) {
  const py::arg size("size");
  bind_factory<Sizes>(
      module, "rand", R"doc(
Draws from [0, 1). The values depend on the seed, the draws before and the shape only,
not on the mesh.

>>> bool((tessera.rand([4], mesh, "S(0)") < 1).all())
True)doc",
      [](const auto&... a) { return rand(a...); }, size);
  bind_factory<Sizes>(
      module, "randn", R"doc(
Draws from the standard normal distribution.

>>> tessera.randn([4], mesh, "S(0)").shape
torch.Size([4]))doc",
      [](const auto&... a) { return randn(a...); }, size);
  bind_factory<int64_t, int64_t, Sizes>(
      module, "randint", R"doc(
Draws integers from `low` to before `high`.

>>> int(tessera.randint(3, 4, [2], mesh, "S(0)").sum())
6)doc",
      [](const auto&... a) { return randint(a...); }, py::arg("low"),
      py::arg("high"), size);
  bind_factory<int64_t>(
      module, "randperm", R"doc(
Orders 0 .. n-1 at random.

>>> int(tessera.randperm(5, mesh, "S(0)").sum())
10)doc",
      [](const auto&... a) { return randperm(a...); }, py::arg("n"));
}

}  // namespace

void bind_factories(py::module_& module) {
  bind_filled(module);
  bind_ranges(module);
  bind_draws(module);
}

}  // namespace tessera::python
