// Checkpoints: dicts of Python become StateDicts, and what was read goes back.
// tessera/checkpoint.py is what users see.
#include <tessera/checkpoint/checkpoint.h>

#include <torch/csrc/autograd/python_variable.h>

#include "bindings.h"

namespace tessera::python {
namespace {

using checkpoint::StateDict;
using checkpoint::StateValue;
using Kind = StateValue::Kind;

StateDict dict_from(const std::string& path, py::handle object);

StateValue value_from(const std::string& path, py::handle object) {
  if (object.is_none()) {
    return {};
  }
  if (THPVariable_Check(object.ptr())) {
    return THPVariable_Unpack(object.ptr());
  }
  if (py::isinstance<py::bool_>(object)) {
    return object.cast<bool>();
  }
  if (py::isinstance<py::int_>(object)) {
    int overflow = 0;
    const long long number =
        PyLong_AsLongLongAndOverflow(object.ptr(), &overflow);
    TORCH_CHECK_VALUE(
        overflow == 0, "checkpoint: '", path, "' is ",
        std::string(py::str(object)),
        "; integers have 64 bits, so keep it as a str");
    return number;
  }
  if (py::isinstance<py::float_>(object)) {
    return object.cast<double>();
  }
  if (py::isinstance<py::str>(object)) {
    return object.cast<std::string>();
  }
  if (py::isinstance<py::bytes>(object)) {
    return checkpoint::Bytes{object.cast<std::string>()};
  }
  if (py::isinstance<py::dict>(object)) {
    return dict_from(path, object);
  }
  TORCH_CHECK_TYPE(
      py::isinstance<py::list>(object) || py::isinstance<py::tuple>(object),
      "checkpoint: '", path, "' is of ",
      std::string(py::str(py::type::of(object))),
      "; a checkpoint keeps tensors, int, float, bool, str, bytes, None, and "
      "dicts, lists and tuples of them: convert it to one");
  StateValue::List list;
  for (const py::handle item : object) {
    list.push_back(value_from(path + "." + std::to_string(list.size()), item));
  }
  return list;
}

// Keys that are integers are names too: optimizers of PyTorch have them.
std::string name_of(const std::string& path, py::handle key) {
  TORCH_CHECK_TYPE(
      py::isinstance<py::str>(key) || py::isinstance<py::int_>(key),
      "checkpoint: a key of '", path, "' is of ",
      std::string(py::str(py::type::of(key))),
      "; names are strings or integers");
  return py::str(key);
}

StateDict dict_from(const std::string& path, py::handle object) {
  StateDict dict;
  for (const auto& [key, item] : py::cast<py::dict>(object)) {
    const std::string name = name_of(path, key);
    TORCH_CHECK_VALUE(
        !dict.contains(name), "checkpoint: two keys of '", path, "' read '",
        name, "'; rename one");
    dict.set(name, value_from(path.empty() ? name : path + "." + name, item));
  }
  return dict;
}

py::object to_python(const StateValue& value, py::handle old);

// Fills a dict in place; one that was empty gets what was read.
void fill(py::dict target, const StateDict& read) {
  if (target.empty()) {
    for (const auto& [name, item] : read) {
      target[py::str(name)] = to_python(item, py::none());
    }
    return;
  }
  const auto before =
      py::reinterpret_steal<py::dict>(PyDict_Copy(target.ptr()));
  for (const auto& [key, old] : before) {
    target[key] = to_python(read.at(py::str(key)), old);
  }
}

py::list list_to_python(const StateValue::List& values, py::handle old) {
  const bool is_filled = py::isinstance<py::sequence>(old) &&
                         !py::isinstance<py::str>(old) &&
                         py::len(old) == values.size();
  py::list items;
  for (size_t i = 0; i < values.size(); ++i) {
    const py::object item =
        is_filled ? py::object(old[py::int_(i)]) : py::object(py::none());
    items.append(to_python(values[i], item));
  }
  return items;
}

// Returns what has the place of `old`: itself where it could be filled.
py::object to_python(const StateValue& value, py::handle old) {
  switch (value.kind()) {
    case Kind::kNone:
      return py::none();
    case Kind::kBool:
      return py::bool_(value.to_bool());
    case Kind::kInteger:
      return py::int_(value.to_int());
    case Kind::kFloat:
      return py::float_(value.to_double());
    case Kind::kString:
      return py::str(value.to_string());
    case Kind::kBytes:
      return py::bytes(value.to_bytes());
    case Kind::kTensor:
      return py::reinterpret_borrow<py::object>(old);
    case Kind::kList: {
      py::list items = list_to_python(value.to_list(), old);
      if (py::isinstance<py::tuple>(old)) {
        return py::tuple(items);
      }
      if (py::isinstance<py::list>(old)) {
        old[py::slice(py::none(), py::none(), py::none())] = items;
        return py::reinterpret_borrow<py::object>(old);
      }
      return items;
    }
    case Kind::kDict: {
      py::dict target = py::isinstance<py::dict>(old)
                            ? py::reinterpret_borrow<py::dict>(old)
                            : py::dict();
      fill(target, value.to_dict());
      return target;
    }
    case Kind::kShardedTensor:
      break;
  }
  TORCH_INTERNAL_ASSERT(false, "Python has no ShardedTensor");
}

checkpoint::SaveOptions save_options(
    const std::string& format, bool overwrite) {
  using checkpoint::Format;
  for (const Format one :
       {Format::kTessera, Format::kDcp, Format::kSafetensors}) {
    if (format == to_string(one)) {
      return {.format = one, .overwrite = overwrite};
    }
  }
  TORCH_CHECK_VALUE(
      false, "checkpoint: there is no format '", format,
      "'; pass \"tessera\", \"dcp\" or \"safetensors\"");
}

void save(
    const py::dict& state, const std::string& path, const std::string& format,
    bool overwrite) {
  const StateDict dict = dict_from("", state);
  const checkpoint::SaveOptions options = save_options(format, overwrite);
  const py::gil_scoped_release unlock;
  checkpoint::save(dict, path, options);
}

std::string save_step(
    const py::dict& state, const std::string& folder, int64_t step,
    int64_t keep, const std::string& format, bool overwrite) {
  const StateDict dict = dict_from("", state);
  const checkpoint::SaveOptions options = save_options(format, overwrite);
  const py::gil_scoped_release unlock;
  return checkpoint::save_step(dict, folder, step, keep, options);
}

void load(
    const py::dict& state, const std::string& path, bool strict,
    bool convert_dtype, const std::vector<std::string>& only) {
  StateDict dict = dict_from("", state);
  {
    const py::gil_scoped_release unlock;
    checkpoint::load(
        dict, path,
        {.strict = strict, .convert_dtype = convert_dtype, .only = only});
  }
  fill(state, dict);
}

void bind_entry(py::module_& module) {
  using checkpoint::Entry;
  py::class_<Entry>(module, "Entry", R"doc(
A name of a checkpoint: a tensor (dtype, shape, chunks, bytes) or a value, whose text
is `value`.

>>> import tempfile
>>> path = tempfile.mkdtemp() + "/a"
>>> tessera.checkpoint.save({"w": torch.ones(2, 3)}, path)
>>> entry, = tessera.checkpoint.list(path)
>>> entry.name, entry.shape, entry.dtype, entry.bytes
('w', [2, 3], torch.float32, 24))doc")
      .def_readonly("name", &Entry::name)
      .def_readonly("dtype", &Entry::dtype)
      .def_readonly("shape", &Entry::shape)
      .def_readonly("chunks", &Entry::chunks)
      .def_readonly("bytes", &Entry::bytes)
      .def_readonly("value", &Entry::value);
}

}  // namespace

void bind_checkpoint(py::module_& parent) {
  py::module_ module = parent.def_submodule("_checkpoint");
  bind_entry(module);
  module.def("save", &save);
  module.def("save_step", &save_step);
  module.def("load", &load);
  module.def(
      "list", &checkpoint::list, py::arg("path"),
      py::arg("follow_links") = false, NoGil());
  module.def(
      "verify", &checkpoint::verify, py::arg("path"),
      py::arg("follow_links") = false, NoGil());
  module.def("latest", &checkpoint::latest, NoGil());
}

}  // namespace tessera::python
