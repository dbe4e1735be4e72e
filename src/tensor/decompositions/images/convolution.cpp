// Convolutions, also transposed ones, over sharded spatial dims: ranks send
// each other the rows that their windows read beyond their own, and convolve
// what they have. The gradient of those rows travels back and is added where
// they are held.
#include <algorithm>
#include <functional>
#include <tuple>

#include <ATen/ops/cat.h>
#include <ATen/ops/constant_pad_nd.h>
#include <ATen/ops/convolution.h>
#include <ATen/ops/convolution_backward.h>
#include <ATen/ops/empty.h>
#include <ATen/ops/zeros.h>
#include <c10/util/accumulate.h>
#include <tensor/decompositions/images/channel_slices.h>
#include <tensor/decompositions/images/sharded_convolution.h>
#include <tensor/decompositions/table.h>
#include <tensor/state/replicated.h>

namespace tessera::detail::inline tensor_layer {

namespace {

bool is_zero(const std::vector<int64_t>& pads) {
  return std::all_of(
      pads.begin(), pads.end(), [](int64_t pad) { return pad == 0; });
}

at::Tensor padded_by(const at::Tensor& t, const std::vector<int64_t>& pads) {
  return is_zero(pads) ? t : at::constant_pad_nd(t, pads);
}

// This rank's shard of the result.
at::Tensor convolve(
    const DecomposedCall& decomposed, const ShardedConvolution& conv,
    const at::Tensor& x, const at::Tensor& w, const at::Tensor& b) {
  const ConvArguments& a = conv.arguments;
  const Halo halo = conv.windows.halo(decomposed);
  const at::Tensor padded = halo.gather(x, conv.windows.group(decomposed));
  const auto bias = b.defined() ? std::optional<at::Tensor>(b) : std::nullopt;
  const std::vector<int64_t>& shape = conv.windows.result()->local_shape();
  if (padded.numel() == 0 || c10::multiply_integers(shape) == 0) {
    const at::Tensor zeros = at::zeros(shape, x.options());
    std::vector<int64_t> of_channels(shape.size(), 1);
    of_channels[1] = a.channels();
    return bias ? zeros.add_(b.view(of_channels)) : zeros;
  }
  if (!a.transposed) {
    std::vector<at::Tensor> channels;
    for (const Run& run : channel_slices(padded, w, a.groups)) {
      const auto slice = [&](const at::Tensor& t) {
        return t.narrow(0, run.begin, run.length());
      };
      channels.push_back(at::convolution(
          padded, slice(w), bias ? std::optional(slice(*bias)) : bias, a.stride,
          conv.local(a.padding), a.dilation, false, a.output_padding,
          a.groups));
    }
    return channels.size() == 1 ? channels[0] : at::cat(channels, 1);
  }
  // Rows that no window reaches have the bias as well.
  const at::Tensor y = padded_by(
      at::convolution(
          padded, w, std::nullopt, a.stride, conv.local(a.padding), a.dilation,
          true, conv.local(a.output_padding), a.groups),
      conv.pads_to_result(halo, decomposed.coordinate()));
  std::vector<int64_t> of_channels(shape.size(), 1);
  of_channels[1] = a.channels();
  return bias ? y.add(b.view(of_channels)) : y;
}

void convolution(const OpCall& call) {
  DecomposedCall decomposed(call);
  const ShardedConvolution conv(decomposed);
  conv.windows.announce(decomposed, "input");
  const Placements unsharded = replicated(decomposed.mesh());
  const at::Tensor x = decomposed.shard(
      "input", decomposed.tensor("input"), conv.windows.operand_placements());
  const at::Tensor w =
      decomposed.shard("weight", decomposed.tensor("weight"), unsharded);
  const at::Tensor b =
      decomposed.shard("bias", decomposed.optional_tensor("bias"), unsharded);
  decomposed.finish({decomposed.wrap(conv.windows.result(), [&] {
    return convolve(decomposed, conv, x, w, b);
  })});
}

// This rank's gradients: of what its results read, and partial values of the
// others.
struct LocalGradients {
  at::Tensor input, weight, bias;
};

LocalGradients local_gradients(
    const DecomposedCall& decomposed, const ShardedConvolution& conv,
    const Halo& halo, const at::Tensor& gradient, const at::Tensor& padded,
    const at::Tensor& weight, std::array<bool, 3> mask) {
  const ConvArguments& a = conv.arguments;
  LocalGradients local;
  if (mask[2]) {
    std::vector<int64_t> dims{0};
    for (int64_t d = kFirstSpatialDim; d < gradient.dim(); ++d) {
      dims.push_back(d);
    }
    local.bias = gradient.sum(dims);
    mask[2] = false;
  }
  if (padded.numel() == 0 || gradient.numel() == 0) {
    local.input = at::zeros(padded.sizes(), padded.options());
    local.weight = at::zeros(weight.sizes(), weight.options());
    return local;
  }
  at::Tensor g = gradient;
  if (a.transposed) {
    std::vector<int64_t> pads =
        conv.pads_to_result(halo, decomposed.coordinate());
    std::transform(pads.begin(), pads.end(), pads.begin(), std::negate<>());
    g = padded_by(g, pads);
  }
  const std::vector<Run> slices =
      a.transposed ? std::vector<Run>{{0, weight.size(0)}}
                   : channel_slices(padded, weight, a.groups);
  const auto gradients = [&](const at::Tensor& of_result, const at::Tensor& w) {
    return at::convolution_backward(
        of_result, padded, w, at::OptionalIntArrayRef(), a.stride,
        conv.local(a.padding), a.dilation, a.transposed,
        conv.local(a.output_padding), a.groups, mask);
  };
  if (slices.size() == 1) {
    std::tie(local.input, local.weight, std::ignore) = gradients(g, weight);
    return local;
  }
  local.weight =
      mask[1] ? at::empty(weight.sizes(), weight.options()) : at::Tensor();
  for (const Run& run : slices) {
    const auto [of_input, of_weight, none] = gradients(
        g.narrow(1, run.begin, run.length()),
        weight.narrow(0, run.begin, run.length()));
    if (mask[0]) {
      local.input =
          local.input.defined() ? local.input.add_(of_input) : of_input;
    }
    if (mask[1]) {
      local.weight.narrow(0, run.begin, run.length()).copy_(of_weight);
    }
  }
  return local;
}

void convolution_backward(const OpCall& call) {
  DecomposedCall decomposed(call);
  const ShardedConvolution conv(decomposed);
  const auto list = decomposed.argument("output_mask").toBoolList();
  const std::array<bool, 3> mask{list[0], list[1], list[2]};
  // The input for the weight, and gradients of it back.
  conv.windows.announce(
      decomposed, "input", (mask[0] ? 1 : 0) + (mask[1] ? 1 : 0));
  const Placements unsharded = replicated(decomposed.mesh());
  const at::Tensor g = decomposed.shard(
      "grad_output", decomposed.tensor("grad_output"),
      conv.windows.result()->placements());
  const at::Tensor x = decomposed.shard(
      "input", decomposed.tensor("input"), conv.windows.operand_placements());
  const at::Tensor w =
      decomposed.shard("weight", decomposed.tensor("weight"), unsharded);
  LocalGradients local;
  if (decomposed.computes()) {
    const Halo halo = conv.windows.halo(decomposed);
    const Communicator group = conv.windows.group(decomposed);
    // Only the weight's gradient reads values of the input.
    const at::Tensor padded = mask[1]
                                  ? halo.gather(x, group)
                                  : at::zeros(halo.padded_shape(), x.options());
    local = local_gradients(decomposed, conv, halo, g, padded, w, mask);
    if (mask[0]) {
      local.input = halo.scatter_sum(local.input, group);
    }
  }
  Placements partial_placements = conv.windows.operand_placements();
  for (Placement& p : partial_placements) {
    p = p.is_shard() ? Partial() : p;
  }
  const auto wrap_partial = [&](const at::Tensor& t,
                                std::vector<int64_t> shape) {
    return decomposed.wrap(
        DTensorSpec::make(
            decomposed.mesh(), partial_placements, shape,
            conv.windows.operand()->dtype()),
        [&] { return t; });
  };
  std::vector<c10::IValue> results(3, at::Tensor());
  if (mask[0]) {
    results[0] =
        decomposed.wrap(conv.windows.operand(), [&] { return local.input; });
  }
  if (mask[1]) {
    results[1] = wrap_partial(local.weight, conv.arguments.shape);
  }
  if (mask[2]) {
    results[2] = wrap_partial(local.bias, {conv.arguments.channels()});
  }
  decomposed.finish(std::move(results));
}

// A weight, or a bias, that is gathered: nothing else could be done with mesh
// dims that cut the images, and these are larger.
bool is_gathered_beside(const Operand& weight, const Operand& input) {
  if (!weight.defined || !shards_any(*weight.placements)) {
    return true;
  }
  for (size_t m = 0; m < input.placements->size(); ++m) {
    if ((*weight.placements)[m].is_shard() &&
        !(*input.placements)[m].is_shard()) {
      return false;
    }
  }
  return c10::multiply_integers(weight.shape) <
         c10::multiply_integers(input.shape);
}

bool has_sharded_input(
    const RuleCall& call, const Operand& input, const Operand& weight) {
  if (input.ndim() < 3 || weight.ndim() != input.ndim() ||
      !is_gathered_beside(weight, input) || !shards_any(*input.placements) ||
      !mesh_dims_of_shards(*input.placements, 1).empty()) {
    return false;
  }
  const ConvArguments arguments(
      [&](const char* name) { return call.integers(name); }, weight.shape,
      call.boolean("transposed"), call.integer("groups"));
  const std::vector<int64_t> result = arguments.result_shape(input.shape.vec());
  for (size_t d = 2; d < weight.shape.size(); ++d) {
    if (arguments.along(d).stride < 1 || result[d] < 1) {
      return false;  // ATen says what is wrong
    }
  }
  return true;
}

bool convolution_is_sharded(const RuleCall& call) {
  return has_sharded_input(call, call.operand(0), call.operand(1)) &&
         is_gathered_beside(call.operand(2), call.operand(0));
}
bool convolution_backward_is_sharded(const RuleCall& call) {
  return has_sharded_input(call, call.operand(1), call.operand(2));
}
bool convolution_is_wanted(const RuleCall& call, const MeshShape& mesh) {
  return wants_windowed_call(call.operand(0), kFirstSpatialDim, mesh);
}
bool convolution_backward_is_wanted(
    const RuleCall& call, const MeshShape& mesh) {
  return wants_windowed_call(call.operand(1), kFirstSpatialDim, mesh);
}

}  // namespace

void add_convolution_decompositions(OpRegistry& ops) {
  ops.at("aten::convolution").decomposition = {
      convolution_is_sharded, convolution, convolution_is_wanted};
  ops.at("aten::convolution_backward").decomposition = {
      convolution_backward_is_sharded, convolution_backward,
      convolution_backward_is_wanted};
}

}  // namespace tessera::detail::inline tensor_layer
