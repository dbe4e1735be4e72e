// The ShardedTensor family: values, specs, the tensor and the ways to make one.
#include <map>
#include <memory>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include <tessera/sharded_tensor/conversion.h>
#include <tessera/sharded_tensor/create.h>
#include <tessera/sharded_tensor/metadata.h>
#include <tessera/sharded_tensor/serialize.h>
#include <tessera/sharded_tensor/sharded_tensor.h>
#include <tessera/sharded_tensor/sharding_spec.h>

#include "../bindings.h"
#include "../guard.h"
#include "family.h"

namespace tessera::python {
namespace {

namespace st = sharded_tensor;
using Sizes = std::vector<int64_t>;

template <class T>
std::string text_of(const T& value) {
  return st::to_string(value);
}

void bind_places(py::module_& module) {
  py::class_<st::RemoteDevice>(module, "RemoteDevice", R"doc(
Where a shard lives: "rank:0/cuda:0", "worker1/cpu", or a device alone.

>>> tessera.sharded_tensor.RemoteDevice("rank:0/cpu").rank
0)doc")
      .def(py::init<const std::string&>(), py::arg("text"))
      .def_property_readonly("rank", &st::RemoteDevice::rank)
      .def_property_readonly("worker_name", &st::RemoteDevice::worker_name)
      .def_property_readonly("device", &st::RemoteDevice::device)
      .def("with_device", &st::RemoteDevice::with_device, py::arg("device"))
      .def("__repr__", &text_of<st::RemoteDevice>)
      .def(
          "__eq__",
          [](const st::RemoteDevice& a, py::object b) {
            return py::isinstance<st::RemoteDevice>(b) &&
                   a == b.cast<st::RemoteDevice>();
          })
      .def("__hash__", [](const st::RemoteDevice& self) {
        return std::hash<st::RemoteDevice>()(self);
      });
  py::implicitly_convertible<std::string, st::RemoteDevice>();
  py::class_<st::ProcessGroup>(module, "ProcessGroup", R"doc(
The ranks that share a sharded tensor: without ranks the current group.

>>> tessera.sharded_tensor.ProcessGroup([0]).rank()
0)doc")
      .def(py::init<>())
      .def(py::init<Sizes>(), py::arg("ranks"))
      .def(py::init<Communicator>(), py::arg("communicator"))
      .def_property_readonly("ranks", &st::ProcessGroup::ranks)
      .def("size", &st::ProcessGroup::size)
      .def("rank", &st::ProcessGroup::rank)
      .def("contains", &st::ProcessGroup::contains, py::arg("global_rank"))
      .def("group_rank", &st::ProcessGroup::group_rank, py::arg("global_rank"))
      .def("communicator", &st::ProcessGroup::communicator, NoGil())
      .def("__repr__", &text_of<st::ProcessGroup>)
      .def("__eq__", [](const st::ProcessGroup& a, py::object b) {
        return py::isinstance<st::ProcessGroup>(b) &&
               a == b.cast<st::ProcessGroup>();
      });
  module.def("current_process_group", &st::current_process_group, R"doc(
Returns the group of the WithProcessGroup in effect, else that of all ranks.

>>> tessera.sharded_tensor.current_process_group().size()
1)doc");
  bind_guard<st::WithProcessGroup, st::ProcessGroup>(
      module, "WithProcessGroup", R"doc(
Inside `with`, functions that are told no group use this one.

>>> group = tessera.sharded_tensor.ProcessGroup([0])
>>> with tessera.sharded_tensor.WithProcessGroup(group):
...     tessera.sharded_tensor.current_process_group() == group
True)doc")
      .def(py::init<st::ProcessGroup>(), py::arg("group"));
  bind_guard<st::WorkerNames, std::map<std::string, int64_t>>(
      module, "WorkerNames", R"doc(
Inside `with`, placements may name workers.

>>> with tessera.sharded_tensor.WorkerNames({"worker0": 0}):
...     spec = tessera.sharded_tensor.ChunkShardingSpec(0, ["worker0/cpu"]))doc")
      .def(py::init<std::map<std::string, int64_t>>(), py::arg("ranks"));
}

void bind_metadata(py::module_& module) {
  py::class_<st::ShardMetadata>(module, "ShardMetadata", R"doc(
The box of one shard and where it lives.

>>> tessera.sharded_tensor.ShardMetadata([0, 4], [2, 4], "rank:0/cpu").box()
[0:2, 4:8])doc")
      .def(
          py::init<Sizes, Sizes, std::optional<st::RemoteDevice>>(),
          py::arg("shard_offsets"), py::arg("shard_sizes"),
          py::arg("placement") = py::none())
      .def_readonly("shard_offsets", &st::ShardMetadata::shard_offsets)
      .def_readonly("shard_sizes", &st::ShardMetadata::shard_sizes)
      .def_readonly("placement", &st::ShardMetadata::placement)
      .def("box", &st::ShardMetadata::box)
      .def("__repr__", &text_of<st::ShardMetadata>)
      .def("__eq__", [](const st::ShardMetadata& a, py::object b) {
        return py::isinstance<st::ShardMetadata>(b) &&
               a == b.cast<st::ShardMetadata>();
      });
  using Properties = st::TensorProperties;
  py::class_<Properties>(module, "TensorProperties", R"doc(
What every shard of a tensor has in common.

>>> tessera.sharded_tensor.TensorProperties.create_from_tensor(torch.ones(2)).dtype
torch.float32)doc")
      .def(
          py::init([](MaybeDtype dtype, bool requires_grad, bool pin_memory) {
            Properties made;
            made.dtype = dtype.value_or(made.dtype);
            made.requires_grad = requires_grad;
            made.pin_memory = pin_memory;
            return made;
          }),
          py::arg("dtype") = py::none(), py::arg("requires_grad") = false,
          py::arg("pin_memory") = false)
      .def_readonly("dtype", &Properties::dtype)
      .def_readonly("layout", &Properties::layout)
      .def_readonly("requires_grad", &Properties::requires_grad)
      .def_readonly("memory_format", &Properties::memory_format)
      .def_readonly("pin_memory", &Properties::pin_memory)
      .def_static(
          "create_from_tensor", &Properties::create_from_tensor,
          py::arg("tensor"))
      .def("__repr__", &text_of<Properties>)
      .def("__eq__", [](const Properties& a, py::object b) {
        return py::isinstance<Properties>(b) && a == b.cast<Properties>();
      });
  using Metadata = st::ShardedTensorMetadata;
  py::class_<Metadata>(module, "ShardedTensorMetadata", R"doc(
All shards of a tensor, its size and properties.

>>> st = tessera.sharded_tensor
>>> st.ShardedTensorMetadata([st.ShardMetadata([0], [4])], [4]).size
[4])doc")
      .def(
          py::init([](std::vector<st::ShardMetadata> shards, Sizes size,
                      const std::optional<Properties>& properties) {
            return Metadata{
                std::move(shards), std::move(size),
                properties.value_or(Properties())};
          }),
          py::arg("shards_metadata"), py::arg("size"),
          py::arg("tensor_properties") = py::none())
      .def_readonly("shards_metadata", &Metadata::shards_metadata)
      .def_readonly("size", &Metadata::size)
      .def_readonly("tensor_properties", &Metadata::tensor_properties)
      .def("__repr__", &text_of<Metadata>)
      .def("__eq__", [](const Metadata& a, py::object b) {
        return py::isinstance<Metadata>(b) && a == b.cast<Metadata>();
      });
}

void bind_specs(py::module_& module) {
  using Spec = st::ShardingSpec;
  py::class_<Spec, std::shared_ptr<Spec>>(module, "ShardingSpec", R"doc(
How a tensor is cut and who holds what; see ChunkShardingSpec, EnumerableShardingSpec.

>>> st = tessera.sharded_tensor
>>> isinstance(st.ChunkShardingSpec(0, ["rank:0/cpu"]), st.ShardingSpec)
True)doc")
      .def(
          "build_metadata",
          [](const Spec& self, const Sizes& sizes,
             const std::optional<st::TensorProperties>& properties) {
            return self.build_metadata(
                sizes, properties.value_or(st::TensorProperties()));
          },
          py::arg("sizes"), py::arg("tensor_properties") = py::none())
      .def(
          "shard",
          [](const Spec& self, const at::Tensor& tensor, int64_t src_rank,
             const std::optional<st::ProcessGroup>& group) {
            return self.shard(
                tensor, src_rank, group.value_or(st::ProcessGroup()));
          },
          py::arg("tensor"), py::arg("src_rank") = 0,
          py::arg("process_group") = py::none(), NoGil())
      .def("__repr__", [](const Spec& self) { return st::to_string(self); })
      .def("__eq__", [](const Spec& a, py::object b) {
        return py::isinstance<Spec>(b) && a == b.cast<const Spec&>();
      });
  using Chunks = st::ChunkShardingSpec;
  py::class_<Chunks, Spec, std::shared_ptr<Chunks>>(
      module, "ChunkShardingSpec", R"doc(
Cuts a dim into ceil chunks, one per placement, in their order.

>>> tessera.sharded_tensor.ChunkShardingSpec(0, ["rank:0/cpu"]).dim
0)doc")
      .def(
          py::init<int64_t, std::vector<st::RemoteDevice>>(), py::arg("dim"),
          py::arg("placements"))
      .def_property_readonly("dim", &Chunks::dim)
      .def_property_readonly("placements", &Chunks::placements);
  using Listed = st::EnumerableShardingSpec;
  py::class_<Listed, Spec, std::shared_ptr<Listed>>(
      module, "EnumerableShardingSpec", R"doc(
Names the box and the place of every shard.

>>> st = tessera.sharded_tensor
>>> spec = st.EnumerableShardingSpec([st.ShardMetadata([0], [4], "rank:0/cpu")])
>>> spec.shards[0].shard_sizes
[4])doc")
      .def(py::init<std::vector<st::ShardMetadata>>(), py::arg("shards"))
      .def_property_readonly("shards", &Listed::shards);
  module.def(
      "infer_sharding_spec_from_shards_metadata",
      [](const std::vector<st::ShardMetadata>& shards) {
        return std::const_pointer_cast<Spec>(
            st::infer_sharding_spec_from_shards_metadata(shards));
      },
      py::arg("shards"), R"doc(
Returns a chunk spec where the shards are chunks, else one that lists them.

>>> st = tessera.sharded_tensor
>>> shards = [st.ShardMetadata([0], [4], "rank:0/cpu")]
>>> type(st.infer_sharding_spec_from_shards_metadata(shards)).__name__
'EnumerableShardingSpec')doc");
}

}  // namespace

void bind_sharded_tensor(py::module_& module) {
  py::module_ family = module.def_submodule("_sharded_tensor");
  bind_places(family);
  bind_metadata(family);
  // Specs make sharded tensors, whose functions take specs.
  bind_specs(family);
  bind_sharded_tensor_class(family);
  bind_sharded_tensor_makers(family);
  bind_sharded_tensor_arithmetic(family);
  bind_sharded_tensor_ops(family);
}

}  // namespace tessera::python
