// The world of this rank.
#include <tessera/comm/flight_recorder.h>
#include <tessera/comm/progress.h>
#include <tessera/comm/world.h>

#include "bindings.h"
#include "guard.h"

namespace tessera::python {
namespace {

Engine engine_from(const std::string& name) {
  const std::pair<const char*, Engine> engines[] = {
      {"auto", Engine::kAuto},
      {"threads", Engine::kThreads},
      {"mpi", Engine::kMpi},
      {"nccl", Engine::kNccl},
      {"gloo", Engine::kC10d},
      {"c10d", Engine::kC10d},
      {"simulated", Engine::kSimulated}};
  for (const auto& [word, engine] : engines) {
    if (name == word) {
      return engine;
    }
  }
  TORCH_CHECK_VALUE(
      false, "init: no engine is called '", name,
      "'; use auto, threads, mpi, gloo or simulated");
}

std::vector<std::string> flight_lines() {
  std::vector<std::string> lines;
  for (const FlightEntry& entry : flight_record()) {
    lines.push_back(to_string(entry));
  }
  return lines;
}

}  // namespace

void bind_world(py::module_& module) {
  py::class_<World>(module, "World", R"doc(
This rank's world: how many ranks there are, and which one this is.

>>> tessera.init().size()
1)doc")
      .def("rank", &World::rank)
      .def("size", &World::size)
      .def("engine", &World::engine)
      .def(
          "communicator", py::overload_cast<>(&World::communicator, py::const_),
          NoGil())
      .def(
          "communicator",
          py::overload_cast<const std::vector<int64_t>&>(
              &World::communicator, py::const_),
          py::arg("ranks"), NoGil())
      .def("rebuild", &World::rebuild, py::arg("ranks"), NoGil())
      .def_property(
          "deadline",
          [](const World& self) {
            return static_cast<double>(self.deadline().count()) / 1000;
          },
          [](const World& self, double seconds) {
            self.set_deadline(milliseconds_of(seconds));
          })
      .def("__eq__", [](const World& a, py::object b) {
        return py::isinstance<World>(b) && a == b.cast<const World&>();
      });
  module.def(
      "init",
      [](const std::string& engine, double deadline) {
        InitOptions options{.engine = engine_from(engine)};
        options.deadline = milliseconds_of(deadline);
        const py::gil_scoped_release unlock;
        return init(options);
      },
      py::kw_only(), py::arg("engine") = "auto", py::arg("deadline") = 300.0,
      R"doc(
Returns this rank's world; finds out how the program was started (tessera run,
mpirun, srun, torchrun, or alone).

>>> tessera.init().rank()
0)doc");
  bind_guard<RankGuard, World, std::string>(module, "RankGuard", R"doc(
Makes a thread that a rank has started itself part of that rank, inside `with`. Ranks
compare the name under which a collective is called.

>>> world = tessera.init()
>>> with tessera.RankGuard(world, "loader"):
...     tessera.rank()
0)doc")
      .def(
          py::init<World, std::string>(), py::arg("world"),
          py::arg("name") = "helper");
  module.def("rank", &rank, NoGil(), R"doc(
Returns this rank; 0 when the program runs alone.

>>> tessera.rank()
0)doc");
  module.def("world_size", &world_size, NoGil(), R"doc(
Returns the number of ranks; 1 when the program runs alone.

>>> tessera.world_size()
1)doc");
  module.def("progress", &progress, NoGil(), R"doc(
Moves the asynchronous calls of this process on without waiting; operators on sharded
tensors do so themselves.

>>> tessera.progress())doc");
  module.def("flight_record", &flight_lines, R"doc(
Returns the last 256 calls of this rank to communicators, as text, the newest last.

>>> tessera.flight_record()
[])doc");
}

}  // namespace tessera::python
