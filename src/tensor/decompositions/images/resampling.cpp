// Operators that make each row of a dim of one or a few rows of the operand, by
// fixed weights: pads by reflection and by the last row, interpolation. A rank
// receives the rows that its own are made of, along all sharded dims at once,
// and makes the dims one after the other.
#include <algorithm>
#include <array>
#include <functional>
#include <string>

#include <ATen/ops/constant_pad_nd.h>
#include <ATen/ops/tensor.h>
#include <ATen/ops/zeros.h>
#include <c10/util/accumulate.h>
#include <tensor/decompositions/images/row_mixes.h>
#include <tensor/decompositions/table.h>
#include <tensor/decompositions/windowed_call.h>

namespace tessera::detail::inline tensor_layer {

namespace {

size_t image_dims_of(const c10::FunctionSchema& schema) {
  for (const char digit : {'1', '2', '3'}) {
    if (schema.name().find(std::string(1, digit) + "d") != std::string::npos) {
      return static_cast<size_t>(digit - '0');
    }
  }
  return 0;
}

MixKind kind_of(const std::string& name) {
  const auto has = [&](const char* word) {
    return name.find(word) != std::string::npos;
  };
  return has("reflection")    ? MixKind::kReflection
         : has("replication") ? MixKind::kReplication
         : has("exact")       ? MixKind::kNearestExact
         : has("nearest")     ? MixKind::kNearest
         : has("cubic")       ? MixKind::kCubic
                              : MixKind::kLinear;
}

bool is_pad(MixKind kind) {
  return kind == MixKind::kReflection || kind == MixKind::kReplication;
}

// What happens to an operand of a shape, per dim of the image.
std::vector<DimMix> mixes_of(
    const RuleCall& call, c10::IntArrayRef shape, bool is_double) {
  const MixKind kind = kind_of(call.schema().name());
  const size_t dims = image_dims_of(call.schema());
  std::vector<DimMix> mixes(dims);
  const std::array<const char*, 3> scales{"scales_d", "scales_h", "scales_w"};
  for (size_t i = 0; i < dims; ++i) {
    DimMix& mix = mixes[i];
    mix.kind = kind;
    mix.is_double = is_double;
    mix.rows = shape[shape.size() - dims + i];
    if (is_pad(kind)) {
      const std::vector<int64_t> padding = call.integers("padding");
      mix.before = padding[2 * (dims - 1 - i)];
      mix.results = mix.rows + mix.before + padding[2 * (dims - 1 - i) + 1];
      continue;
    }
    mix.results = call.integers("output_size")[i];
    mix.aligns_corners =
        call.has_argument("align_corners") && call.boolean("align_corners");
    const char* name = dims == 1 ? "scales" : scales[3 - dims + i];
    if (!call.is_none(name)) {
      mix.scale = call.argument(name).toDouble();
    }
  }
  return mixes;
}

bool is_backward(const c10::FunctionSchema& schema) {
  return schema.name().find("_backward") != std::string::npos;
}

// The shape of the operand of the forward call.
std::vector<int64_t> shape_of(const RuleCall& call) {
  if (!is_backward(call.schema())) {
    return call.operand(0).shape.vec();
  }
  return is_pad(kind_of(call.schema().name())) ? call.operand(1).shape.vec()
                                               : call.integers("input_size");
}

// A resampling whose operand, or result where it is a backward, is sharded
// along dims of the image.
struct Resampling {
  Resampling(const DTensorSpec& like, const RuleCall& call)
      : mixes(mixes_of(call, shape_of(call), like.dtype() == at::kDouble)),
        shape(shape_of(call)),
        first(shape.size() - mixes.size()),
        windows(
            *operand_of(like), result_shape(), static_cast<int64_t>(first),
            [this](int64_t dim, const Run& run) {
              return mixes[static_cast<size_t>(dim) - first].read_by(run);
            }) {
    windows.follow_format(like);
  }
  Resampling(const Resampling&) = delete;  // `windows` refers to it
  Resampling& operator=(const Resampling&) = delete;

