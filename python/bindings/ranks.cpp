// Ranks that run Python functions.
#include <future>
#include <thread>
#include <utility>

#include <ATen/ThreadLocalState.h>
#include <c10/util/Exception.h>
#include <tessera/comm/world.h>

#include "bindings.h"

namespace tessera::python {
namespace {

// A Python exception on its way from a rank to the caller. Made and destroyed
// with the interpreter's lock held.
struct Raised {
  py::object exception;
  std::string text;
};

// One call: what the ranks returned, what the first of them raised, and which
// threads they are. Used with the interpreter's lock held only, which orders
// all access.
struct Job {
  explicit Job(py::function function) : body(std::move(function)) {}

  py::function body;
  std::vector<std::pair<int64_t, py::object>> results;
  std::optional<Raised> first;
  std::vector<unsigned long> threads;
  bool interrupted = false;
};

thread_local bool inside_rank = false;

class InsideRank {
 public:
  InsideRank() : outer_(std::exchange(inside_rank, true)) {}
  ~InsideRank() { inside_rank = outer_; }
  InsideRank(const InsideRank&) = delete;
  InsideRank& operator=(const InsideRank&) = delete;

 private:
  bool outer_;
};

void add_note(const py::object& exception, const std::string& note) {
  if (py::hasattr(exception, "add_note")) {
    exception.attr("add_note")(note);
  }
}

Raised raised_by(py::error_already_set& error) {
  error.restore();
  PyObject* type = nullptr;
  PyObject* value = nullptr;
  PyObject* trace = nullptr;
  PyErr_Fetch(&type, &value, &trace);
  PyErr_NormalizeException(&type, &value, &trace);
  if (trace != nullptr) {
    PyException_SetTraceback(value, trace);
  }
  const std::string name = reinterpret_cast<PyTypeObject*>(type)->tp_name;
  Py_XDECREF(type);
  Py_XDECREF(trace);
  py::object exception = py::reinterpret_steal<py::object>(value);
  std::string text = name;
  const py::object message =
      py::reinterpret_steal<py::object>(PyObject_Str(exception.ptr()));
  if (message) {
    text += ": " + message.cast<std::string>();
  }
  PyErr_Clear();
  return {std::move(exception), std::move(text)};
}

// Keeps the exception for the caller and throws its text, so that the engine
// frees the other ranks.
[[noreturn]] void hand_over(Job& job, py::error_already_set& error) {
  const Raised raised = raised_by(error);
  if (!job.first) {
    job.first = raised;
    add_note(
        raised.exception, "on rank " + std::to_string(rank()) + " of " +
                              std::to_string(world_size()));
  }
  C10_THROW_ERROR(Error, raised.text);
}

void run_body(Job& job) {
  const py::gil_scoped_acquire lock_interpreter;
  const InsideRank inside;
  job.threads.push_back(PyThread_get_thread_ident());
  try {
    py::object result = job.body();
    job.results.emplace_back(rank(), std::move(result));
  } catch (py::error_already_set& error) {
    hand_over(job, error);
  }
}

[[noreturn]] void raise_first(Job& job) {
  const py::object exception = std::move(job.first->exception);
  job.first.reset();
  PyErr_SetObject(
      reinterpret_cast<PyObject*>(Py_TYPE(exception.ptr())), exception.ptr());
  throw py::error_already_set();
}

// Calls `start`, which calls run_body() on the ranks of this process.
template <class Start>
void run_job(Job& job, const Start& start) {
  std::exception_ptr failure;
  {
    const py::gil_scoped_release unlock;
    try {
      start([&job] { run_body(job); });
    } catch (...) {
      failure = std::current_exception();
    }
  }
  if (job.first) {
    raise_first(job);
  }
  if (failure) {
    std::rethrow_exception(failure);
  }
}

// Raises KeyboardInterrupt in the ranks that run Python; those that wait for
// them are freed by the engine.
void interrupt_ranks(Job& job) {
  for (const unsigned long thread : job.threads) {
    PyThreadState_SetAsyncExc(thread, PyExc_KeyboardInterrupt);
  }
}

// Waits with the lock given away, and hears of signals, which Python handles on
// its main thread only.
void wait_for_ranks(Job& job, std::future<void>& done) {
  for (;;) {
    {
      const py::gil_scoped_release unlock;
      if (done.wait_for(std::chrono::milliseconds(100)) ==
          std::future_status::ready) {
        return;
      }
    }
    if (!job.interrupted && PyErr_CheckSignals() != 0) {
      py::error_already_set error;
      job.first = raised_by(error);
      job.interrupted = true;
      interrupt_ranks(job);
    }
  }
}

py::list run_ranks_of_python(int n, py::function body, double deadline) {
  TORCH_CHECK_VALUE(
      !inside_rank, "run_ranks, rank ", rank(),
      ": a rank cannot start ranks of its own; use World.communicator(ranks) "
      "or split() for smaller groups");
  Job job(std::move(body));
  const InitOptions options{.deadline = milliseconds_of(deadline)};
  const at::ThreadLocalState state;
  std::packaged_task<void()> work([&] {
    const at::ThreadLocalStateGuard guard(state);
    run_ranks(
        n, [&job] { run_body(job); }, options);
  });
  std::future<void> done = work.get_future();
  std::thread starter(std::move(work));
  wait_for_ranks(job, done);
  starter.join();
  if (job.first) {
    raise_first(job);
  }
  done.get();
  py::list results(n);
  for (auto& [which, result] : job.results) {
    results[static_cast<size_t>(which)] = std::move(result);
  }
  return results;
}

}  // namespace

std::chrono::milliseconds milliseconds_of(double seconds) {
  TORCH_CHECK_VALUE(
      seconds > 0 && seconds < 1e9, "deadline: seconds must be positive; got ",
      seconds);
  return std::chrono::milliseconds(static_cast<int64_t>(seconds * 1000));
}

void bind_ranks(py::module_& module) {
  module.def(
      "run_ranks", &run_ranks_of_python, py::arg("n"), py::arg("fn"),
      py::kw_only(), py::arg("deadline") = 300.0, R"doc(
Runs fn() on n ranks that are threads of this process and returns their results in
the order of ranks. An exception of one rank ends the others and is raised here, with
its traceback. `deadline` is how many seconds a wait for another rank may take.

>>> tessera.run_ranks(3, lambda: tessera.rank() ** 2)
[0, 1, 4])doc");
  module.def(
      "run_simulated",
      [](py::function fn, int64_t which, int64_t size) {
        Job job(std::move(fn));
        run_job(job, [&](const std::function<void()>& body) {
          run_simulated({.rank = which, .size = size}, body);
        });
        return job.results.at(0).second;
      },
      py::arg("fn"), py::kw_only(), py::arg("rank") = 0, py::arg("size"), R"doc(
Runs fn() as one rank of a world whose other ranks are not there and returns its
result; they are taken to hold what this rank holds.

>>> tessera.run_simulated(tessera.world_size, rank=17, size=65536)
65536)doc");
  module.def(
      "run",
      [](py::function fn) {
        Job job(std::move(fn));
        run_job(job, [](const std::function<void()>& body) { run(body); });
      },
      py::arg("fn"), R"doc(
Runs fn() once per rank that this process hosts: on N threads when started by
`tessera run -n N`, else once. The usual last line of a program.

>>> tessera.run(lambda: print("rank", tessera.rank()))
rank 0)doc");
}

}  // namespace tessera::python
