// What this rank communicated, and why.
#include <memory>

#include <tessera/comm/comm_log.h>
#include <tessera/tensor/predicted_time.h>

#include "bindings.h"

namespace tessera::python {
namespace {

// Records from the start of `with` to its end, and can be read after it.
class Log {
 public:
  void enter() {
    live_ = std::make_unique<CommLog>();
    kept_.reset();
  }
  void exit() {
    kept_ = snapshot();
    live_.reset();
  }
  struct Snapshot {
    std::vector<CommLogEntry> entries;
    std::vector<CommLogSum> sums;
    int64_t bytes = 0;
    std::string text;
    std::string json;
    std::vector<PredictedTime> times;
  };
  Snapshot snapshot() const {
    if (kept_) {
      return *kept_;
    }
    TORCH_CHECK_VALUE(
        live_ != nullptr,
        "CommLog: nothing was recorded yet; use `with CommLog() as log:`");
    return {live_->entries(),  live_->by_cause(), live_->bytes(),
            to_string(*live_), to_json(*live_),   predicted_times(*live_)};
  }
  // What happens after the `with` is asked of the log as it was: entries are
  // gathered while it lives.
  std::vector<CommLogEntry> largest_over(const Communicator& group) const {
    TORCH_CHECK_VALUE(
        live_ != nullptr,
        "CommLog.largest_over: the log has ended; call it inside the `with`");
    return live_->largest_over(group);
  }
  void clear() {
    kept_.reset();
    if (live_) {
      live_->clear();
    } else {
      kept_.emplace();
    }
  }

 private:
  std::unique_ptr<CommLog> live_;
  std::optional<Snapshot> kept_;
};

void bind_entry(py::module_& module) {
  py::class_<CommLogEntry>(module, "CommLogEntry", R"doc(
One collective that this rank took part in.

>>> with tessera.CommLog() as log:
...     pass
>>> log.entries
[])doc")
      .def_readonly("cause", &CommLogEntry::cause)
      .def_readonly("asked", &CommLogEntry::asked)
      .def_readonly("in_backward", &CommLogEntry::in_backward)
      .def_readonly("kind", &CommLogEntry::kind)
      .def_readonly("ranks", &CommLogEntry::ranks)
      .def_readonly("mesh_dims", &CommLogEntry::mesh_dims)
      .def_readonly("source", &CommLogEntry::from)
      .def_readonly("target", &CommLogEntry::to)
      .def_property_readonly(
          "dtype",
          [](const CommLogEntry& self) {
            return self.dtype == at::ScalarType::Undefined
                       ? std::nullopt
                       : std::make_optional(self.dtype);
          })
      .def_readonly("bytes", &CommLogEntry::bytes)
      .def_readonly("written", &CommLogEntry::written)
      .def("line", &CommLogEntry::line)
      .def(
          "__repr__", [](const CommLogEntry& self) { return to_string(self); });
}

void bind_predicted_time(py::module_& module) {
  py::class_<PredictedTime>(module, "PredictedTime", R"doc(
The collectives of one kind along the same mesh dims, and their seconds by the machine
model: kind, mesh_dims, count, bytes, seconds.

>>> with tessera.CommLog() as log:
...     pass
>>> log.predicted_times
[])doc")
      .def_readonly("kind", &PredictedTime::kind)
      .def_readonly("mesh_dims", &PredictedTime::mesh_dims)
      .def_readonly("count", &PredictedTime::count)
      .def_readonly("bytes", &PredictedTime::bytes)
      .def_readonly("seconds", &PredictedTime::seconds)
      .def("__repr__", [](const PredictedTime& self) {
        return c10::str(
            self.kind, " ", self.mesh_dims, ": ", self.count, " calls, ",
            self.bytes, " bytes, ", self.seconds, " s");
      });
}

}  // namespace

void bind_comm_log(py::module_& module) {
  bind_entry(module);
  bind_predicted_time(module);
  py::class_<Log>(module, "CommLog", R"doc(
Records this rank's collectives inside `with`.

>>> with tessera.CommLog() as log:
...     y = tessera.ones([2], mesh, "S(0)") + 1
>>> log.count, log.bytes
(0, 0))doc")
      .def(py::init<>())
      .def(
          "__enter__",
          [](Log& self) -> Log& {
            self.enter();
            return self;
          },
          py::return_value_policy::reference)
      .def("__exit__", [](Log& self, const py::args&) { self.exit(); })
      .def("clear", &Log::clear)
      .def("largest_over", &Log::largest_over, py::arg("group"), NoGil())
      .def_property_readonly(
          "entries", [](const Log& self) { return self.snapshot().entries; })
      .def_property_readonly(
          "count",
          [](const Log& self) { return self.snapshot().entries.size(); })
      .def_property_readonly(
          "bytes", [](const Log& self) { return self.snapshot().bytes; })
      .def_property_readonly(
          "by_cause",
          [](const Log& self) {
            py::list sums;
            for (const CommLogSum& sum : self.snapshot().sums) {
              sums.append(
                  py::make_tuple(sum.cause, sum.asked, sum.count, sum.bytes));
            }
            return sums;
          })
      .def_property_readonly(
          "predicted_times",
          [](const Log& self) { return self.snapshot().times; })
      .def("to_json", [](const Log& self) { return self.snapshot().json; })
      .def("__str__", [](const Log& self) { return self.snapshot().text; });
}

}  // namespace tessera::python
