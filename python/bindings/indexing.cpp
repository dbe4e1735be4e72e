// x[[0, 2]]: lists and numpy arrays as indices of sharded tensors.
//
// Note [Indices that are written down]
// LibTorch makes plain tensors of lists and arrays before an operator sees
// them, and plain tensors beside sharded ones are an error, since their values
// may differ between ranks. A list is part of the program, which all ranks run,
// so it is replicated. The slots of torch.Tensor find out which of the two an
// index is; all else, of plain tensors everything, LibTorch's own slots do.
#include <tessera/tensor/dtensor.h>
#include <torch/csrc/autograd/python_variable.h>

#include "bindings.h"

namespace tessera::python {
namespace {

binaryfunc plain_getitem = nullptr;
objobjargproc plain_setitem = nullptr;
PyObject* asks_function = nullptr;  // torch._C._has_torch_function_unary

// Deeper lists are left to LibTorch: one that holds itself has no end.
constexpr int kDeepest = 64;

bool is_tensor(PyObject* object) {
  return PyObject_TypeCheck(
             object, reinterpret_cast<PyTypeObject*>(THPVariableClass)) != 0;
}

// Tells whether a plain tensor with dims is in an index, or is what is written.
bool has_plain_tensor(PyObject* object, int depth = 0) {
  if (is_tensor(object)) {
    const at::Tensor& t = THPVariable_Unpack(object);
    return !is_dtensor(t) && t.dim() > 0;
  }
  if (!PyList_Check(object) && !PyTuple_Check(object)) {
    return false;
  }
  if (depth == kDeepest) {
    return true;
  }
  for (Py_ssize_t i = 0; i < PySequence_Fast_GET_SIZE(object); ++i) {
    if (has_plain_tensor(PySequence_Fast_GET_ITEM(object, i), depth + 1)) {
      return true;
    }
  }
  return false;
}

bool is_numpy_array(PyObject* object) {
  static PyObject* const name = PyUnicode_InternFromString("numpy");
  PyObject* numpy = PyImport_GetModule(name);
  PyObject* type =
      numpy != nullptr ? PyObject_GetAttrString(numpy, "ndarray") : nullptr;
  const bool found = type != nullptr && PyObject_IsInstance(object, type) == 1;
  Py_XDECREF(type);
  Py_XDECREF(numpy);
  PyErr_Clear();
  return found;
}

bool is_list(PyObject* object) {
  return PyList_Check(object) || PyRange_Check(object) ||
         (!is_tensor(object) && is_numpy_array(object));
}

// A tuple is an index per dim, of which tuples are lists.
bool has_list(PyObject* index) {
  if (!PyTuple_Check(index)) {
    return is_list(index);
  }
  for (Py_ssize_t i = 0; i < PyTuple_GET_SIZE(index); ++i) {
    PyObject* item = PyTuple_GET_ITEM(index, i);
    if (PyTuple_Check(item) || is_list(item)) {
      return true;
    }
  }
  return false;
}

// Tells whether a class or a mode has a __torch_function__ that is asked first;
// it indexes again.
bool has_torch_function(PyObject* self) {
  PyObject* answer = PyObject_CallOneArg(asks_function, self);
  PyErr_Clear();
  Py_XDECREF(answer);
  return answer != Py_False;
}

// Tells whether what LibTorch makes of an index is equal on all ranks.
bool is_equal_on_all_ranks(PyObject* self, PyObject* index) {
  return is_dtensor(THPVariable_Unpack(self)) && has_list(index) &&
         !has_plain_tensor(index) && !has_torch_function(self);
}

PyObject* getitem(PyObject* self, PyObject* index) {
  if (is_equal_on_all_ranks(self, index)) {
    const ImplicitReplication replicated;
    return plain_getitem(self, index);
  }
  return plain_getitem(self, index);
}

// `value` is nullptr for `del x[index]`.
int setitem(PyObject* self, PyObject* index, PyObject* value) {
  if (is_equal_on_all_ranks(self, index) && value != nullptr &&
      !has_plain_tensor(value)) {
    const ImplicitReplication replicated;
    return plain_setitem(self, index, value);
  }
  return plain_setitem(self, index, value);
}

// The slot behind a method; nullptr where somebody wrote it in Python.
void* slot_of(const py::object& method) {
  return Py_TYPE(method.ptr()) == &PyWrapperDescr_Type
             ? reinterpret_cast<PyWrapperDescrObject*>(method.ptr())->d_wrapped
             : nullptr;
}

// Puts `slot` behind a method of a class, and of the classes that inherit it.
void replace_slot(const py::object& type, const char* name, void* slot) {
  const py::object old = type.attr(name);
  type.attr(name) = py::reinterpret_steal<py::object>(PyDescr_NewWrapper(
      reinterpret_cast<PyTypeObject*>(type.ptr()),
      reinterpret_cast<PyWrapperDescrObject*>(old.ptr())->d_base, slot));
}

// A method that somebody has replaced in Python stays: it calls what was there
// before, and to call it in turn would be a circle.
void install_indexing(const py::object& tensor_class) {
  void* get = slot_of(tensor_class.attr("__getitem__"));
  void* set = slot_of(tensor_class.attr("__setitem__"));
  if (plain_getitem != nullptr || get == nullptr || set == nullptr ||
      slot_of(tensor_class.attr("__delitem__")) != set) {
    return;
  }
  py::object asks =
      py::module_::import("torch._C").attr("_has_torch_function_unary");
  asks_function = asks.release().ptr();
  plain_getitem = reinterpret_cast<binaryfunc>(get);
  plain_setitem = reinterpret_cast<objobjargproc>(set);
  replace_slot(tensor_class, "__getitem__", reinterpret_cast<void*>(&getitem));
  // One slot has two names, and is called at once where both lead to it.
  replace_slot(tensor_class, "__setitem__", reinterpret_cast<void*>(&setitem));
  replace_slot(tensor_class, "__delitem__", reinterpret_cast<void*>(&setitem));
}

}  // namespace

void bind_indexing(py::module_& module) {
  module.def("_install_indexing", &install_indexing);
}

}  // namespace tessera::python
