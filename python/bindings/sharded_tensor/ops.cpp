// Operators on ShardedTensor.
#include <string>
#include <utility>
#include <variant>
#include <vector>

#include <tessera/sharded_tensor/ops.h>
#include <torch/csrc/jit/python/pybind_utils.h>

#include "family.h"

namespace tessera::python {
namespace {

namespace st = sharded_tensor;
using Sizes = std::vector<int64_t>;
using Tensor = st::ShardedTensor;

// What an argument of an operator may be: a sharded tensor, or anything that
// operators of LibTorch take.
struct ValueArg {
  st::Value value;
};

}  // namespace
}  // namespace tessera::python

namespace pybind11::detail {

template <>
struct type_caster<tessera::python::ValueArg> {
  PYBIND11_TYPE_CASTER(
      tessera::python::ValueArg, _("ShardedTensor | Tensor | Number"));
  bool load(handle source, bool) {
    using tessera::sharded_tensor::ShardedTensor;
    if (isinstance<ShardedTensor>(source)) {
      value.value = source.cast<ShardedTensor>();
    } else {
      value.value = tessera::python::argument_from(source, "sharded_tensor");
    }
    return true;
  }
};

}  // namespace pybind11::detail

namespace tessera::python {
namespace {

using Binary = Tensor (*)(const st::Value&, const st::Value&);
using InPlace = Tensor (*)(const Tensor&, const st::Value&);

py::object object_of(const st::Value& value) {
  if (const auto* tensor = std::get_if<Tensor>(&value)) {
    return py::cast(*tensor);
  }
  return torch::jit::toPyObject(std::get<c10::IValue>(value));
}

// The example shows the function on ones of 4 x 2, cut along dim 0.
std::string text_of(const char* what, const std::string& call) {
  return std::string(what) +
         "\n\n>>> st = tessera.sharded_tensor\n"
         ">>> t = st.ones(st.ChunkShardingSpec(0, [\"rank:0/cpu\"]), 4, 2)\n"
         ">>> st." +
         call + ".size()\n(4, 2)";
}

void bind_binary(
    py::module_& module, const char* name, const char* what, Binary fn) {
  module.def(
      name,
      [fn](const ValueArg& a, const ValueArg& b) {
        return fn(a.value, b.value);
      },
      py::arg("a"), py::arg("b"), NoGil(),
      text_of(what, std::string(name) + "(t, 2)").c_str());
}

void bind_in_place(
    py::module_& module, const char* name, const char* what, InPlace fn) {
  module.def(
      name, [fn](const Tensor& a, const ValueArg& b) { return fn(a, b.value); },
      py::arg("a"), py::arg("b"), NoGil(),
      text_of(what, std::string(name) + "(t, 2)").c_str());
}

void bind_arithmetic(py::module_& module) {
  bind_binary(module, "add", "Adds, broadcast; cut like the first.", &st::add);
  bind_binary(module, "sub", "Subtracts, broadcast.", &st::sub);
  bind_binary(module, "mul", "Multiplies, broadcast.", &st::mul);
  bind_binary(module, "div", "Divides, broadcast.", &st::div);
  bind_in_place(module, "add_", "Adds in place.", &st::add_);
  bind_in_place(module, "sub_", "Subtracts in place.", &st::sub_);
  bind_in_place(module, "mul_", "Multiplies in place.", &st::mul_);
  bind_in_place(module, "div_", "Divides in place.", &st::div_);
  const py::object type = module.attr("ShardedTensor");
  for (const auto& [method, function] :
       {std::pair("__add__", "add"), std::pair("__sub__", "sub"),
        std::pair("__mul__", "mul"), std::pair("__truediv__", "div")}) {
    py::setattr(
        type, method,
        py::reinterpret_steal<py::object>(
            PyInstanceMethod_New(module.attr(function).ptr())));
  }
}

using Unary = Tensor (*)(const Tensor&);

void bind_elementwise(py::module_& module) {
  const std::pair<const char*, Unary> unary[] = {
      {"gelu", &st::gelu},   {"relu", &st::relu},
      {"tanh", &st::tanh},   {"nan_to_num", &st::nan_to_num},
      {"clone", &st::clone}, {"detach", &st::detach}};
  for (const auto& [name, fn] : unary) {
    module.def(
        name, fn, py::arg("tensor"), NoGil(),
        text_of(
            "Does what torch does, shard by shard.", std::string(name) + "(t)")
            .c_str());
  }
  module.def(
      "dropout", &st::dropout, py::arg("tensor"), py::arg("p") = 0.5,
      py::arg("training") = true, NoGil(),
      text_of("Drops elements.", "dropout(t, 0.5)").c_str());
  module.def(
      "masked_fill",
      [](const Tensor& t, const ValueArg& mask, const ScalarArg& value) {
        return st::masked_fill(t, mask.value, value.value);
      },
      py::arg("tensor"), py::arg("mask"), py::arg("value"), NoGil(),
      text_of(
          "Fills where a mask is true.",
          "masked_fill(t, torch.ones(2, dtype=torch.bool), 0)")
          .c_str());
  module.def(
      "copy_", &st::copy_, py::arg("to"), py::arg("source"), NoGil(),
      text_of("Copies values.", "copy_(t, st.clone(t))").c_str());
  module.def(
      "requires_grad_", &st::requires_grad_, py::arg("tensor"),
      py::arg("value") = true,
      text_of("Sets whether gradients are kept.", "requires_grad_(t)").c_str());
  module.def(
      "type_as",
      [](const Tensor& t, const at::Tensor& like) {
        return st::type_as(t, like);
      },
      py::arg("tensor"), py::arg("other"), NoGil());
  module.def(
      "type_as",
      [](const Tensor& t, const Tensor& like) { return st::type_as(t, like); },
      py::arg("tensor"), py::arg("other"), NoGil(),
      text_of("Converts to the dtype of another.", "type_as(t, t)").c_str());
}

void bind_comparisons(py::module_& module) {
  module.def("equal", &st::equal, py::arg("a"), py::arg("b"), NoGil(), R"doc(
Compares sizes and values; the same answer on all ranks.

>>> st = tessera.sharded_tensor
>>> t = st.ones(st.ChunkShardingSpec(0, ["rank:0/cpu"]), 4)
>>> st.equal(t, t)
True)doc");
  module.def(
      "allclose", &st::allclose, py::arg("a"), py::arg("b"),
      py::arg("rtol") = 1e-5, py::arg("atol") = 1e-8,
      py::arg("equal_nan") = false, NoGil(), R"doc(
The same within a tolerance.

>>> st = tessera.sharded_tensor
>>> t = st.ones(st.ChunkShardingSpec(0, ["rank:0/cpu"]), 4)
>>> st.allclose(t, st.mul(t, 1 + 1e-7))
True)doc");
}

using Fill = Tensor (*)(const Tensor&, double, double, const st::FillOptions&);

st::FillOptions fill_options(bool local) {
  return {.mode = local ? st::InitMode::kLocal : st::InitMode::kGlobal};
}

void bind_fill(
    py::module_& module, const char* name, const char* what, double a, double b,
    const char* first, const char* second, Fill fn) {
  module.def(
      name,
      [fn](const Tensor& t, double x, double y, bool local) {
        return fn(t, x, y, fill_options(local));
      },
      py::arg("tensor"), py::arg(first) = a, py::arg(second) = b, py::kw_only(),
      py::arg("local") = false, NoGil(),
      text_of(what, std::string(name) + "(t)").c_str());
}

void bind_initialisation(py::module_& module) {
  bind_fill(
      module, "uniform_",
      "Draws from [a, b), as one rank would; with local=True each shard by "
      "itself.",
      0, 1, "a", "b", &st::uniform_);
  bind_fill(
      module, "normal_", "Draws from a normal distribution.", 0, 1, "mean",
      "std", &st::normal_);
  module.def(
      "constant_",
      [](const Tensor& t, const ScalarArg& v) {
        return st::constant_(t, v.value);
      },
      py::arg("tensor"), py::arg("value"), NoGil(),
      text_of("Fills with a value.", "constant_(t, 3)").c_str());
  module.def(
      "kaiming_uniform_",
      [](const Tensor& t, double a, bool local) {
        return st::kaiming_uniform_(t, a, fill_options(local));
      },
      py::arg("tensor"), py::arg("a") = 0.0, py::kw_only(),
      py::arg("local") = false, NoGil(),
      text_of("Draws as torch.nn.init.kaiming_uniform_.", "kaiming_uniform_(t)")
          .c_str());
}

using Like = Tensor (*)(const Tensor&, const st::LikeOptions&);

void bind_likes(py::module_& module) {
  const std::pair<const char*, Like> likes[] = {
      {"empty_like", &st::empty_like},
      {"zeros_like", &st::zeros_like},
      {"ones_like", &st::ones_like},
      {"rand_like", &st::rand_like},
      {"randn_like", &st::randn_like}};
  for (const auto& [name, fn] : likes) {
    module.def(
        name,
        [fn = fn](
            const Tensor& t, MaybeDtype dtype,
            std::optional<bool> requires_grad) {
          return fn(t, {.dtype = dtype, .requires_grad = requires_grad});
        },
        py::arg("tensor"), py::kw_only(), py::arg("dtype") = py::none(),
        py::arg("requires_grad") = py::none(), NoGil(),
        text_of("Makes one cut alike.", std::string(name) + "(t)").c_str());
  }
  module.def(
      "full_like",
      [](const Tensor& t, const ScalarArg& value, MaybeDtype dtype,
         std::optional<bool> requires_grad) {
        return st::full_like(
            t, value.value, {.dtype = dtype, .requires_grad = requires_grad});
      },
      py::arg("tensor"), py::arg("fill_value"), py::kw_only(),
      py::arg("dtype") = py::none(), py::arg("requires_grad") = py::none(),
      NoGil(), text_of("Makes one cut alike.", "full_like(t, 3)").c_str());
}

void bind_on_meshes(py::module_& module) {
  module.def(
      "linear",
      [](const ValueArg& x, const Tensor& weight, const ValueArg& bias) {
        return st::linear(x.value, weight, bias.value);
      },
      py::arg("input"), py::arg("weight"), py::arg("bias") = py::none(),
      NoGil(), R"doc(
Multiplies with a cut weight.

>>> st = tessera.sharded_tensor
>>> weight = st.ones(st.ChunkShardingSpec(0, ["rank:0/cpu"]), 4, 2)
>>> st.linear(torch.ones(3, 2), weight).size()
(3, 4))doc");
  module.def(
      "softmax", &st::softmax, py::arg("tensor"), py::arg("dim"), NoGil(),
      text_of("Softmax along a dim.", "softmax(t, 1)").c_str());
  module.def(
      "layer_norm",
      [](const Tensor& t, const Sizes& shape, const ValueArg& weight,
         const ValueArg& bias, double eps) {
        return st::layer_norm(t, shape, weight.value, bias.value, eps);
      },
      py::arg("tensor"), py::arg("normalized_shape"),
      py::arg("weight") = py::none(), py::arg("bias") = py::none(),
      py::arg("eps") = 1e-5, NoGil(),
      text_of("Normalises over the last dims.", "layer_norm(t, [2])").c_str());
  module.def("bmm", &st::bmm, py::arg("a"), py::arg("b"), NoGil(), R"doc(
Multiplies matrices of batches that are cut alike.

>>> st = tessera.sharded_tensor
>>> t = st.ones(st.ChunkShardingSpec(0, ["rank:0/cpu"]), 2, 3, 3)
>>> st.bmm(t, t).size()
(2, 3, 3))doc");
  module.def(
      "transpose", &st::transpose, py::arg("tensor"), py::arg("dim0"),
      py::arg("dim1"), NoGil(),
      text_of(
          "Swaps two dims, and the cut with them.",
          "transpose(st.transpose(t, 0, 1), 0, 1)")
          .c_str());
  module.def(
      "view", &st::view, py::arg("tensor"), py::arg("size"), NoGil(),
      text_of("Views it with other sizes.", "view(t, [4, 2])").c_str());
  module.def(
      "chunk", &st::chunk, py::arg("tensor"), py::arg("chunks"),
      py::arg("dim") = 0, NoGil(), R"doc(
Parts along a dim, each cut over the ranks.

>>> st = tessera.sharded_tensor
>>> t = st.ones(st.ChunkShardingSpec(0, ["rank:0/cpu"]), 4, 2)
>>> [part.size() for part in st.chunk(t, 2, dim=1)]
[(4, 1), (4, 1)])doc");
}

st::BagMode mode_of(const std::string& mode) {
  TORCH_CHECK_VALUE(
      mode == "sum" || mode == "mean" || mode == "max",
      "embedding_bag: the mode must be \"sum\", \"mean\" or \"max\"; got \"",
      mode, "\"");
  return mode == "sum"    ? st::BagMode::kSum
         : mode == "mean" ? st::BagMode::kMean
                          : st::BagMode::kMax;
}

void bind_tables(py::module_& module) {
  module.def(
      "embedding",
      [](const at::Tensor& ids, const Tensor& weight,
         std::optional<int64_t> padding_idx, std::optional<double> max_norm,
         double norm_type) {
        return st::embedding(
            ids, weight,
            {.padding_idx = padding_idx,
             .max_norm = max_norm,
             .norm_type = norm_type});
      },
      py::arg("input"), py::arg("weight"), py::arg("padding_idx") = py::none(),
      py::arg("max_norm") = py::none(), py::arg("norm_type") = 2.0, NoGil(),
      R"doc(
Returns the rows of this rank's ids, plain; ids may differ between ranks.

>>> st = tessera.sharded_tensor
>>> weight = st.ones(st.ChunkShardingSpec(0, ["rank:0/cpu"]), 4, 2)
>>> st.embedding(torch.tensor([3, 0, 1]), weight).shape
torch.Size([3, 2]))doc");
  module.def(
      "embedding_bag",
      [](const at::Tensor& ids, const Tensor& weight,
         const std::optional<at::Tensor>& offsets,
         std::optional<double> max_norm, double norm_type,
         const std::string& mode,
         const std::optional<at::Tensor>& per_sample_weights,
         bool include_last_offset, std::optional<int64_t> padding_idx) {
        return st::embedding_bag(
            ids, weight,
            {.mode = mode_of(mode),
             .offsets = offsets.value_or(at::Tensor()),
             .per_sample_weights = per_sample_weights.value_or(at::Tensor()),
             .include_last_offset = include_last_offset,
             .padding_idx = padding_idx,
             .max_norm = max_norm,
             .norm_type = norm_type});
      },
      py::arg("input"), py::arg("weight"), py::arg("offsets") = py::none(),
      py::kw_only(), py::arg("max_norm") = py::none(),
      py::arg("norm_type") = 2.0, py::arg("mode") = "mean",
      py::arg("per_sample_weights") = py::none(),
      py::arg("include_last_offset") = false,
      py::arg("padding_idx") = py::none(), NoGil(), R"doc(
Returns one row per bag of this rank's ids.

>>> st = tessera.sharded_tensor
>>> weight = st.ones(st.ChunkShardingSpec(0, ["rank:0/cpu"]), 4, 2)
>>> st.embedding_bag(torch.tensor([[3, 0], [1, 1]]), weight, mode="sum")[0]
tensor([2., 2.]))doc");
}

}  // namespace

void bind_sharded_tensor_ops(py::module_& module) {
  bind_arithmetic(module);
  bind_elementwise(module);
  bind_comparisons(module);
  bind_initialisation(module);
  bind_likes(module);
  bind_on_meshes(module);
  bind_tables(module);
  module.def(
      "dispatch",
      [](const std::string& op, const py::args& arguments) {
        std::vector<st::Value> values;
        for (const py::handle argument : arguments) {
          values.push_back(argument.cast<ValueArg>().value);
        }
        std::vector<st::Value> results;
        {
          const py::gil_scoped_release unlock;
          results = st::dispatch(op, values);
        }
        py::list objects;
        for (const st::Value& result : results) {
          objects.append(object_of(result));
        }
        return objects;
      },
      py::arg("op"), R"doc(
Calls any operator of LibTorch by its name; returns its results.

>>> st = tessera.sharded_tensor
>>> t = st.ones(st.ChunkShardingSpec(0, ["rank:0/cpu"]), 4, 2)
>>> st.dispatch("aten::exp", t)[0].size()
(4, 2))doc");
}

}  // namespace tessera::python
