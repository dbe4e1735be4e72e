#include <tensor/run/local_lookup.h>

#include <ATen/ops/_embedding_bag.h>
#include <ATen/ops/add.h>
#include <ATen/ops/clamp_min.h>
#include <ATen/ops/div.h>
#include <ATen/ops/eq.h>
#include <ATen/ops/gather.h>
#include <ATen/ops/ge.h>
#include <ATen/ops/index_select.h>
#include <ATen/ops/logical_and.h>
#include <ATen/ops/logical_not.h>
#include <ATen/ops/lt.h>
#include <ATen/ops/mul.h>
#include <ATen/ops/ne.h>
#include <ATen/ops/sub.h>
#include <ATen/ops/where.h>
#include <ATen/ops/zeros.h>
#include <ATen/ops/zeros_like.h>
#include <c10/util/Exception.h>

namespace tessera::detail::inline tensor_layer {

namespace {

// A lookup in dim `dim` of a table; `index` has global indices.
struct Lookup {
  at::Tensor table;
  at::Tensor index;
  int64_t dim = 0;
  bool elementwise = false;  // gather: the index has the table's dims
  bool may_count_back = false;
};

int64_t dim_argument(const OpCall& call) {
  const int64_t dim = call.argument(1).toInt();
  return dim < 0 ? dim + call.argument(0).toTensor().dim() : dim;
}

Lookup read_lookup(const OpCall& call) {
  Lookup lookup;
  lookup.table = call.argument(0).toTensor();
  const std::string& name = call.schema().name();
  if (name == "aten::embedding") {
    lookup.index = call.argument(1).toTensor();
  } else if (name == "aten::gather" || name == "aten::index_select") {
    lookup.dim = dim_argument(call);
    lookup.index = call.argument(2).toTensor();
    lookup.elementwise = name == "aten::gather";
    if (!lookup.elementwise) {
      lookup.index = lookup.index.reshape({-1});
    }
  } else {
    TORCH_INTERNAL_ASSERT(
        name == "aten::index" || name == "aten::_unsafe_index", name);
    const auto& indices = call.argument(1).toListRef();
    for (size_t d = 0; d < indices.size(); ++d) {
      if (indices[d].isTensor() && indices[d].toTensor().defined()) {
        lookup.dim = static_cast<int64_t>(d);
        lookup.index = indices[d].toTensor();
      }
    }
    lookup.may_count_back = true;
  }
  return lookup;
}

// A rank alone would not notice an index that no rank holds. Reading a value
// back from a device would wait for it, so only the CPU is asked.
void check_range(const Lookup& lookup, const OpCall& call, int64_t size) {
  if (!lookup.index.device().is_cpu() || lookup.index.numel() == 0) {
    return;
  }
  const auto least = lookup.index.min().item<int64_t>();
  const auto most = lookup.index.max().item<int64_t>();
  const int64_t lowest = lookup.may_count_back ? -size : 0;
  TORCH_CHECK_INDEX(
      least >= lowest && most < size, full_name(call.op().operator_name()),
      ": indices must be in ", lowest, " .. ", size - 1, "; got ", least,
      " .. ", most);
}

struct Found {
  at::Tensor position;  // in the shard; 0 where the index is not held
  at::Tensor held;
};

Found find(const at::Tensor& index, const Runs& runs) {
  Found found{
      at::zeros_like(index),
      at::zeros_like(index, index.options().dtype(at::kBool))};
  int64_t before = 0;  // indices in earlier runs
  for (const Run& run : runs) {
    const at::Tensor inside =
        at::logical_and(index.ge(run.begin), index.lt(run.end));
    found.position =
        at::where(inside, index.sub(run.begin - before), found.position);
    found.held.logical_or_(inside);
    before += run.length();
  }
  return found;
}

std::vector<int64_t> result_shape(const Lookup& lookup) {
  if (lookup.elementwise) {
    return lookup.index.sizes().vec();
  }
  std::vector<int64_t> shape = lookup.table.sizes().vec();
  const auto at = shape.begin() + lookup.dim;
  const at::IntArrayRef index = lookup.index.sizes();
  shape.insert(shape.erase(at), index.begin(), index.end());
  return shape;
}

at::Tensor pick(const Lookup& lookup, const at::Tensor& position) {
  if (lookup.elementwise) {
    return at::gather(lookup.table, lookup.dim, position);
  }
  return at::index_select(lookup.table, lookup.dim, position.reshape({-1}))
      .reshape(result_shape(lookup));
}

// The mask of the index as one that broadcasts to the result.
at::Tensor mask_of(const Lookup& lookup, const at::Tensor& missing) {
  std::vector<int64_t> shape = missing.sizes().vec();
  if (!lookup.elementwise) {
    shape.insert(
        shape.end(), static_cast<size_t>(lookup.table.dim() - lookup.dim - 1),
        1);
  }
  return missing.reshape(shape);
}

}  // namespace

void local_lookup(const LocalKernelCall& local) {
  Lookup lookup = read_lookup(local.call);
  const Layout& table = local.operands[0];
  const int64_t size = table.shape()[static_cast<size_t>(lookup.dim)];
  check_range(lookup, local.call, size);
  if (lookup.may_count_back) {
    lookup.index =
        at::where(lookup.index.lt(0), lookup.index.add(size), lookup.index);
  }
  const Runs runs = table.runs(lookup.dim, local.coordinate);
  if (runs.empty()) {
    finish_local(
        local.call, at::zeros(result_shape(lookup), lookup.table.options()));
    return;
  }
  const Found found = find(lookup.index, runs);
  const at::Tensor result = pick(lookup, found.position);
  finish_local(
      local.call,
      result.masked_fill(mask_of(lookup, found.held.logical_not()), 0));
}

namespace {

// The arguments of aten::_embedding_bag and _embedding_bag_forward_only.
struct Bags {
  at::Tensor table, index, offsets;
  int64_t mode;
  std::optional<at::Tensor> weights;  // of samples
  bool include_last_offset;
  int64_t padding;
};

constexpr int64_t kSumMode = 0;
constexpr int64_t kMeanMode = 1;

Bags read_bags(const OpCall& call) {
  const c10::IValue& weights = call.argument(6);
  return {
      call.argument(0).toTensor(),
      call.argument(1).toTensor(),
      call.argument(2).toTensor(),
      call.argument(4).toInt(),
      weights.isTensor() && weights.toTensor().defined()
          ? std::optional<at::Tensor>(weights.toTensor())
          : std::nullopt,
      call.argument(7).toBool(),
      call.argument(8).toInt()};
}

// What backward wants to know about the bags depends on which indices are
// padding and on no other value, so a table of two rows gives it.
std::tuple<at::Tensor, at::Tensor, at::Tensor> about_bags(const Bags& bags) {
  const at::Tensor rows =
      bags.index.eq(bags.padding).to(bags.index.scalar_type());
  const auto [out, bag_of, sizes, maxima] = at::_embedding_bag(
      at::zeros({2, 1}, bags.table.options()), rows, bags.offsets, false,
      bags.mode, false, bags.weights, bags.include_last_offset,
      bags.padding < 0 ? -1 : 1);
  return {bag_of, sizes, maxima};
}

// A sample that another rank holds, or that is padding, weighs nothing.
at::Tensor sums_of_bags(const Bags& bags, const Runs& runs) {
  const Found found = find(bags.index, runs);
  at::Tensor weights = at::logical_and(found.held, bags.index.ne(bags.padding))
                           .to(bags.table.scalar_type());
  if (bags.weights) {
    weights = weights.mul(*bags.weights);
  }
  const bool is_empty = bags.table.size(0) == 0;
  return std::get<0>(at::_embedding_bag(
      is_empty ? at::zeros({1, bags.table.size(1)}, bags.table.options())
               : bags.table,
      found.position, bags.offsets, false, kSumMode, false, weights,
      bags.include_last_offset, -1));
}

}  // namespace

void local_bags(const LocalKernelCall& local) {
  const Bags bags = read_bags(local.call);
  const Layout& table = local.operands[0];
  Lookup lookup;
  lookup.index = bags.index;
  check_range(lookup, local.call, table.shape()[0]);
  const auto [bag_of, sizes, maxima] = about_bags(bags);
  at::Tensor sums = sums_of_bags(bags, table.runs(0, local.coordinate));
  if (bags.mode == kMeanMode) {
    sums = sums.div(sizes.clamp_min(1).unsqueeze(1));
  }
  torch::jit::Stack& stack = *local.call.stack();
  torch::jit::drop(stack, local.call.size());
  torch::jit::push(stack, sums, bag_of, sizes, maxima);
}

void local_convolution(const LocalKernelCall& local) {
  const OpCall& call = local.call;
  const c10::FunctionSchema& schema = call.schema();
  const auto bias_sizes = schema.argumentIndexWithName("bias_sizes");
  const bool backward = schema.argumentIndexWithName("grad_output").has_value();
  const Layout& input = local.operands[backward ? 1 : 0];
  if (const auto at = schema.argumentIndexWithName("groups")) {
    c10::IValue& groups = call.argument(static_cast<size_t>(*at));
    const int64_t here = input.local_shape(local.coordinate)[1];
    // Channels are cut between groups only where every channel is one.
    if (groups.toInt() > 1) {
      groups = groups.toInt() * here / input.shape()[1];
    }
  }
  if (bias_sizes) {
    c10::IValue& sizes = call.argument(static_cast<size_t>(*bias_sizes));
    if (!sizes.isNone()) {
      sizes = std::vector<int64_t>{
          local.operands[0].local_shape(local.coordinate)[1]};
    }
  }
  call.op().callBoxed(call.stack());
}

}  // namespace tessera::detail::inline tensor_layer
