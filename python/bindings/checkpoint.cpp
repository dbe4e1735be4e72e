// Checkpoints: dicts of Python become StateDicts, and what was read goes back.
// tessera/checkpoint.py is what users see.
#include <tessera/checkpoint/checkpoint.h>
#include <tessera/comm/world.h>

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
  return py::isinstance<py::tuple>(object) ? StateValue::tuple(std::move(list))
                                           : StateValue(std::move(list));
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
      if (py::isinstance<py::tuple>(old) ||
          (value.is_tuple() && !py::isinstance<py::list>(old))) {
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

// The same values, nothing filled: tensors too.
py::object new_python(const StateValue& value) {
  switch (value.kind()) {
    case Kind::kTensor:
      return py::reinterpret_steal<py::object>(
          THPVariable_Wrap(value.to_tensor()));
    case Kind::kDict: {
      py::dict dict;
      for (const auto& [name, item] : value.to_dict()) {
        dict[py::str(name)] = new_python(item);
      }
      return dict;
    }
    case Kind::kList: {
      py::list list;
      for (const StateValue& item : value.to_list()) {
        list.append(new_python(item));
      }
      return value.is_tuple() ? py::object(py::tuple(list)) : py::object(list);
    }
    default:
      return to_python(value, py::none());
  }
}

// Throws an error of Python as one that other ranks can throw too.
[[noreturn]] void throw_torch_error(const py::error_already_set& error) {
  const std::string text = py::str(error.value());
  if (error.matches(PyExc_OSError)) {
    const py::object number = error.value().attr("errno");
    throw checkpoint::FileError(
        {__func__, __FILE__, __LINE__}, text,
        number.is_none() ? 0 : number.cast<int>());
  }
  if (error.matches(PyExc_ValueError)) {
    C10_THROW_ERROR(ValueError, text);
  }
  if (error.matches(PyExc_TypeError)) {
    C10_THROW_ERROR(TypeError, text);
  }
  if (error.matches(PyExc_LookupError)) {
    C10_THROW_ERROR(IndexError, text);
  }
  if (error.matches(PyExc_NotImplementedError)) {
    C10_THROW_ERROR(NotImplementedError, text);
  }
  C10_THROW_ERROR(
      Error, std::string(py::str(error.type().attr("__name__"))) + ": " + text);
}

// Makes a state and what else a call is given. A call that only one rank gets
// wrong is an error on all of them, so nothing is converted outside of this.
StateDict build(const char* call, const std::function<StateDict()>& make) {
  return checkpoint::build_state(call, [&] {
    try {
      return make();
    } catch (const py::error_already_set& error) {
      throw_torch_error(error);
    }
  });
}

template <class T>
T argument(const char* name, const char* wanted, const py::object& object) {
  try {
    return object.cast<T>();
  } catch (const py::cast_error&) {
    TORCH_CHECK_TYPE(
        false, "checkpoint: ", name, " is of ",
        std::string(py::str(py::type::of(object))), "; pass ", wanted);
  }
}

StateDict state_from(const py::object& state) {
  TORCH_CHECK_TYPE(
      py::isinstance<py::dict>(state), "checkpoint: the state is of ",
      std::string(py::str(py::type::of(state))),
      "; pass a dict, of names and values");
  return dict_from("", state);
}

std::string path_from(const py::object& path) {
  const auto bytes = argument<std::string>(
      "the path", "a str or os.PathLike",
      py::module_::import("os").attr("fsencode")(path));
  const auto text = py::reinterpret_steal<py::object>(PyUnicode_DecodeUTF8(
      bytes.data(), static_cast<Py_ssize_t>(bytes.size()), nullptr));
  PyErr_Clear();  // which says no more than that text is null
  TORCH_CHECK_VALUE(
      text && bytes.find('\0') == bytes.npos, "checkpoint: the path ",
      std::string(py::repr(path)), " is not UTF-8, or has a NUL character");
  return bytes;
}

checkpoint::SaveOptions save_options(
    const py::object& format_object, const py::object& overwrite_object) {
  const auto format = argument<std::string>("format", "a str", format_object);
  const auto overwrite =
      argument<bool>("overwrite", "a bool", overwrite_object);
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

// Calls a function of Python with the bytes that are written, and of how many.
// It is copied and destroyed by code that does not hold Python's lock.
std::function<void(const checkpoint::Progress&)> progress_from(
    const py::object& function) {
  if (function.is_none()) {
    return {};
  }
  TORCH_CHECK_TYPE(
      PyCallable_Check(function.ptr()) != 0, "checkpoint: progress is of ",
      std::string(py::str(py::type::of(function))),
      "; pass a function of two numbers");
  const std::shared_ptr<py::object> kept(
      new py::object(function), [](const py::object* object) {
        const py::gil_scoped_acquire lock;
        delete object;
      });
  return [kept](const checkpoint::Progress& progress) {
    const py::gil_scoped_acquire lock;
    try {
      (*kept)(progress.bytes, progress.total);
    } catch (const py::error_already_set& error) {
      throw_torch_error(error);
    }
  };
}

void save(
    const py::object& state, const py::object& path, const py::object& format,
    const py::object& overwrite, const py::object& progress) {
  std::string to;
  checkpoint::SaveOptions options;
  const StateDict dict = build("checkpoint::save", [&] {
    to = path_from(path);
    options = save_options(format, overwrite);
    options.progress = progress_from(progress);
    return state_from(state);
  });
  const py::gil_scoped_release unlock;
  checkpoint::save(dict, to, options);
}

py::object full_state_dict(const py::object& state, const py::object& rank) {
  int64_t there = 0;
  const StateDict dict = build("checkpoint.full_state_dict", [&] {
    there = argument<int64_t>("rank", "an int", rank);
    return state_from(state);
  });
  StateDict whole;
  {
    const py::gil_scoped_release unlock;
    whole = checkpoint::full_state_dict(dict, there);
  }
  return new_python(whole);
}

std::string save_step(
    const py::object& state, const py::object& folder, const py::object& step,
    const py::object& keep, const py::object& format,
    const py::object& overwrite, const py::object& progress) {
  std::string to;
  int64_t number = 0;
  int64_t kept = 0;
  checkpoint::SaveOptions options;
  const StateDict dict = build("checkpoint::save_step", [&] {
    to = path_from(folder);
    number = argument<int64_t>("step", "an int", step);
    kept = argument<int64_t>("keep", "an int", keep);
    options = save_options(format, overwrite);
    options.progress = progress_from(progress);
    return state_from(state);
  });
  const py::gil_scoped_release unlock;
  return checkpoint::save_step(dict, to, number, kept, options);
}

// A save and the world to wait in: inside a job of torch.distributed only the
// tensors know it. None: that of init().
struct AsyncHandle {
  checkpoint::Handle handle;
  std::optional<World> world;

  void wait() const {
    std::optional<RankGuard> guard;
    if (world) {
      guard.emplace(*world, "checkpoint");
    }
    handle.wait();
  }
};

AsyncHandle save_async(
    const py::object& state, const py::object& path, const py::object& format,
    const py::object& overwrite, const std::optional<World>& world) {
  std::string to;
  checkpoint::SaveOptions options;
  const StateDict dict = build("checkpoint::save_async", [&] {
    to = path_from(path);
    options = save_options(format, overwrite);
    return state_from(state);
  });
  const py::gil_scoped_release unlock;
  return {checkpoint::save_async(dict, to, options), world};
}

AsyncHandle save_step_async(
    const py::object& state, const py::object& folder, const py::object& step,
    const py::object& keep, const py::object& format,
    const py::object& overwrite, const std::optional<World>& world) {
  std::string to;
  int64_t number = 0;
  int64_t kept = 0;
  checkpoint::SaveOptions options;
  const StateDict dict = build("checkpoint::save_step_async", [&] {
    to = path_from(folder);
    number = argument<int64_t>("step", "an int", step);
    kept = argument<int64_t>("keep", "an int", keep);
    options = save_options(format, overwrite);
    return state_from(state);
  });
  const py::gil_scoped_release unlock;
  return {checkpoint::save_step_async(dict, to, number, kept, options), world};
}

// `prepare` is called before the state is read: what it adds is loaded too.
void load(
    const py::object& state, const py::object& path, const py::object& strict,
    const py::object& convert_dtype, const py::object& only,
    const py::object& follow_links, const py::object& prepare) {
  std::string from;
  checkpoint::LoadOptions options;
  StateDict dict = build("checkpoint::load", [&] {
    from = path_from(path);
    options.strict = argument<bool>("strict", "a bool", strict);
    options.convert_dtype =
        argument<bool>("convert_dtype", "a bool", convert_dtype);
    options.only = argument<std::vector<std::string>>(
        "only", "a str, or a list of them", only);
    options.follow_links =
        argument<bool>("follow_links", "a bool", follow_links);
    prepare();
    return state_from(state);
  });
  {
    const py::gil_scoped_release unlock;
    checkpoint::load(dict, from, options);
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

void bind_handle(py::module_& module) {
  py::class_<AsyncHandle>(module, "Handle", R"doc(
A save that is written beside the program: what save_async() returns. Dropping it drops
nothing: the next save or load waits for the save and raises its error.

>>> import tempfile
>>> handle = tessera.checkpoint.save_async({"n": 1}, tempfile.mkdtemp() + "/a")
>>> handle.wait()
>>> handle.done()
True)doc")
      .def("wait", &AsyncHandle::wait, NoGil(), R"doc(
Returns once the checkpoint is complete and visible; raises, on all ranks, what went
wrong on one. Collective.

>>> import tempfile
>>> path = tempfile.mkdtemp() + "/a"
>>> tessera.checkpoint.save_async({"n": 1}, path).wait()
>>> tessera.checkpoint.verify(path)
[])doc")
      .def(
          "done", [](const AsyncHandle& self) { return self.handle.done(); },
          NoGil(), R"doc(
Tells whether the checkpoint is complete, or the save has failed. Not collective, and
ranks learn it at different times.

>>> import tempfile
>>> handle = tessera.checkpoint.save_async({"n": 1}, tempfile.mkdtemp() + "/a")
>>> handle.wait()
>>> handle.done()
True)doc")
      .def(
          "progress",
          [](const AsyncHandle& self) {
            const checkpoint::Progress progress = self.handle.progress();
            return std::make_tuple(progress.bytes, progress.total);
          },
          R"doc(
Returns how many bytes this rank has written, and of how many. Not collective.

>>> import tempfile
>>> state = {"w": torch.ones(8)}
>>> handle = tessera.checkpoint.save_async(state, tempfile.mkdtemp() + "/a")
>>> handle.wait()
>>> written, total = handle.progress()
>>> written == total
True)doc")
      .def_property_readonly(
          "path", [](const AsyncHandle& self) { return self.handle.path(); },
          R"doc(
The path of the checkpoint.

>>> import tempfile
>>> path = tempfile.mkdtemp() + "/a"
>>> tessera.checkpoint.save_async({"n": 1}, path).path == path
True)doc");
}

}  // namespace

void bind_checkpoint(py::module_& parent) {
  py::module_ module = parent.def_submodule("_checkpoint");
  bind_entry(module);
  bind_handle(module);
  module.def("save", &save);
  module.def("save_step", &save_step);
  module.def("save_async", &save_async);
  module.def("save_step_async", &save_step_async);
  module.def("load", &load);
  module.def("list", &checkpoint::list, NoGil());
  module.def("verify", &checkpoint::verify, NoGil());
  module.def("latest", &checkpoint::latest, NoGil());
  module.def("full_state_dict", &full_state_dict);
}

}  // namespace tessera::python
