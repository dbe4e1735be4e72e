// Convolution over a cut spatial dim: ranks send each other the rows that their
// windows read beyond their own, and convolve what they have. The gradient of
// those rows travels back and is added where they are held.
#include <ATen/ops/convolution.h>
#include <ATen/ops/convolution_backward.h>
#include <ATen/ops/zeros.h>
#include <c10/util/accumulate.h>
#include <tensor/decompositions/decomposed_call.h>
#include <tensor/decompositions/halo.h>
#include <tensor/decompositions/table.h>
#include <tensor/state/replicated.h>

namespace tessera::detail::inline tensor_layer {

namespace {

// One number for all spatial dims, or one for each.
std::vector<int64_t> per_dim(std::vector<int64_t> list, size_t ndim) {
  return list.size() == 1 ? std::vector<int64_t>(ndim - 2, list[0]) : list;
}

// The static arguments, one number per spatial dim.
struct Windows {
  template <class Get>
  Windows(const Get& get, c10::IntArrayRef weight)
      : shape(weight.vec()),
        stride(per_dim(get("stride"), weight.size())),
        padding(per_dim(get("padding"), weight.size())),
        dilation(per_dim(get("dilation"), weight.size())) {}

  Window along(size_t dim) const {
    return {shape[dim], stride[dim - 2], padding[dim - 2], dilation[dim - 2]};
  }

  std::vector<int64_t> shape;  // of the weight
  std::vector<int64_t> stride;
  std::vector<int64_t> padding;
  std::vector<int64_t> dilation;
};

// The mesh dim that cuts a spatial dim; -1 where none does, or where another
// cut than that of the batch is in the way.
int64_t sharded_spatial_dim(const Placements& placements) {
  int64_t found = -1;
  for (size_t m = 0; m < placements.size(); ++m) {
    const Placement& p = placements[m];
    if (!p.is_shard() || p.dim() == 0) {
      continue;
    }
    if (found >= 0 || p.dim() == 1 || !p.is_contiguous()) {
      return -1;
    }
    found = static_cast<int64_t>(m);
  }
  return found;
}

Run run_at(const DTensorSpec& spec, int64_t dim, int64_t m, int64_t c) {
  std::vector<int64_t> coordinate(static_cast<size_t>(spec.mesh().ndim()), 0);
  coordinate[static_cast<size_t>(m)] = c;
  const Runs runs = spec.layout().runs(dim, coordinate);
  return runs.empty() ? Run{0, 0} : runs[0];
}

// A convolution whose input is cut along one spatial dim.
struct ShardedConvolution {
  explicit ShardedConvolution(const DecomposedCall& decomposed)
      : windows(
            [&](const char* name) {
              return decomposed.argument(name).toIntVector();
            },
            decomposed.tensor("weight").sizes()) {
    const SpecPtr given = decomposed.spec(decomposed.tensor("input"));
    input = given->contiguous(
        without_partials(given->placements()), given->dtype());
    mesh_dim = sharded_spatial_dim(input->placements());
    Placements placements = input->placements();
    Placement& p = placements[static_cast<size_t>(mesh_dim)];
    dim = p.dim();
    p = Shard(dim);
    std::vector<int64_t> shape = input->shape();
    shape[1] = windows.shape[0];
    for (size_t d = 2; d < shape.size(); ++d) {
      shape[d] = windows.along(d).count(shape[d]);
    }
    // As kernels choose, by either operand.
    const SpecPtr weight = decomposed.spec(decomposed.tensor("weight"));
    output = in_format_of(
        *DTensorSpec::make(
            decomposed.mesh(), placements, shape, given->dtype()),
        is_channels_last(*given) ? *given : *weight);
    input = in_format_of(*input, *output);
  }