  // The operand is sharded as what the call has of it: itself, or a gradient of
  // the result.
  SpecPtr operand_of(const DTensorSpec& like) const {
    Placements placements = without_partials(like.placements());
    for (Placement& p : placements) {
      p = p.is_shard() && like.shape() != shape ? Shard(p.dim()) : p;
    }
    return DTensorSpec::make(like.mesh(), placements, shape, like.dtype());
  }
  std::vector<int64_t> result_shape() const {
    std::vector<int64_t> result = shape;
    for (size_t i = 0; i < mixes.size(); ++i) {
      result[first + i] = mixes[i].results;
    }
    return result;
  }
  // The mixes of this rank's rows of the result along a dim of the image.
  std::vector<Mix> local_mixes(
      const std::vector<int64_t>& coordinate, size_t i) const {
    std::vector<Mix> local;
    for (const Run& run : windows.result()->layout().runs(
             static_cast<int64_t>(first + i), coordinate)) {
      for (int64_t row = run.begin; row < run.end; ++row) {
        local.push_back(mixes[i].of(row));
      }
    }
    return local;
  }

  // Tells whether interpolation makes as many rows of each row wherever it
  // lies, so that the operator can run on any part of the image.
  bool is_regular() const {
    return std::all_of(mixes.begin(), mixes.end(), [&](const DimMix& mix) {
      const auto dim = static_cast<int64_t>(&mix - mixes.data()) +
                       static_cast<int64_t>(first);
      return (mix.kind == MixKind::kLinear || mix.kind == MixKind::kCubic) &&
             (!windows.is_sharded(dim) ||
              (!mix.aligns_corners && mix.results % mix.rows == 0 &&
               mix.scale.value_or(static_cast<double>(mix.per_row())) ==
                   static_cast<double>(mix.per_row())));
    });
  }
  // What the operator makes of a halo: the size of its image, and how many rows
  // lie before and after this rank's, as constant_pad_nd takes them.
  struct LocalImage {
    std::vector<int64_t> sizes;
    std::vector<int64_t> around;
  };
  LocalImage local_image(
      const Halo& halo, const std::vector<int64_t>& coordinate) const {
    LocalImage image;
    for (size_t i = mixes.size(); i-- > 0;) {
      const auto d = static_cast<int64_t>(first + i);
      if (!windows.is_sharded(d)) {
        image.sizes.insert(image.sizes.begin(), mixes[i].results);
        image.around.insert(image.around.end(), 2, 0);
        continue;
      }
      const int64_t n = mixes[i].per_row();
      const Run rows = windows.result()->layout().runs(d, coordinate)[0];
      const int64_t size = halo.padded_shape()[first + i] * n;
      const int64_t before = rows.begin - halo.begin(d) * n;
      image.sizes.insert(image.sizes.begin(), size);
      image.around.push_back(before);
      image.around.push_back(size - before - rows.length());
    }
    return image;
  }

