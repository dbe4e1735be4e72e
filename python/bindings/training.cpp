// Training: activations that are computed again, losses that are scaled.
#include <memory>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include <tessera/parallel/activation_checkpoint.h>
#include <tessera/parallel/clip_grad_norm.h>
#include <tessera/parallel/loss_scaler.h>
#include <tessera/parallel/tensor_packer.h>
#include <torch/csrc/autograd/python_variable.h>

#include "bindings.h"

namespace tessera::python {
namespace {

// Raised through Python's frames where the library ends a recomputation early:
// like GeneratorExit no Exception, so that `except Exception` lets it pass.
py::handle recomputation_ends() {
  static PyObject* type = PyErr_NewException(
      "tessera._RecomputationEnds", PyExc_BaseException, nullptr);
  return type;
}

std::shared_ptr<PackedTensor> pack(
    TensorPacker& packer, const at::Tensor& tensor) {
  try {
    return packer.pack(tensor);
  } catch (const std::exception&) {
    throw;
  } catch (...) {
    PyErr_SetNone(recomputation_ends().ptr());
    throw py::error_already_set();
  }
}

py::object autograd_module() {
  return py::module_::import("torch._C").attr("_autograd");
}

// Gives the tensors that autograd saves to the packer, by Python's own hooks.
std::shared_ptr<void> push_hooks(std::shared_ptr<TensorPacker> packer) {
  const py::gil_scoped_acquire gil;
  autograd_module().attr("_push_saved_tensors_default_hooks")(
      py::cpp_function([packer = std::move(packer)](const at::Tensor& tensor) {
        return pack(*packer, tensor);
      }),
      py::cpp_function([](PackedTensor& packed) { return packed.unpack(); }));
  static int pushed = 0;
  return {&pushed, [](void*) {
            const py::gil_scoped_acquire again;
            const py::error_scope error;
            autograd_module().attr("_pop_saved_tensors_default_hooks")();
          }};
}

// The arguments of a call, whose tensors are the inputs of its region. May be
// dropped without the interpreter's lock.
class Call {
 public:
  Call(py::object fn, py::tuple arguments)
      : kept_(new Kept{std::move(fn), std::move(arguments)}, [](Kept* kept) {
          const py::gil_scoped_acquire gil;
          delete kept;
        }) {}

  std::vector<at::Tensor> tensors() const {
    std::vector<at::Tensor> tensors;
    for (const py::handle argument : kept_->arguments) {
      if (THPVariable_Check(argument.ptr())) {
        tensors.push_back(argument.cast<at::Tensor>());
      }
    }
    return tensors;
  }

  std::vector<at::Tensor> operator()(
      const std::vector<at::Tensor>& tensors) const {
    const py::gil_scoped_acquire gil;
    py::tuple arguments(kept_->arguments.size());
    size_t next = 0;
    for (size_t i = 0; i < arguments.size(); ++i) {
      const py::handle argument = kept_->arguments[i];
      arguments[i] = THPVariable_Check(argument.ptr())
                         ? py::cast(tensors[next++])
                         : py::reinterpret_borrow<py::object>(argument);
    }
    const py::object result = kept_->fn(*arguments);
    kept_->one = THPVariable_Check(result.ptr()) != 0;
    if (kept_->one) {
      return {result.cast<at::Tensor>()};
    }
    TORCH_CHECK_TYPE(
        py::isinstance<py::tuple>(result) || py::isinstance<py::list>(result),
        "activation_checkpoint: fn must return a tensor, or a tuple or list of "
        "tensors; got ",
        std::string(py::str(py::type::of(result))));
    return result.cast<std::vector<at::Tensor>>();
  }

  bool returned_one() const { return kept_->one; }

 private:
  struct Kept {
    py::object fn;
    py::tuple arguments;
    bool one = false;
  };
  std::shared_ptr<Kept> kept_;
};

py::object checkpoint(
    py::object fn, const py::args& arguments, bool keep_moved,
    std::vector<std::string> keep, bool check) {
  const Call call(std::move(fn), arguments);
  const std::vector<at::Tensor> results = activation_checkpoint(
      call, call.tensors(),
      {.keep_moved = keep_moved, .keep = std::move(keep), .check = check});
  return call.returned_one() ? py::cast(results[0])
                             : py::object(py::tuple(py::cast(results)));
}

void bind_loss_scaler(py::module_& module) {
  py::class_<LossScaler>(module, "_LossScaler")
      .def(py::init([](double initial, double growth, double backoff,
                       int64_t interval,
                       const std::optional<Communicator>& stages) {
        return std::make_unique<LossScaler>(LossScalerOptions{
            .initial = initial,
            .growth = growth,
            .backoff = backoff,
            .interval = interval,
            .stages = stages});
      }))
      .def("scale", &LossScaler::scale, NoGil())
      .def("unscale", &LossScaler::unscale, NoGil())
      .def("unscale_once", &LossScaler::unscale_once, NoGil())
      .def("update", &LossScaler::update)
      .def(
          "state",
          [](const LossScaler& scaler) {
            const LossScalerState state = scaler.state();
            return std::pair(state.scale, state.good_steps);
          })
      .def(
          "set_state",
          [](LossScaler& scaler, double scale, int64_t good_steps) {
            scaler.set_state({.scale = scale, .good_steps = good_steps});
          });
}

}  // namespace

void bind_training(py::module_& module) {
  py::class_<PackedTensor, std::shared_ptr<PackedTensor>>(
      module, "_PackedTensor");
  set_install_packer(&push_hooks);
  bind_loss_scaler(module);
  module.def(
      "_clip_grad_norm",
      [](const std::vector<at::Tensor>& parameters, double max_norm,
         double norm_type, bool error_if_nonfinite,
         const std::optional<Communicator>& stages) {
        return clip_grad_norm(
            parameters, max_norm,
            {.norm_type = norm_type,
             .error_if_nonfinite = error_if_nonfinite,
             .stages = stages});
      },
      NoGil());
  module.def(
      "activation_checkpoint", &checkpoint, py::arg("fn"), py::kw_only(),
      py::arg("keep_moved") = true,
      py::arg("keep") = std::vector<std::string>(), py::arg("check") = true,
      R"doc(
Returns fn(*args), and lets autograd save nothing of what is computed inside: fn runs
again in the backward pass, with the random numbers and modes of the first time.
Results of communication are kept, so nothing is sent twice.

>>> w = tessera.ones([4, 4], mesh, "S(0)", requires_grad=True)
>>> y = tessera.activation_checkpoint(lambda x: torch.sin(x @ w), w)
>>> y.sum().backward())doc");
}

}  // namespace tessera::python