  Halo halo_at(int64_t coordinate) const {
    std::vector<Run> held, of_output;
    for (int64_t c = 0; c < input->mesh().mesh_shape().size(mesh_dim); ++c) {
      held.push_back(run_at(*input, dim, mesh_dim, c));
      of_output.push_back(run_at(*output, dim, mesh_dim, c));
    }
    const auto d = static_cast<size_t>(dim);
    return Halo(
        std::move(held), std::move(of_output), windows.along(d),
        input->shape()[d], coordinate);
  }
  Halo halo(const DecomposedCall& decomposed) const {
    return halo_at(decomposed.coordinate()[static_cast<size_t>(mesh_dim)]);
  }

  // Bytes of the rows that the rank at a coordinate of the mesh sends or
  // receives, whichever is more.
  int64_t bytes_at(const std::vector<int64_t>& coordinate) const {
    std::vector<int64_t> shape = input->layout().local_shape(coordinate);
    shape[static_cast<size_t>(dim)] = 1;
    return halo_at(coordinate[static_cast<size_t>(mesh_dim)]).rows_moved() *
           c10::multiply_integers(shape) *
           static_cast<int64_t>(c10::elementSize(input->dtype()));
  }

  // Says which rows are about to be exchanged, `times` times.
  void announce(
      const DecomposedCall& decomposed, const char* argument,
      int64_t times) const {
    if (times > 0) {
      decomposed.announce_exchange(
          argument, input, mesh_dim,
          [&](const std::vector<int64_t>& at) { return times * bytes_at(at); });
    }
  }

  Communicator group(const DecomposedCall& decomposed) const {
    return decomposed.mesh().communicator(mesh_dim);
  }

  // The padding of the call on padded rows.
  std::vector<int64_t> local_padding() const {
    std::vector<int64_t> padding = windows.padding;
    padding[static_cast<size_t>(dim - 2)] = 0;
    return padding;
  }

