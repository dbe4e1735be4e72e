// The Python module tessera._C: names and docstrings, no logic of its own.
#include <exception>

#include <tessera/checkpoint/file_error.h>
#include <tessera/comm/wait_hooks.h>
#include <tessera/sharded_tensor/errors.h>
#include <tessera/tensor/machine_model.h>
#include <torch/csrc/Exceptions.h>

#include "bindings.h"

namespace tessera::python {
namespace {

// LibTorch calls some operators with the interpreter's lock held, indexing
// among them; a rank that waits must not keep it from the rank that it waits
// for.
void* give_lock() {
  return PyGILState_Check() != 0 ? PyEval_SaveThread() : nullptr;
}

void take_lock(void* state) {
  if (state != nullptr) {
    PyEval_RestoreThread(static_cast<PyThreadState*>(state));
  }
}

void translate(std::exception_ptr thrown) {
  try {
    std::rethrow_exception(thrown);
  } catch (const tessera::checkpoint::FileError& error) {
    // OSError makes a FileNotFoundError, a PermissionError, ... of the number.
    const py::object raised = py::reinterpret_borrow<py::object>(PyExc_OSError)(
        error.error_number(), error.what_without_backtrace());
    PyErr_SetObject(
        reinterpret_cast<PyObject*>(Py_TYPE(raised.ptr())), raised.ptr());
  } catch (const tessera::sharded_tensor::KeyError& error) {
    PyErr_SetString(PyExc_KeyError, error.what_without_backtrace());
  } catch (const tessera::sharded_tensor::AttributeError& error) {
    PyErr_SetString(PyExc_AttributeError, error.what_without_backtrace());
  } catch (const c10::Error&) {
    torch::translate_exception_to_python(std::current_exception());
  }
}

}  // namespace
}  // namespace tessera::python

PYBIND11_MODULE(_C, module) {
  using namespace tessera::python;
  py::options options;
  options.disable_function_signatures();
  options.disable_enum_members_docstring();
  py::register_local_exception_translator(&translate);
  tessera::set_wait_hooks({.before = &give_lock, .after = &take_lock});
  bind_layout(module);
  bind_communicator(module);
  bind_world(module);
  bind_ranks(module);
  bind_mesh(module);
  bind_tensor(module);
  bind_movement(module);
  bind_factories(module);
  bind_random(module);
  bind_modes(module);
  bind_explain(module);
  bind_comm_log(module);
  bind_indexing(module);
  bind_rules(module);
  bind_visualize(module);
  bind_checkpoint(module);
  bind_training(module);
  bind_parallel(module);
  bind_fully_shard(module);
  bind_plan(module);
  bind_sharded_tensor(module);
  module.def(
      "_clear_caches", &tessera::clear_caches,
      pybind11::call_guard<pybind11::gil_scoped_release>());
}
