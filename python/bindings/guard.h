// Guards of C++ as context managers of Python.
#pragma once

#include <optional>
#include <tuple>
#include <utility>

#include "bindings.h"

namespace tessera::python {

/// Keeps the arguments of a `T`, which lives from __enter__ to __exit__.
template <class T, class... Arguments>
class Guard {
 public:
  explicit Guard(Arguments... arguments)
      : arguments_(std::move(arguments)...) {}
  void enter() {
    TORCH_CHECK_VALUE(
        !held_, "with: this object is entered already; make one per `with`");
    std::apply([this](const auto&... a) { held_.emplace(a...); }, arguments_);
  }
  void exit() { held_.reset(); }

 private:
  std::tuple<Arguments...> arguments_;
  std::optional<T> held_;
};

/// Binds __enter__ and __exit__; the caller adds the constructor.
template <class T, class... Arguments>
py::class_<Guard<T, Arguments...>> bind_guard(
    py::module_& module, const char* name, const char* text) {
  using Held = Guard<T, Arguments...>;
  return py::class_<Held>(module, name, text)
      .def(
          "__enter__",
          [](Held& self) -> Held& {
            self.enter();
            return self;
          },
          py::return_value_policy::reference)
      .def("__exit__", [](Held& self, const py::args&) { self.exit(); });
}

}  // namespace tessera::python