  Windows windows;
  SpecPtr input;
  SpecPtr output;
  int64_t mesh_dim = 0;
  int64_t dim = 0;
};

void convolution(const OpCall& call) {
  DecomposedCall decomposed(call);
  const ShardedConvolution conv(decomposed);
  conv.announce(decomposed, "input", 1);
  const Placements unsharded = replicated(decomposed.mesh());
  const at::Tensor x = decomposed.shard(
      "input", decomposed.tensor("input"), conv.input->placements());
  const at::Tensor w =
      decomposed.shard("weight", decomposed.tensor("weight"), unsharded);
  const at::Tensor b =
      decomposed.shard("bias", decomposed.optional_tensor("bias"), unsharded);
  decomposed.finish({decomposed.wrap(conv.output, [&] {
    const at::Tensor padded =
        conv.halo(decomposed).gather(x, conv.dim, conv.group(decomposed));
    if (padded.size(conv.dim) == 0) {
      return at::zeros(conv.output->local_shape(), x.options());
    }
    return at::convolution(
        padded, w, b.defined() ? std::optional<at::Tensor>(b) : std::nullopt,
        conv.windows.stride, conv.local_padding(), conv.windows.dilation,
        /*transposed=*/false,
        decomposed.argument("output_padding").toIntVector(),
        decomposed.argument("groups").toInt());
  })});
}

// This rank's gradients: of its padded rows, and partial values of the others.
struct LocalGradients {
  at::Tensor input, weight, bias;
};

LocalGradients local_gradients(
    const DecomposedCall& decomposed, const ShardedConvolution& conv,
    const at::Tensor& gradient, const at::Tensor& padded,
    const at::Tensor& weight, const std::array<bool, 3>& mask) {
  if (padded.size(conv.dim) == 0) {
    return {
        at::zeros(padded.sizes(), padded.options()),
        at::zeros(weight.sizes(), weight.options()),
        at::zeros({weight.size(0)}, weight.options())};
  }
  auto [input, of_weight, bias] = at::convolution_backward(
      gradient, padded, weight, at::IntArrayRef({weight.size(0)}),
      conv.windows.stride, conv.local_padding(), conv.windows.dilation,
      /*transposed=*/false, decomposed.argument("output_padding").toIntVector(),
      decomposed.argument("groups").toInt(), mask);
  return {input, of_weight, bias};
}

void convolution_backward(const OpCall& call) {
  DecomposedCall decomposed(call);
  const ShardedConvolution conv(decomposed);
  const auto list = decomposed.argument("output_mask").toBoolList();
  const std::array<bool, 3> mask{list[0], list[1], list[2]};
  // Rows of the input for the weight, and their gradients back.
  conv.announce(decomposed, "input", (mask[0] ? 1 : 0) + (mask[1] ? 1 : 0));
  const Placements unsharded = replicated(decomposed.mesh());
  const at::Tensor g = decomposed.shard(
      "grad_output", decomposed.tensor("grad_output"),
      conv.output->placements());
  const at::Tensor x = decomposed.shard(
      "input", decomposed.tensor("input"), conv.input->placements());
  const at::Tensor w =
      decomposed.shard("weight", decomposed.tensor("weight"), unsharded);
  LocalGradients local;
  if (decomposed.computes()) {
    const Halo halo = conv.halo(decomposed);
    // Only the weight's gradient reads values of the input.
    std::vector<int64_t> shape = x.sizes().vec();
    shape[static_cast<size_t>(conv.dim)] = halo.padded_rows();
    const at::Tensor padded =
        mask[1] ? halo.gather(x, conv.dim, conv.group(decomposed))
                : at::zeros(shape, x.options());
    local = local_gradients(decomposed, conv, g, padded, w, mask);
    if (mask[0]) {
      local.input =
          halo.scatter_sum(local.input, conv.dim, conv.group(decomposed));
    }
  }
  Placements partial_placements = conv.input->placements();
  for (Placement& p : partial_placements) {
    p = p.is_shard() ? Partial() : p;
  }
  const auto wrap_partial = [&](const at::Tensor& t,
                                std::vector<int64_t> shape) {
    return decomposed.wrap(
        DTensorSpec::make(
            decomposed.mesh(), partial_placements, shape, conv.input->dtype()),
        [&] { return t; });
  };
  std::vector<c10::IValue> results(3, at::Tensor());
  if (mask[0]) {
    results[0] = decomposed.wrap(conv.input, [&] { return local.input; });
  }
  if (mask[1]) {
    results[1] = wrap_partial(local.weight, conv.windows.shape);
  }
  if (mask[2]) {
    results[2] = wrap_partial(local.bias, {conv.windows.shape[0]});
  }
  decomposed.finish(std::move(results));
}

bool is_unsharded(const Operand& operand) {
  return !operand.defined || !shards_any(*operand.placements);
}

bool has_sharded_input(
    const RuleCall& call, const Operand& input, const Operand& weight) {
  if (call.boolean("transposed") || input.ndim() < 3 ||
      weight.ndim() != input.ndim() || !is_unsharded(weight) ||
      sharded_spatial_dim(*input.placements) < 0) {
    return false;
  }
  const Windows windows(
      [&](const char* name) { return call.integers(name); }, weight.shape);
  for (size_t d = 2; d < weight.shape.size(); ++d) {
    if (windows.along(d).stride < 1 ||
        windows.along(d).count(input.shape[d]) < 1) {
      return false;  // ATen says what is wrong
    }
  }
  return true;
}

bool convolution_is_sharded(const RuleCall& call) {
  return has_sharded_input(call, call.operand(0), call.operand(1)) &&
         is_unsharded(call.operand(2));
}
bool convolution_backward_is_sharded(const RuleCall& call) {
  return has_sharded_input(call, call.operand(1), call.operand(2));
}

}  // namespace

void add_convolution_decompositions(OpRegistry& ops) {
  ops.at("aten::convolution").decomposition = {
      convolution_is_sharded, convolution};
  ops.at("aten::convolution_backward").decomposition = {
      convolution_backward_is_sharded, convolution_backward};
}

}  // namespace tessera::detail::inline tensor_layer
