// Layouts, plans and their price: arithmetic, without ranks.
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include <tessera/layout/box_layout.h>
#include <tessera/layout/layout.h>
#include <tessera/layout/notation.h>
#include <tessera/layout/replica_groups.h>
#include <tessera/layout/xla.h>
#include <tessera/plan/exchange.h>
#include <tessera/plan/redistribute_plan.h>
#include <tessera/tensor/machine_model.h>
#include <tessera/tensor/predicted_time.h>

#include "bindings.h"

namespace tessera::python {
namespace {

using Ints = std::vector<int64_t>;
using Range = std::pair<int64_t, int64_t>;

std::vector<Range> ranges_of(const Layout::Runs& runs) {
  std::vector<Range> ranges;
  for (const Layout::Run& run : runs) {
    ranges.emplace_back(run.begin, run.end);
  }
  return ranges;
}

void bind_layout_class(py::module_& module) {
  py::class_<Layout>(module, "Layout", R"doc(
A global shape laid out on a mesh, without tensor or rank; says where elements live.

>>> layout = tessera.Layout([10], "mesh(4)", "S(0)")
>>> layout.local_shape([3]), layout.owner_ranks([7]), layout.box([1])
([1], [2], [3:6]))doc")
      .def(
          py::init([](Ints shape, const MeshShapeArg& mesh,
                      const PlacementsArg& placements) {
            return Layout(std::move(shape), mesh.value, placements.value);
          }),
          py::arg("shape"), py::arg("mesh"), py::arg("placements"))
      .def_property_readonly("shape", &Layout::shape)
      .def_property_readonly(
          "mesh", [](const Layout& self) { return to_string(self.mesh()); })
      .def_property_readonly("placements", &Layout::placements)
      .def("cuts", &Layout::cuts, py::arg("tensor_dim"))
      .def("has_partial", &Layout::has_partial)
      .def("is_replicated", &Layout::is_replicated)
      .def("is_even", &Layout::is_even)
      .def(
          "runs",
          [](const Layout& self, int64_t dim, const Ints& coordinate) {
            return ranges_of(self.runs(dim, coordinate));
          },
          py::arg("tensor_dim"), py::arg("coordinate"))
      .def("local_shape", &Layout::local_shape, py::arg("coordinate"))
      .def("box", &Layout::box, py::arg("coordinate"))
      .def("boxes", &Layout::boxes, py::arg("coordinate"))
      .def("owner", &Layout::owner, py::arg("index"))
      .def("owner_ranks", &Layout::owner_ranks, py::arg("index"))
      .def("local_index", &Layout::local_index, py::arg("index"))
      .def("ranks_holding", &Layout::ranks_holding, py::arg("box"))
      .def("__repr__", [](const Layout& self) { return to_string(self); })
      .def("__hash__", &Layout::hash)
      .def("__eq__", [](const Layout& a, py::object b) {
        return py::isinstance<Layout>(b) && a == b.cast<const Layout&>();
      });
  module.def(
      "cut_runs",
      [](const Placement& placement, int64_t length, int64_t parts,
         int64_t coordinate) {
        return ranges_of(cut_runs(placement, length, parts, coordinate));
      },
      py::arg("placement"), py::arg("length"), py::arg("parts"),
      py::arg("coordinate"), R"doc(
Returns which indices a part receives when a dim is cut, as pairs of begin and end.

>>> tessera.cut_runs(tessera.Shard(0), 10, 4, 3)
[(9, 10)])doc");
}

void bind_notation(py::module_& module) {
  module.def(
      "parse_placement",
      [](const std::string& text) { return parse_placement(text); },
      py::arg("text"), R"doc(
Parses one placement.

>>> tessera.parse_placement("SS(0,2)").split_factor
2)doc");
  module.def(
      "parse_shape", [](const std::string& text) { return parse_shape(text); },
      py::arg("text"), R"doc(
Parses a shape, "[8, 16]" or "8x16".

>>> tessera.parse_shape("8x16")
[8, 16])doc");
  module.def(
      "parse_layout",
      [](const std::string& text) {
        TypedLayout parsed = parse_layout(text);
        return std::pair(std::move(parsed.dtype), std::move(parsed.layout));
      },
      py::arg("text"), R"doc(
Parses a layout and the dtype in front of it, if any.

>>> tessera.parse_layout("f32[8, 16] S(0) @ mesh(4)")
('f32', [8, 16] S(0) @ mesh(4)))doc");
}

void bind_boxes(py::module_& module) {
  module.def("whole", &whole, py::arg("shape"), R"doc(
Returns the box of a whole tensor.

>>> tessera.whole([4, 2])
[0:4, 0:2])doc");
  module.def("intersect", &intersect, py::arg("a"), py::arg("b"), R"doc(
Returns the common region of two boxes, or None.

>>> tessera.intersect(tessera.Box([0], [4]), tessera.Box([2], [4]))
[2:4])doc");
  module.def("find_overlap", &find_overlap, py::arg("boxes"), R"doc(
Returns the positions of two boxes that share an element, or None.

>>> tessera.find_overlap([tessera.Box([0], [4]), tessera.Box([2], [4])])
(0, 1))doc");
  module.def(
      "is_exact_cover", &is_exact_cover, py::arg("boxes"), py::arg("outer"),
      R"doc(
Tells whether every element of `outer` lies in exactly one of the boxes.

>>> tessera.is_exact_cover([tessera.Box([0], [4])], tessera.Box([0], [4]))
True)doc");
  module.def(
      "replica_count",
      [](const Layout& layout) { return replica_count(layout); },
      py::arg("layout"), R"doc(
Returns how many ranks hold each shard.

>>> tessera.replica_count(tessera.Layout([8], "mesh(2, 4)", "S(0) R"))
4)doc");
  module.def(
      "partial_count",
      [](const Layout& layout) { return partial_count(layout); },
      py::arg("layout"), R"doc(
Returns how many ranks' values are reduced to one.

>>> tessera.partial_count(tessera.Layout([8], "mesh(2, 4)", "P(sum) R"))
2)doc");
}

// A tile of Python: its box, its rank, and perhaps its device.
BoxLayout::Tile tile_from(const py::tuple& tile) {
  TORCH_CHECK_TYPE(
      tile.size() == 2 || tile.size() == 3,
      "BoxLayout: a tile must be (box, rank) or (box, rank, device); got ",
      std::string(py::repr(tile)));
  return {
      tile[0].cast<Box>(), tile[1].cast<int64_t>(),
      tile.size() == 3 ? tile[2].cast<std::string>() : std::string()};
}

void bind_box_layout(py::module_& module) {
  py::class_<BoxLayout>(module, "BoxLayout", R"doc(
A tensor cut into boxes that cover it, each on a rank; tiles are (box, rank[, device]).

>>> halves = [(tessera.Box([0], [3]), 0), (tessera.Box([3], [5]), 1)]
>>> tessera.BoxLayout([8], halves).try_as_mesh()
[8] RS(0,[3,5]) @ mesh(2))doc")
      .def(
          py::init([](Ints shape, const std::vector<py::tuple>& tiles) {
            std::vector<BoxLayout::Tile> values;
            for (const py::tuple& tile : tiles) {
              values.push_back(tile_from(tile));
            }
            return BoxLayout(std::move(shape), std::move(values));
          }),
          py::arg("shape"), py::arg("tiles"))
      .def_static("from_layout", &BoxLayout::from, py::arg("layout"))
      .def_property_readonly("shape", &BoxLayout::shape)
      .def_property_readonly(
          "tiles",
          [](const BoxLayout& self) {
            py::list tiles;
            for (const BoxLayout::Tile& tile : self.tiles()) {
              tiles.append(py::make_tuple(tile.box, tile.rank, tile.device));
            }
            return tiles;
          })
      .def("boxes", &BoxLayout::boxes, py::arg("rank"))
      .def("ranks_holding", &BoxLayout::ranks_holding, py::arg("box"))
      .def("try_as_mesh", &BoxLayout::try_as_mesh);
}

StepKind kind_from(const std::string& text) {
  for (const StepKind kind :
       {StepKind::kAllGather, StepKind::kAllReduce, StepKind::kReduceScatter,
        StepKind::kAllToAll, StepKind::kSlice, StepKind::kToPartial,
        StepKind::kExchange}) {
    if (text == to_string(kind)) {
      return kind;
    }
  }
  TORCH_CHECK_VALUE(
      false,
      "elements_sent: the kind must be all_gather, all_reduce, reduce_scatter, "
      "all_to_all, slice, to_partial or exchange; got \"",
      text, "\"");
}

void bind_machine(py::module_& module) {
  py::class_<Link>(module, "Link", R"doc(
How fast ranks talk along a mesh dim: seconds per message, bytes per second.

>>> tessera.Link(latency=1e-6).bandwidth
10000000000.0)doc")
      .def(
          py::init([](double latency, double bandwidth) {
            return Link{latency, bandwidth};
          }),
          py::kw_only(), py::arg("latency") = Link().latency,
          py::arg("bandwidth") = Link().bandwidth)
      .def_readonly("latency", &Link::latency)
      .def_readonly("bandwidth", &Link::bandwidth);
  py::class_<MachineModel>(module, "MachineModel", R"doc(
The machine that plans are priced for: a link, those of mesh dims 0, 1, ... as far as they
differ, the bytes per second that a rank writes in its own memory, and the bytes that a rank
may hold of what one call moves.

>>> tessera.MachineModel(links=[tessera.Link(bandwidth=1e9)]).links[0].bandwidth
1000000000.0)doc")
      .def(
          py::init([](const Link& link, std::vector<Link> links,
                      double copy_bandwidth, int64_t memory_limit) {
            return MachineModel{
                link, std::move(links), copy_bandwidth, memory_limit};
          }),
          py::kw_only(), py::arg("link") = Link(),
          py::arg("links") = std::vector<Link>(),
          py::arg("copy_bandwidth") = MachineModel().copy_bandwidth,
          py::arg("memory_limit") = MachineModel().memory_limit)
      .def_readonly("link", &MachineModel::link)
      .def_readonly("links", &MachineModel::links)
      .def_readonly("copy_bandwidth", &MachineModel::copy_bandwidth)
      .def_readonly("memory_limit", &MachineModel::memory_limit)
      .def("of", &MachineModel::of, py::arg("mesh_dim"))
      .def("over", &MachineModel::over, py::arg("mesh_dims"));
  module.def("machine_model", &machine_model, R"doc(
Returns the model by which this rank chooses its plans.

>>> tessera.machine_model().link.latency
5e-06)doc");
  module.def("set_machine_model", &set_machine_model, py::arg("model"), R"doc(
Sets it, on all ranks alike.

>>> tessera.set_machine_model(tessera.MachineModel()))doc");
}

void bind_steps(py::module_& module) {
  py::class_<Step>(module, "Step", R"doc(
One move of a redistribution: kind, mesh_dims, before, after, source, target, bytes, cost.

>>> source = tessera.Layout([8], "mesh(4)", "S(0)")
>>> target = tessera.Layout([8], "mesh(4)", "R")
>>> step = tessera.plan_redistribution(source, target, 4).steps[0]
>>> step.kind, step.bytes, step.is_local()
('all_gather', 24, False))doc")
      .def_property_readonly(
          "kind",
          [](const Step& self) { return std::string(to_string(self.kind)); })
      .def_readonly("mesh_dims", &Step::mesh_dims)
      .def_readonly("before", &Step::before)
      .def_readonly("after", &Step::after)
      .def_property_readonly("source", &Step::from)
      .def_property_readonly("target", &Step::to)
      .def_readonly("bytes", &Step::bytes)
      .def_readonly("cost", &Step::cost)
      .def("is_local", &Step::is_local)
      .def("is_in_place", &Step::is_in_place)
      .def(
          "bytes_on",
          [](const Step& self, int64_t element_size, const Ints& coordinate) {
            return bytes_on(self, element_size, coordinate);
          },
          py::arg("element_size"), py::arg("coordinate"))
      .def(
          "bytes_on_rank",
          [](const Step& self, int64_t element_size, int64_t rank) {
            return bytes_on_rank(self, element_size, rank);
          },
          py::arg("element_size"), py::arg("rank"))
      .def("to_json", [](const Step& self) { return to_json(self); })
      .def("__repr__", [](const Step& self) { return to_string(self); });
  py::class_<RedistributePlan>(module, "RedistributePlan", R"doc(
The steps between two layouts and their price: source, target, steps, bytes, cost,
peak_memory.

>>> source = tessera.Layout([8], "mesh(4)", "S(0)")
>>> tessera.plan_redistribution(source, source, 4).steps
[])doc")
      .def_readonly("source", &RedistributePlan::source)
      .def_readonly("target", &RedistributePlan::target)
      .def_readonly("element_size", &RedistributePlan::element_size)
      .def_readonly("steps", &RedistributePlan::steps)
      .def_readonly("bytes", &RedistributePlan::bytes)
      .def_readonly("cost", &RedistributePlan::cost)
      .def_readonly("peak_memory", &RedistributePlan::peak_memory)
      .def(
          "to_json", [](const RedistributePlan& self) { return to_json(self); })
      .def("__repr__", [](const RedistributePlan& self) {
        return to_string(self);
      });
  module.def(
      "plan_redistribution",
      [](const Layout& source, const Layout& target, int64_t element_size,
         const std::optional<MachineModel>& model) {
        return plan_redistribution(
            source, target, element_size, model.value_or(MachineModel()));
      },
      py::arg("source"), py::arg("target"), py::arg("element_size"),
      py::arg("model") = py::none(), NoGil(), R"doc(
Returns the cheapest plan; all ranks get the same one.

>>> source = tessera.Layout([8, 4], "mesh(4)", "S(0)")
>>> target = tessera.Layout([8, 4], "mesh(4)", "S(1)")
>>> [step.kind for step in tessera.plan_redistribution(source, target, 4).steps]
['all_to_all'])doc");
}

void bind_prices(py::module_& module) {
  module.def(
      "transition_cost", &transition_cost, py::arg("model"),
      py::arg("mesh_dim"), py::arg("ranks"), py::arg("source"),
      py::arg("target"), py::arg("bytes"), R"doc(
Returns the seconds in which one mesh dim goes from one placement to another.

>>> tessera.transition_cost(
...     tessera.MachineModel(), 0, 4, tessera.Shard(0), tessera.Shard(0), 8e6)
0.0)doc");
  module.def(
      "message_count",
      [](const std::string& call, int64_t ranks) {
        return message_count(std::string_view(call), ranks);
      },
      py::arg("call"), py::arg("ranks"), R"doc(
Returns how many messages follow each other in a collective among `ranks` ranks.

>>> tessera.message_count("all_gather", 8)
3)doc");
  module.def(
      "predicted_time",
      [](const CommLogEntry& entry, const std::optional<MachineModel>& model) {
        return predicted_time(entry, model ? *model : machine_model());
      },
      py::arg("entry"), py::arg("model") = py::none(), R"doc(
Returns the seconds of a recorded collective by the machine model.

>>> with tessera.CommLog() as log:
...     pass
>>> sum(tessera.predicted_time(entry) for entry in log.entries)
0)doc");
  py::class_<Transfer>(module, "Transfer", R"doc(
A box that goes from one rank to another: source, target, box.

>>> source = tessera.Layout([4], "mesh(2)", "S(0)")
>>> target = tessera.Layout([4], "mesh(2)", "R")
>>> [t.source for t in tessera.exchange_transfers(source, target, 0)]
[0, 1, 0])doc")
      .def_readonly("source", &Transfer::from)
      .def_readonly("target", &Transfer::to)
      .def_readonly("box", &Transfer::box)
      .def("__repr__", [](const Transfer& self) {
        return c10::str(self.from, " -> ", self.to, " ", to_string(self.box));
      });
  module.def(
      "exchange_transfers",
      py::overload_cast<const Layout&, const Layout&, int64_t>(
          &exchange_transfers),
      py::arg("source"), py::arg("target"), py::arg("rank"));
  module.def(
      "exchange_transfers",
      py::overload_cast<const BoxLayout&, const BoxLayout&, int64_t>(
          &exchange_transfers),
      py::arg("source"), py::arg("target"), py::arg("rank"), R"doc(
Returns what `rank` sends or receives in a direct exchange between two layouts.

>>> layout = tessera.Layout([4], "mesh(2)", "S(0)")
>>> tessera.exchange_transfers(layout, layout, 0)
[0 -> 0 [0:2]])doc");
}

template <class L>
void bind_exchange(py::module_& module, const char* text) {
  using Two = int64_t (*)(const L&, const L&);
  using OnRank = int64_t (*)(const L&, const L&, int64_t);
  module.def(
      "exchange_elements", static_cast<Two>(&exchange_elements),
      py::arg("source"), py::arg("target"), text);
  module.def(
      "exchange_elements_on", static_cast<OnRank>(&exchange_elements_on),
      py::arg("source"), py::arg("target"), py::arg("rank"), text);
}

constexpr const char* kExchangeText = R"doc(
Returns the elements that the busiest rank, or the rank named, sends or receives in a direct
exchange between two layouts or tilings, whichever is more.

>>> rows = tessera.Layout([4, 4], "mesh(2)", "S(0)")
>>> columns = tessera.Layout([4, 4], "mesh(2)", "S(1)")
>>> tessera.exchange_elements(rows, columns)
4
>>> tessera.exchange_elements_on(rows, columns, 1)
4)doc";

void bind_exchanges(py::module_& module) {
  bind_exchange<Layout>(module, kExchangeText);
  bind_exchange<BoxLayout>(module, nullptr);
  module.def(
      "stays_in_place", &stays_in_place, py::arg("source"), py::arg("target"),
      R"doc(
Tells whether no element changes its rank between two tilings.

>>> tiles = tessera.BoxLayout([4], [(tessera.Box([0], [4]), 0)])
>>> tessera.stays_in_place(tiles, tiles)
True)doc");
  module.def(
      "elements_sent",
      [](const std::string& kind, int64_t ranks, int64_t before,
         int64_t after) {
        return elements_sent(kind_from(kind), ranks, before, after);
      },
      py::arg("kind"), py::arg("ranks"), py::arg("before"), py::arg("after"),
      R"doc(
Returns the elements that a rank sends in a step, from the sizes of the largest shard before
and after it.

>>> tessera.elements_sent("all_gather", 4, 2, 8)
6)doc");
  module.def(
      "step_cost", &step_cost, py::arg("model"), py::arg("link"),
      py::arg("messages"), py::arg("bytes"), py::arg("written"), R"doc(
Returns the seconds of a step: messages x latency + bytes / bandwidth + written / copy
bandwidth.

>>> link = tessera.Link(latency=0.5, bandwidth=1e6)
>>> tessera.step_cost(tessera.MachineModel(), link, 1, 1000000, 0)
1.5)doc");
}

void bind_texts(py::module_& module) {
  module.def(
      "from_hlo_sharding",
      [](const std::string& text, Ints shape,
         const std::optional<MeshShapeArg>& mesh) {
        return mesh ? from_hlo_sharding(text, std::move(shape), mesh->value)
                    : from_hlo_sharding(text, std::move(shape));
      },
      py::arg("text"), py::arg("shape"), py::arg("mesh") = py::none(), R"doc(
Reads a sharding as XLA prints it.

>>> tessera.from_hlo_sharding("{devices=[2,4]<=[8]}", [8, 16])
[8, 16] S(0) S(1) @ mesh(2, 4))doc");
  module.def(
      "from_shardy",
      [](const std::string& text, Ints shape,
         const std::optional<MeshShapeArg>& mesh) {
        return mesh ? from_shardy(text, std::move(shape), mesh->value)
                    : from_shardy(text, std::move(shape));
      },
      py::arg("text"), py::arg("shape"), py::arg("mesh") = py::none(), R"doc(
Reads a mesh and a sharding as Shardy prints them.

>>> text = tessera.to_shardy(tessera.ones([4], mesh, "R"))
>>> tessera.from_shardy(text, [4]).is_replicated()
True)doc");
  module.def("cached_plan_count", &cached_plan_count, R"doc(
Returns how many plans this rank's thread keeps.

>>> tessera.cached_plan_count() <= 1024
True)doc");
  module.def("cached_decision_count", &cached_decision_count, R"doc(
Returns how many decisions about calls of operators this rank's thread keeps.

>>> tessera.cached_decision_count() <= 2048
True)doc");
  module.def("decided_call_count", &decided_call_count, R"doc(
Returns how many calls this thread has decided, instead of finding what it decided before.

>>> tessera.decided_call_count() >= 0
True)doc");
  module.def("clear_caches", &clear_caches, NoGil(), R"doc(
Forgets the plans and decisions of this thread, and the groups they were made for.

>>> tessera.clear_caches()
>>> tessera.cached_plan_count()
0)doc");
}

}  // namespace

void bind_plan(py::module_& module) {
  bind_layout_class(module);
  bind_notation(module);
  bind_boxes(module);
  bind_box_layout(module);
  bind_machine(module);
  bind_steps(module);
  bind_prices(module);
  bind_exchanges(module);
  bind_texts(module);
}

}  // namespace tessera::python
