// ShardedTensor and the ways to make one.
#include <memory>
#include <string>
#include <utility>
#include <vector>

#include <tessera/sharded_tensor/conversion.h>
#include <tessera/sharded_tensor/create.h>
#include <tessera/sharded_tensor/shard_module.h>
#include <tessera/sharded_tensor/sharded_tensor.h>
#include <tessera/sharded_tensor/state_dict.h>

#include "../module_tree.h"
#include "family.h"

namespace tessera::python {
namespace {

namespace st = sharded_tensor;
using Sizes = std::vector<int64_t>;
using Tensor = st::ShardedTensor;

void bind_shard(py::module_& module) {
  py::class_<st::Shard>(module, "Shard", R"doc(
A tensor and the box of the global tensor that it holds; not the placement.

>>> shard = tessera.sharded_tensor.Shard.from_tensor_and_offsets(torch.ones(2), [4], 0)
>>> shard.metadata.box()
[4:6])doc")
      .def(
          py::init<at::Tensor, st::ShardMetadata>(), py::arg("tensor"),
          py::arg("metadata"))
      .def_static(
          "from_tensor_and_offsets", &st::Shard::from_tensor_and_offsets,
          py::arg("tensor"), py::arg("shard_offsets"), py::arg("rank"))
      .def_readonly("tensor", &st::Shard::tensor)
      .def_readonly("metadata", &st::Shard::metadata);
  py::class_<st::RemoteShard>(module, "RemoteShard", R"doc(
A shard of another rank, fetched on demand; see ShardedTensor.remote_shards().

>>> hasattr(tessera.sharded_tensor.RemoteShard, "fetch")
True)doc")
      .def_property_readonly("metadata", &st::RemoteShard::metadata)
      .def("fetch", &st::RemoteShard::fetch, NoGil());
}

Sizes sizes_from(const py::args& sizes) {
  if (sizes.size() == 1 && !py::isinstance<py::int_>(sizes[0])) {
    return sizes[0].cast<Sizes>();
  }
  return sizes.cast<Sizes>();
}

st::ShardedTensorOptions options_of(
    MaybeDtype dtype, bool requires_grad, bool pin_memory,
    const std::optional<st::ProcessGroup>& group, bool init_remote) {
  st::ShardedTensorOptions options;
  options.dtype = dtype;
  options.requires_grad = requires_grad;
  options.pin_memory = pin_memory;
  options.process_group = group.value_or(st::ProcessGroup());
  options.init_remote = init_remote;
  return options;
}

void bind_facts(py::class_<Tensor>& tensor) {
  tensor.def("metadata", &Tensor::metadata)
      .def(
          "sharding_spec",
          [](const Tensor& self) {
            return std::const_pointer_cast<st::ShardingSpec>(
                self.sharding_spec().clone());
          })
      .def("local_shards", &Tensor::local_shards)
      .def("local_tensor", &Tensor::local_tensor)
      .def(
          "size",
          [](const Tensor& self, std::optional<int64_t> dim) -> py::object {
            return dim ? py::cast(self.size(*dim))
                       : py::object(py::tuple(py::cast(self.sizes())));
          },
          py::arg("dim") = py::none())
      .def_property_readonly(
          "shape",
          [](const Tensor& self) { return py::tuple(py::cast(self.sizes())); })
      .def("dim", &Tensor::dim)
      .def_property_readonly("ndim", [](const Tensor& t) { return t.dim(); })
      .def("numel", &Tensor::numel)
      .def_property_readonly("dtype", &Tensor::dtype)
      .def_property_readonly("layout", &Tensor::layout)
      .def_property_readonly("device", &Tensor::device)
      .def_property_readonly("requires_grad", &Tensor::requires_grad)
      .def_property_readonly("is_meta", &Tensor::is_meta)
      .def_property_readonly("grad", &Tensor::grad)
      .def("is_floating_point", &Tensor::is_floating_point)
      .def("is_contiguous", &Tensor::is_contiguous)
      .def("is_pinned", &Tensor::is_pinned)
      .def("shard_size", [](const Tensor& self) { return self.shard_size(); })
      .def("process_group", &Tensor::process_group)
      .def("__hash__", &Tensor::hash)
      .def("__repr__", [](const Tensor& t) { return st::to_string(t); });
}

void bind_moves(py::class_<Tensor>& tensor) {
  tensor
      .def(
          "gather",
          [](const Tensor& self, int64_t dst,
             const std::optional<at::Tensor>& out, MaybeDtype dtype) {
            self.gather(dst, out.value_or(at::Tensor()), dtype);
          },
          py::arg("dst") = 0, py::arg("out") = py::none(),
          py::arg("dtype") = py::none(), NoGil())
      .def(
          "reshard", &Tensor::reshard, py::arg("spec"),
          py::return_value_policy::copy, NoGil())
      .def("resharded", &Tensor::resharded, py::arg("spec"), NoGil())
      .def("explain_reshard", &Tensor::explain_reshard, py::arg("spec"))
      .def(
          "to",
          [](const Tensor& self, std::optional<c10::Device> device,
             MaybeDtype dtype,
             bool copy) { return self.to(device, dtype, copy); },
          py::arg("device") = py::none(), py::arg("dtype") = py::none(),
          py::kw_only(), py::arg("copy") = false, NoGil())
      .def("cpu", &Tensor::cpu, NoGil())
      .def("cuda", &Tensor::cuda, NoGil())
      .def("remote_shards", &Tensor::remote_shards);
}

// Binds a maker whose arguments are a spec, perhaps a value, the sizes as one
// list or as numbers, and the options.
template <class Make>
void bind_maker(
    py::module_& module, const char* name, const char* text, const Make& make) {
  module.def(
      name,
      [make](
          const st::ShardingSpec& spec, const py::args& size, MaybeDtype dtype,
          bool requires_grad, bool pin_memory,
          const std::optional<st::ProcessGroup>& group, bool init_remote) {
        const Sizes sizes = sizes_from(size);
        const py::gil_scoped_release unlock;
        return make(
            spec, sizes,
            options_of(dtype, requires_grad, pin_memory, group, init_remote));
      },
      py::arg("sharding_spec"), py::kw_only(), py::arg("dtype") = py::none(),
      py::arg("requires_grad") = false, py::arg("pin_memory") = false,
      py::arg("process_group") = py::none(), py::arg("init_remote") = false,
      text);
}

#define TESSERA_MAKER(name, what)                                        \
  bind_maker(                                                            \
      module, #name,                                                     \
      "Makes a sharded tensor cut by a spec: " what                      \
      ".\n\n"                                                            \
      ">>> spec = tessera.sharded_tensor.ChunkShardingSpec(0, ["         \
      "\"rank:0/cpu\"])\n"                                               \
      ">>> tessera.sharded_tensor." #name "(spec, 4, 2).size()\n(4, 2)", \
      [](const auto&... a) { return st::name(a...); })

void bind_values(py::module_& module) {
  TESSERA_MAKER(empty, "its values are undefined");
  TESSERA_MAKER(zeros, "its values are 0");
  TESSERA_MAKER(ones, "its values are 1");
  TESSERA_MAKER(rand, "its values are drawn from [0, 1)");
  TESSERA_MAKER(randn, "its values are drawn from the normal distribution");
  module.def(
      "full",
      [](const st::ShardingSpec& spec, const Sizes& size,
         const ScalarArg& value, MaybeDtype dtype, bool requires_grad,
         const std::optional<st::ProcessGroup>& group) {
        return st::full(
            spec, size, value.value,
            options_of(dtype, requires_grad, false, group, false));
      },
      py::arg("sharding_spec"), py::arg("size"), py::arg("fill_value"),
      py::kw_only(), py::arg("dtype") = py::none(),
      py::arg("requires_grad") = false, py::arg("process_group") = py::none(),
      NoGil(), R"doc(
Makes a sharded tensor cut by a spec: of one value.

>>> spec = tessera.sharded_tensor.ChunkShardingSpec(0, ["rank:0/cpu"])
>>> tessera.sharded_tensor.full(spec, [2], 7).local_tensor()
tensor([7., 7.]))doc");
}

#undef TESSERA_MAKER

void bind_existing(py::module_& module) {
  module.def(
      "shard_tensor",
      [](const at::Tensor& tensor, const st::ShardingSpec& spec,
         int64_t src_rank, const std::optional<st::ProcessGroup>& group) {
        return st::shard_tensor(
            tensor, spec, src_rank, group.value_or(st::ProcessGroup()));
      },
      py::arg("tensor"), py::arg("sharding_spec"), py::arg("src_rank") = 0,
      py::arg("process_group") = py::none(), NoGil(), R"doc(
Cuts a tensor that `src_rank` has.

>>> spec = tessera.sharded_tensor.ChunkShardingSpec(0, ["rank:0/cpu"])
>>> tessera.sharded_tensor.shard_tensor(torch.arange(4), spec).local_tensor()
tensor([0, 1, 2, 3]))doc");
  module.def(
      "init_from_local_shards",
      [](std::vector<st::Shard> shards, const py::args& size,
         const std::optional<st::ProcessGroup>& group, bool init_remote) {
        const auto options =
            options_of(std::nullopt, false, false, group, init_remote);
        if (size.empty() || (size.size() == 1 && size[0].is_none())) {
          const py::gil_scoped_release unlock;
          return st::init_from_local_shards(
              std::move(shards), std::nullopt, options);
        }
        const Sizes sizes = sizes_from(size);
        const py::gil_scoped_release unlock;
        return st::init_from_local_shards(std::move(shards), sizes, options);
      },
      py::arg("local_shards"), py::kw_only(),
      py::arg("process_group") = py::none(), py::arg("init_remote") = false,
      R"doc(
Makes a sharded tensor of the shards that each rank has: init_from_local_shards(shards,
*size); without a size that follows from the shards.

>>> st = tessera.sharded_tensor
>>> shard = st.Shard.from_tensor_and_offsets(torch.ones(4), [0], 0)
>>> st.init_from_local_shards([shard], 4).numel()
4)doc");
  module.def(
      "init_from_local_shards_and_global_metadata",
      [](std::vector<st::Shard> shards,
         const st::ShardedTensorMetadata& metadata,
         const std::optional<st::ProcessGroup>& group, bool init_remote) {
        return st::init_from_local_shards_and_global_metadata(
            std::move(shards), metadata,
            options_of(std::nullopt, false, false, group, init_remote));
      },
      py::arg("local_shards"), py::arg("sharded_tensor_metadata"),
      py::kw_only(), py::arg("process_group") = py::none(),
      py::arg("init_remote") = false, NoGil(), R"doc(
The same where every rank knows the whole metadata: nothing is communicated.

>>> st = tessera.sharded_tensor
>>> shard = st.Shard.from_tensor_and_offsets(torch.ones(4), [0], 0)
>>> about = st.ShardedTensorMetadata([shard.metadata], [4])
>>> st.init_from_local_shards_and_global_metadata([shard], about).numel()
4)doc");
  module.def(
      "init_from_local_tensor",
      [](const at::Tensor& tensor, const st::ShardingSpec& spec,
         const py::args& size, const std::optional<st::ProcessGroup>& group) {
        const Sizes sizes = sizes_from(size);
        const py::gil_scoped_release unlock;
        return st::init_from_local_tensor(
            tensor, spec, sizes,
            options_of(std::nullopt, false, false, group, false));
      },
      py::arg("local_tensor"), py::arg("sharding_spec"), py::kw_only(),
      py::arg("process_group") = py::none(), R"doc(
Makes a sharded tensor of one tensor per rank, by a spec:
init_from_local_tensor(tensor, spec, *size).

>>> st = tessera.sharded_tensor
>>> spec = st.ChunkShardingSpec(0, ["rank:0/cpu"])
>>> st.init_from_local_tensor(torch.ones(4), spec, 4).size(0)
4)doc");
}

void bind_doors(py::module_& module) {
  module.def("to_dtensor", &st::to_dtensor, py::arg("tensor"), NoGil(), R"doc(
Returns the torch.Tensor with placements that shares the shard, where shards form a mesh;
differentiable.

>>> spec = tessera.sharded_tensor.ChunkShardingSpec(0, ["rank:0/cpu"])
>>> t = tessera.sharded_tensor.to_dtensor(tessera.sharded_tensor.ones(spec, 4))
>>> t.sum().item()
4.0)doc");
  module.def(
      "from_dtensor",
      [](const at::Tensor& tensor,
         const std::optional<st::ProcessGroup>& group) {
        return st::from_dtensor(tensor, group.value_or(st::ProcessGroup()));
      },
      py::arg("tensor"), py::arg("process_group") = py::none(), NoGil(), R"doc(
Returns a sharded tensor of a torch.Tensor with placements, sharing the shard.

>>> tessera.sharded_tensor.from_dtensor(tessera.ones([4], mesh, "S(0)")).numel()
4)doc");
  module.def("has_mesh", &st::has_mesh, py::arg("tensor"), R"doc(
Tells whether to_dtensor() can convert a tensor.

>>> spec = tessera.sharded_tensor.ChunkShardingSpec(0, ["rank:0/cpu"])
>>> tessera.sharded_tensor.has_mesh(tessera.sharded_tensor.ones(spec, 4))
True)doc");
  module.def(
      "shard_parameter",
      [](const py::object& python_module, const std::string& name,
         const st::ShardingSpec& spec, int64_t src_rank,
         const std::optional<st::ProcessGroup>& group) {
        ModuleTree tree = tree_of(python_module);
        const py::gil_scoped_release unlock;
        return st::shard_parameter(
            tree, name, spec, src_rank, group.value_or(st::ProcessGroup()));
      },
      py::arg("module"), py::arg("param_name"), py::arg("sharding_spec"),
      py::arg("src_rank") = 0, py::arg("process_group") = py::none(), R"doc(
Shards a parameter of a module, in place, and returns it as a ShardedTensor.

>>> layer = torch.nn.Linear(2, 4)
>>> spec = tessera.sharded_tensor.ChunkShardingSpec(0, ["rank:0/cpu"])
>>> t = tessera.sharded_tensor.shard_parameter(layer, "weight", spec)
>>> tessera.is_dtensor(layer.weight)
True)doc");
  module.def(
      "_reshard_output",
      [](const at::Tensor& output, const st::ShardingSpec& spec,
         const std::optional<st::ProcessGroup>& group) {
        return st::reshard_output(
            output, spec, group.value_or(st::ProcessGroup()));
      },
      NoGil());
  module.def(
      "_collect_local_shard",
      [](const at::Tensor& output) { return st::collect_local_shard(output); },
      NoGil());
  module.def(
      "reshard_local_shard",
      [](const at::Tensor& local, const Sizes& size,
         const st::ShardingSpec& from, const st::ShardingSpec& to,
         const std::optional<st::ProcessGroup>& group) {
        return st::reshard_local_shard(
            local, size, from, to, group.value_or(st::ProcessGroup()));
      },
      py::arg("local_tensor"), py::arg("size"), py::arg("sharding_spec"),
      py::arg("resharding_spec"), py::arg("process_group") = py::none(),
      NoGil(), R"doc(
Cuts a tensor of which `local_tensor` is this rank's only shard by another spec; returns
this rank's shards.

>>> st = tessera.sharded_tensor
>>> spec = st.ChunkShardingSpec(0, ["rank:0/cpu"])
>>> st.reshard_local_shard(torch.ones(4), [4], spec, spec)[0].tensor
tensor([1., 1., 1., 1.]))doc");
}

void bind_files(py::module_& module) {
  module.def(
      "save", [](const Tensor& tensor) { return py::bytes(st::save(tensor)); },
      py::arg("tensor"), R"doc(
Returns this rank's part of a tensor as bytes, for restore() on the same rank.

>>> spec = tessera.sharded_tensor.ChunkShardingSpec(0, ["rank:0/cpu"])
>>> data = tessera.sharded_tensor.save(tessera.sharded_tensor.ones(spec, 4))
>>> tessera.sharded_tensor.restore(data).local_tensor()
tensor([1., 1., 1., 1.]))doc");
  module.def(
      "restore",
      [](const py::bytes& data) { return st::restore(std::string(data)); },
      py::arg("data"), R"doc(
Returns the tensor of which save() made the bytes, on the same rank of an equal world.

>>> tessera.sharded_tensor.restore(b"")
Traceback (most recent call last):
ValueError: ...)doc");
  module.def(
      "save_state_dict",
      [](const std::map<std::string, Tensor>& dict) {
        return py::bytes(st::save_state_dict(dict));
      },
      py::arg("state_dict"), R"doc(
save() of several tensors by name.

>>> type(tessera.sharded_tensor.save_state_dict({})).__name__
'bytes')doc");
  module.def(
      "restore_state_dict",
      [](const py::bytes& data) {
        return st::restore_state_dict(std::string(data));
      },
      py::arg("data"), R"doc(
restore() of several tensors by name.

>>> tessera.sharded_tensor.restore_state_dict(tessera.sharded_tensor.save_state_dict({}))
{})doc");
}

}  // namespace

void bind_sharded_tensor_class(py::module_& module) {
  bind_shard(module);
  py::class_<Tensor> tensor(module, "ShardedTensor", R"doc(
A tensor cut by a ShardingSpec, and the shards that this rank has of it: none, one or
several. to_dtensor() leads to all of torch where the shards form a mesh.

>>> st = tessera.sharded_tensor
>>> t = st.ShardedTensor(st.ChunkShardingSpec(0, ["rank:0/cpu"]), 4, 2)
>>> t.size(), t.local_shards()[0].metadata.box()
((4, 2), [0:4, 0:2]))doc");
  tensor.def(
      py::init([](const st::ShardingSpec& spec, const py::args& size,
                  MaybeDtype dtype, bool requires_grad, bool pin_memory,
                  const std::optional<st::ProcessGroup>& group,
                  bool init_remote) {
        return Tensor(
            spec, sizes_from(size),
            options_of(dtype, requires_grad, pin_memory, group, init_remote));
      }),
      py::arg("sharding_spec"), py::kw_only(), py::arg("dtype") = py::none(),
      py::arg("requires_grad") = false, py::arg("pin_memory") = false,
      py::arg("process_group") = py::none(), py::arg("init_remote") = false);
  bind_facts(tensor);
  bind_moves(tensor);
}

void bind_sharded_tensor_makers(py::module_& module) {
  bind_values(module);
  bind_existing(module);
  bind_doors(module);
  bind_files(module);
}

}  // namespace tessera::python
