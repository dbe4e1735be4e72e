#include <tensor/decompositions/images/sharded_convolution.h>

#include <algorithm>

namespace tessera::detail::inline tensor_layer {

namespace {

ConvArguments arguments_of(const DecomposedCall& decomposed) {
  return ConvArguments(
      [&](const char* name) { return decomposed.argument(name).toIntVector(); },
      decomposed.tensor("weight").sizes(),
      decomposed.argument("transposed").toBool(),
      decomposed.argument("groups").toInt());
}

WindowedCall windows_of(
    const DecomposedCall& decomposed, const ConvArguments& arguments) {
  const SpecPtr input = decomposed.spec(decomposed.tensor("input"));
  return WindowedCall(
      *input, arguments.result_shape(input->shape()), kFirstSpatialDim,
      [arguments, input](int64_t dim, const Run& results) {
        const auto d = static_cast<size_t>(dim);
        return arguments.read_by(d, results, input->shape()[d]);
      });
}

}  // namespace

std::vector<int64_t> ConvArguments::result_shape(
    std::vector<int64_t> input) const {
  input[1] = channels();
  for (size_t d = kFirstSpatialDim; d < input.size(); ++d) {
    const Window w = along(d);
    input[d] = transposed ? (input[d] - 1) * w.stride - 2 * w.padding +
                                w.span() + output_padding[d - 2]
                          : w.count(input[d]);
  }
  return input;
}

// Of a transposed convolution, row j of the input reaches the rows of the
// result from j * stride - padding on, as many as a window spans.
Run ConvArguments::read_by(size_t dim, const Run& results, int64_t rows) const {
  const Window w = along(dim);
  if (!transposed) {
    return w.read_by(results);
  }
  const int64_t first = results.begin + w.padding - (w.span() - 1);
  const int64_t last = results.end - 1 + w.padding;
  const int64_t begin = std::clamp<int64_t>(
      first <= 0 ? 0 : (first + w.stride - 1) / w.stride, 0, rows);
  return {begin, std::clamp<int64_t>(last / w.stride + 1, begin, rows)};
}

ShardedConvolution::ShardedConvolution(const DecomposedCall& decomposed)
    : arguments(arguments_of(decomposed)),
      windows(windows_of(decomposed, arguments)) {
  // As kernels choose, by either operand.
  const SpecPtr input = decomposed.spec(decomposed.tensor("input"));
  const SpecPtr weight = decomposed.spec(decomposed.tensor("weight"));
  windows.follow_format(is_channels_last(*input) ? *input : *weight);
}

std::vector<int64_t> ShardedConvolution::local(
    std::vector<int64_t> list) const {
  for (size_t i = 0; i < list.size(); ++i) {
    if (windows.is_sharded(kFirstSpatialDim + static_cast<int64_t>(i))) {
      list[i] = 0;
    }
  }
  return list;
}

std::vector<int64_t> ShardedConvolution::pads_to_result(
    const Halo& halo, const std::vector<int64_t>& coordinate) const {
  const auto ndim = static_cast<int64_t>(arguments.shape.size());
  std::vector<int64_t> pads;
  for (int64_t d = ndim - 1; d >= kFirstSpatialDim; --d) {
    pads.insert(pads.end(), 2, 0);
    if (!windows.is_sharded(d)) {
      continue;
    }
    const Window w = arguments.along(static_cast<size_t>(d));
    const Run rows = windows.result()->layout().runs(d, coordinate)[0];
    const int64_t begin = halo.begin(d) * w.stride - w.padding;
    const int64_t count = halo.padded_shape()[static_cast<size_t>(d)];
    const int64_t end = begin + (count - 1) * w.stride + w.span();
    pads[pads.size() - 2] = begin - rows.begin;
    pads[pads.size() - 1] = rows.end - end;
  }
  return pads;
}

}  // namespace tessera::detail::inline tensor_layer