  std::vector<DimMix> mixes;
  std::vector<int64_t> shape;  // of the operand
  size_t first;                // dim of the image
  WindowedCall windows;
};

// Calls f(rows, weights) for each row of a mix: the rows, counted from `begin`,
// and their weights, undefined where they are 1, as tensors that broadcast
// along dim `dim` of `like`.
template <class F>
void for_each_part(
    const std::vector<Mix>& mixes, int64_t begin, int64_t dim,
    const at::Tensor& like, const F& f) {
  for (size_t k = 0; k < mixes[0].rows.size(); ++k) {
    std::vector<int64_t> rows;
    std::vector<double> weights;
    for (const Mix& mix : mixes) {
      rows.push_back(mix.rows[k] - begin);
      if (!mix.weights.empty()) {
        weights.push_back(mix.weights[k]);
      }
    }
    std::vector<int64_t> shape(static_cast<size_t>(like.dim()), 1);
    shape[static_cast<size_t>(dim)] = static_cast<int64_t>(rows.size());
    f(at::tensor(rows, at::kLong).to(like.device()),
      weights.empty()
          ? at::Tensor()
          : at::tensor(weights, at::kDouble).to(like.options()).view(shape));
  }
}

at::Tensor weighed(const at::Tensor& t, const at::Tensor& weights) {
  return weights.defined() ? t * weights : t;
}

// One dim of a rank's result.
at::Tensor mixed(
    const at::Tensor& read, int64_t dim, const std::vector<Mix>& mixes,
    int64_t begin) {
  at::Tensor sum;
  for_each_part(
      mixes, begin, dim, read,
      [&](const at::Tensor& rows, const at::Tensor& weights) {
        const at::Tensor part = weighed(read.index_select(dim, rows), weights);
        sum = sum.defined() ? sum.add_(part) : part;
      });
  return sum;
}

// The transpose: of a gradient of the result that of the rows read.
at::Tensor unmixed(
    const at::Tensor& gradient, int64_t dim, const std::vector<Mix>& mixes,
    int64_t begin, int64_t rows_read) {
  std::vector<int64_t> shape = gradient.sizes().vec();
  shape[static_cast<size_t>(dim)] = rows_read;
  const at::Tensor sum = at::zeros(shape, gradient.options());
  for_each_part(
      mixes, begin, dim, gradient,
      [&](const at::Tensor& rows, const at::Tensor& weights) {
        sum.index_add_(dim, rows, weighed(gradient, weights));
      });
  return sum;
}

// The call as a rule sees it, without its tensors.
RuleCall rule_call_of(
    const OpCall& call, const std::vector<Operand>& operands) {
  const torch::jit::Stack& stack = *call.stack();
  return RuleCall(
      call.schema(),
      c10::ArrayRef<c10::IValue>(
          stack.data() + stack.size() - call.size(), call.size()),
      operands);
}

std::vector<Operand> operands_of(const OpCall& call) {
  std::vector<Operand> operands;
  call.for_each_argument_tensor([&](const at::Tensor& t) {
    Operand operand;
    operand.shape = t.sizes();
    operand.defined = true;
    operands.push_back(operand);
  });
  return operands;
}

void resample(const OpCall& call) {
  DecomposedCall decomposed(call);
  const char* name = decomposed.has_argument("self") ? "self" : "input";
  const at::Tensor self = decomposed.tensor(name);
  const std::vector<Operand> operands = operands_of(call);
  const Resampling by(*decomposed.spec(self), rule_call_of(call, operands));
  by.windows.announce(decomposed, name);
  const at::Tensor x =
      decomposed.shard(name, self, by.windows.operand_placements());
  decomposed.finish({decomposed.wrap(by.windows.result(), [&] {
    const Halo halo = by.windows.halo(decomposed);
    at::Tensor y = halo.gather(x, by.windows.group(decomposed));
    const std::vector<int64_t>& shape = by.windows.result()->local_shape();
    if (c10::multiply_integers(shape) == 0) {
      return at::zeros(shape, x.options());
    }
    if (by.is_regular()) {
      auto [sizes, around] = by.local_image(halo, decomposed.coordinate());
      std::transform(
          around.begin(), around.end(), around.begin(), std::negate<>());
      return at::constant_pad_nd(
          decomposed.run_operator({{name, y}, {"output_size", sizes}})[0]
              .toTensor(),
          around);
    }
    y = y.to(sum_type(x.scalar_type()));
    for (size_t i = 0; i < by.mixes.size(); ++i) {
      const auto d = static_cast<int64_t>(by.first + i);
      y = mixed(
          y, d, by.local_mixes(decomposed.coordinate(), i), halo.begin(d));
    }
    return y.to(x.scalar_type());
  })});
}

void resample_backward(const OpCall& call) {
  DecomposedCall decomposed(call);
  const at::Tensor gradient = decomposed.tensor("grad_output");
  const std::vector<Operand> operands = operands_of(call);
  const SpecPtr of_gradient = decomposed.spec(gradient);
  const SpecPtr self = decomposed.has_argument("self")
                           ? decomposed.spec(decomposed.tensor("self"))
                           : of_gradient;
  const auto first = static_cast<int64_t>(gradient.dim()) -
                     static_cast<int64_t>(image_dims_of(call.schema()));
  const Resampling by(
      shards_windows(self->placements(), first) ? *self : *of_gradient,
      rule_call_of(call, operands));
  by.windows.announce(decomposed, "grad_output");
  const at::Tensor given = decomposed.shard(
      "grad_output", gradient, by.windows.result()->placements());
  decomposed.finish({decomposed.wrap(by.windows.operand(), [&] {
    const Halo halo = by.windows.halo(decomposed);
    at::Tensor g = given.to(sum_type(given.scalar_type()));
    if (g.numel() == 0) {
      g = at::zeros(halo.padded_shape(), g.options());
    } else if (by.is_regular()) {
      const auto [sizes, around] =
          by.local_image(halo, decomposed.coordinate());
      g = decomposed
              .run_operator(
                  {{"grad_output",
                    at::constant_pad_nd(given, around).contiguous()},
                   {"output_size", sizes},
                   {"input_size", halo.padded_shape()}})[0]
              .toTensor();
    } else {
      for (size_t i = by.mixes.size(); i-- > 0;) {
        const auto d = static_cast<int64_t>(by.first + i);
        g = unmixed(
            g, d, by.local_mixes(decomposed.coordinate(), i), halo.begin(d),
            halo.padded_shape()[static_cast<size_t>(d)]);
      }
    }
    return halo.scatter_sum(g, by.windows.group(decomposed))
        .to(given.scalar_type());
  })});
}

bool resampling_is_sharded(const RuleCall& call) {
  const size_t dims = image_dims_of(call.schema());
  const std::vector<int64_t> shape = shape_of(call);
  // Pads take images without a batch, too.
  const size_t at_least = is_pad(kind_of(call.schema().name())) ? 1 : 2;
  if (shape.size() < dims + at_least || shape.size() > dims + 2 ||
      c10::multiply_integers(shape) == 0 ||
      !c10::isFloatingType(call.operand(0).dtype)) {
    return false;
  }
  const auto first = static_cast<int64_t>(shape.size() - dims);
  if (std::none_of(
          call.operands().begin(), call.operands().end(),
          [&](const Operand& operand) {
            return shards_windows(*operand.placements, first);
          })) {
    return false;
  }
  const std::vector<DimMix> mixes = mixes_of(call, shape, false);
  const auto is_valid = [](const DimMix& mix) {
    const int64_t after = mix.results - mix.rows - mix.before;
    return mix.results > 0 &&
           (mix.kind != MixKind::kReflection ||
            std::max(mix.before, after) < mix.rows) &&
           (!is_pad(mix.kind) || std::min(mix.before, after) >= 0);
  };
  return std::all_of(mixes.begin(), mixes.end(), is_valid);
}

}  // namespace

void add_resampling_decompositions(OpRegistry& ops) {
  const auto add = [&](const std::string& name) {
    ops.at("aten::" + name).decomposition = {resampling_is_sharded, resample};
    ops.at("aten::" + name + "_backward").decomposition = {
        resampling_is_sharded, resample_backward};
  };
  for (const std::string dims : {"1d", "2d", "3d"}) {
    for (const std::string name :
         {"reflection_pad", "replication_pad", "upsample_nearest",
          "_upsample_nearest_exact"}) {
      add(name + dims);
    }
  }
  for (const char* name :
       {"upsample_linear1d", "upsample_bilinear2d", "upsample_trilinear3d",
        "upsample_bicubic2d"}) {
    add(name);
  }
}

}  // namespace tessera::detail::inline tensor_layer
