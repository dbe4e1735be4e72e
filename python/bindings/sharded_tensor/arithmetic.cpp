// Specs and metadata as bytes, and their arithmetic.
#include <string>
#include <vector>

#include <tessera/sharded_tensor/serialize.h>
#include <tessera/sharded_tensor/sharded_tensor.h>

#include "family.h"

namespace tessera::python {
namespace {

namespace st = sharded_tensor;
using Sizes = std::vector<int64_t>;
using Shards = std::vector<st::ShardMetadata>;

template <class T>
void bind_serialize(py::module_& module, const char* text) {
  module.def(
      "serialize",
      [](const T& value) { return py::bytes(st::serialize(value)); },
      py::arg("value"), text);
}

template <class T>
py::object read(const py::bytes& data) {
  return py::cast(st::deserialize<T>(std::string(data)));
}

py::object deserialize(const py::type& type, const py::bytes& data) {
  if (type.is(py::type::of<st::RemoteDevice>())) {
    return read<st::RemoteDevice>(data);
  }
  if (type.is(py::type::of<st::ShardMetadata>())) {
    return read<st::ShardMetadata>(data);
  }
  if (type.is(py::type::of<st::TensorProperties>())) {
    return read<st::TensorProperties>(data);
  }
  if (type.is(py::type::of<st::ShardedTensorMetadata>())) {
    return read<st::ShardedTensorMetadata>(data);
  }
  if (type.is(py::type::of<st::DevicePlacementSpec>())) {
    return read<st::DevicePlacementSpec>(data);
  }
  TORCH_CHECK_TYPE(
      PyObject_IsSubclass(type.ptr(), py::type::of<st::ShardingSpec>().ptr()) ==
          1,
      "deserialize: the type must be one that serialize() takes; got ",
      std::string(py::str(type)));
  return py::cast(std::const_pointer_cast<st::ShardingSpec>(
      st::deserialize<st::ShardingSpecPtr>(std::string(data))));
}

void bind_bytes(py::module_& module) {
  bind_serialize<st::RemoteDevice>(module, nullptr);
  bind_serialize<st::ShardMetadata>(module, nullptr);
  bind_serialize<st::TensorProperties>(module, nullptr);
  bind_serialize<st::ShardedTensorMetadata>(module, nullptr);
  bind_serialize<st::DevicePlacementSpec>(module, nullptr);
  bind_serialize<st::ShardingSpec>(module, R"doc(
Returns the bytes of a spec or of metadata: versioned, checked, data only.

>>> st = tessera.sharded_tensor
>>> data = st.serialize(st.ChunkShardingSpec(0, ["rank:0/cpu"]))
>>> st.deserialize(st.ShardingSpec, data).dim
0)doc");
  module.def(
      "deserialize", &deserialize, py::arg("type"), py::arg("data"), R"doc(
Reads what serialize() wrote of a type.

>>> st = tessera.sharded_tensor
>>> st.deserialize(st.ShardMetadata, st.serialize(st.ShardMetadata([0], [4]))).shard_sizes
[4])doc");
}

void bind_chunk_arithmetic(py::module_& module) {
  module.def(
      "get_split_size", &st::get_split_size, py::arg("n"), py::arg("chunks"),
      R"doc(
Returns the size of the chunks that a dim is cut into, but the last ones.

>>> tessera.sharded_tensor.get_split_size(10, 4)
3)doc");
  module.def(
      "get_chunked_dim_size", &st::get_chunked_dim_size, py::arg("n"),
      py::arg("split_size"), py::arg("i"), R"doc(
Returns the size of chunk i.

>>> tessera.sharded_tensor.get_chunked_dim_size(10, 3, 3)
1)doc");
  module.def(
      "get_chunk_sharding_params", &st::get_chunk_sharding_params, py::arg("n"),
      py::arg("world_size"), py::arg("spec"), py::arg("rank"), R"doc(
Returns where the chunk of a rank begins, and its size.

>>> spec = tessera.sharded_tensor.ChunkShardingSpec(0, ["rank:0/cpu"])
>>> tessera.sharded_tensor.get_chunk_sharding_params(10, 1, spec, 0)
(0, 10))doc");
  module.def(
      "narrow_tensor", &st::narrow_tensor, py::arg("tensor"),
      py::arg("metadata"), R"doc(
Returns the part of a whole tensor that a shard holds.

>>> st = tessera.sharded_tensor
>>> st.narrow_tensor(torch.arange(4), st.ShardMetadata([1], [2]))
tensor([1, 2]))doc");
  module.def(
      "same_shards",
      [](const Shards& a, const Shards& b) { return st::same_shards(a, b); },
      py::arg("a"), py::arg("b"), R"doc(
Tells whether two lists have the same boxes in the same places.

>>> tessera.sharded_tensor.same_shards([], [])
True)doc");
  module.def(
      "validate_non_overlapping_shards_metadata",
      &st::validate_non_overlapping_shards_metadata, py::arg("shards"), R"doc(
Throws where two shards share an element.

>>> st = tessera.sharded_tensor
>>> st.validate_non_overlapping_shards_metadata([st.ShardMetadata([0], [4])]))doc");
  module.def(
      "check_tensor",
      [](const Shards& shards, const Sizes& sizes) {
        st::check_tensor(shards, sizes);
      },
      py::arg("shards"), py::arg("sizes"), R"doc(
Throws unless the shards cover a tensor of these sizes.

>>> st = tessera.sharded_tensor
>>> st.check_tensor([st.ShardMetadata([0], [4])], [4]))doc");
  module.def("remote_tensor_count", &st::remote_tensor_count, R"doc(
Returns how many tensors of this rank others may fetch shards of.

>>> tessera.sharded_tensor.remote_tensor_count()
0)doc");
}

}  // namespace

void bind_sharded_tensor_arithmetic(py::module_& module) {
  py::class_<st::DevicePlacementSpec>(module, "DevicePlacementSpec", R"doc(
A place as a value of its own.

>>> tessera.sharded_tensor.DevicePlacementSpec("rank:0/cpu").device.rank
0)doc")
      .def(py::init<st::RemoteDevice>(), py::arg("device"))
      .def_readonly("device", &st::DevicePlacementSpec::device);
  bind_bytes(module);
  bind_chunk_arithmetic(module);
}

}  // namespace tessera::python
