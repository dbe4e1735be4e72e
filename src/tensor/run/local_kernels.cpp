#include <tensor/run/local_kernels.h>

#include <algorithm>
#include <limits>
#include <optional>

#include <ATen/ops/constant_pad_nd.h>
#include <ATen/ops/full.h>
#include <ATen/ops/sum.h>
#include <c10/util/Exception.h>
#include <rules/rule_entry.h>
#include <tensor/call/local_kernel.h>
#include <tensor/run/local_lookup.h>
#include <tensor/run/local_views.h>
#include <tensor/state/value_limits.h>

namespace tessera::detail::inline tensor_layer {

namespace {

// The dims that a reduction names; all where it names none.
std::vector<bool> reduced_dims(const OpCall& call, int64_t ndim) {
  const torch::jit::Stack& stack = *call.stack();
  const RuleCall rule_call(
      call.schema(),
      c10::ArrayRef<c10::IValue>(
          stack.data() + stack.size() - call.size(), call.size()),
      {});
  return named_dims(rule_call, ndim);
}

bool is_true(const OpCall& call, const char* name) {
  const auto number = call.schema().argumentIndexWithName(name);
  return number && call.argument(static_cast<size_t>(*number)).isBool() &&
         call.argument(static_cast<size_t>(*number)).toBool();
}

std::optional<c10::ScalarType> dtype_argument(const OpCall& call) {
  const auto number = call.schema().argumentIndexWithName("dtype");
  if (!number || call.argument(static_cast<size_t>(*number)).isNone()) {
    return std::nullopt;
  }
  return call.argument(static_cast<size_t>(*number)).toScalarType();
}

// The sum of a part over the number of all elements: a partial value of the
// mean.
void mean_kernel(const LocalKernelCall& local) {
  const OpCall& call = local.call;
  const std::vector<int64_t>& shape = local.operands[0].shape();
  const at::Tensor self = call.argument(0).toTensor();
  const std::vector<bool> reduced = reduced_dims(call, self.dim());
  std::vector<int64_t> dims;
  int64_t count = 1;
  for (size_t d = 0; d < shape.size(); ++d) {
    if (reduced[d]) {
      dims.push_back(static_cast<int64_t>(d));
      count *= shape[d];
    }
  }
  // As ATen does, halves are added up in single precision.
  const c10::ScalarType dtype =
      dtype_argument(call).value_or(self.scalar_type());
  const bool half = dtype == at::kHalf || dtype == at::kBFloat16;
  const at::Tensor sum =
      at::sum(self, dims, is_true(call, "keepdim"), half ? at::kFloat : dtype);
  finish_local(call, sum.div(count).to(dtype));
}

// What a reduction of no elements must give so that others decide.
at::Scalar identity_of(const OpCall& call, c10::ScalarType dtype) {
  const std::string& name = call.op().operator_name().name;
  if (name.find("norm") != std::string::npos) {
    const auto number = call.schema().argumentIndexWithName("ord");
    const auto other = call.schema().argumentIndexWithName("p");
    const auto at = static_cast<size_t>(number ? *number : other.value());
    const bool smallest = call.argument(at).isScalar() &&
                          call.argument(at).toScalar().toDouble() < 0;
    return smallest ? std::numeric_limits<double>::infinity() : 0.0;
  }
  const bool wants_max = name.find("max") != std::string::npos;
  return wants_max ? smallest_value(dtype) : largest_value(dtype);
}

// A reduction that ATen refuses over no elements.
void identity_kernel(const LocalKernelCall& local) {
  const OpCall& call = local.call;
  const at::Tensor self = call.argument(0).toTensor();
  const std::vector<bool> reduced = reduced_dims(call, self.dim());
  const bool keeps = is_true(call, "keepdim");
  bool empty = false;
  std::vector<int64_t> shape;
  for (int64_t d = 0; d < self.dim(); ++d) {
    if (!reduced[static_cast<size_t>(d)]) {
      shape.push_back(self.size(d));
    } else {
      empty = empty || self.size(d) == 0;
      if (keeps) {
        shape.push_back(1);
      }
    }
  }
  if (!empty) {
    return call.op().callBoxed(call.stack());
  }
  const c10::ScalarType dtype =
      dtype_argument(call).value_or(self.scalar_type());
  finish_local(
      call,
      at::full(shape, identity_of(call, dtype), self.options().dtype(dtype)));
}

// Devices multiply 8-bit floats in blocks of this many elements.
constexpr int64_t kScaledBlock = 16;

// Fills rows up to whole blocks, at least one: zeros add nothing to a product.
at::Tensor in_blocks(const at::Tensor& rows) {
  const int64_t length = rows.size(1);
  const int64_t wanted =
      std::max((length + kScaledBlock - 1) / kScaledBlock, int64_t{1}) *
      kScaledBlock;
  return length == wanted ? rows.contiguous()
                          : at::constant_pad_nd(rows, {0, wanted - length});
}

// A product of parts of rows and columns, whatever their length: the left
// factor lies by rows, the right one by columns.
void scaled_product_kernel(const LocalKernelCall& local) {
  const OpCall& call = local.call;
  call.argument(0) = in_blocks(call.argument(0).toTensor());
  call.argument(1) = in_blocks(call.argument(1).toTensor().t()).t();
  call.op().callBoxed(call.stack());
}

}  // namespace

void add_local_kernels(OpRegistry& ops) {
  const auto add = [&](RunBy by, LocalKernel kernel) {
    ops.local_kernels[static_cast<size_t>(by)] = kernel;
  };
  add(RunBy::kMean, mean_kernel);
  add(RunBy::kIdentity, identity_kernel);
  add(RunBy::kLookup, local_lookup);
  add(RunBy::kBags, local_bags);
  add(RunBy::kConvolution, local_convolution);
  add(RunBy::kSqueeze, local_squeeze);
  add(RunBy::kScaledProduct, scaled_product_kernel);
  add(RunBy::kSelect, local_select);
  add(RunBy::kSplit, local_split);
  add(RunBy::kTriangle, local_triangle);
  add(RunBy::kTrace, local_trace);
  add(RunBy::kUnbind, local_unbind);
}

}  // namespace tessera::detail::inline tensor_layer
