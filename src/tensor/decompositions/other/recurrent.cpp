// oneDNN's fused recurrent layers by batch. Sequences of a batch have no part
// in each other, so each rank runs the layer on its own, and gradients of
// weights are partial.
//
// Note [Workspaces of fused layers]
// What the layer keeps for its backward lies in a workspace that only the
// kernel can read, of a size that other ranks do not know, so no layout
// describes it. Its place in the results is left empty, and a backward on
// shards runs the layer again: a third more time, and no element moves. Which
// calls are run on shards follows from the operands that forward and backward
// share, so that both always agree.
#include <algorithm>
#include <tuple>

#include <ATen/core/grad_mode.h>
#include <ATen/ops/empty.h>
#include <ATen/ops/mkldnn_rnn_layer.h>
#include <ATen/ops/zeros_like.h>
#include <tensor/decompositions/decomposed_call.h>
#include <tensor/decompositions/table.h>
#include <tensor/state/replicated.h>

namespace tessera::detail::inline tensor_layer {

namespace {

// [time, batch, features], and of the states [..., batch, features].
constexpr int64_t kBatchDim = 1;
constexpr size_t kStates[] = {5, 6};
constexpr size_t kWeights = 4;

int64_t batch_dim_of(int64_t state_ndim) {
  return state_ndim - 2;
}

// The placements of the input where it is cut by batch as input or states are;
// all replicated where they are not.
Placements by_batch(
    const Placements& input, const Placements& hidden, const Placements& cell,
    int64_t state_ndim) {
  Placements result;
  for (size_t m = 0; m < input.size(); ++m) {
    Placement p = Replicate();
    for (const Placements* of : {&cell, &hidden}) {
      if ((*of)[m].is_shard(batch_dim_of(state_ndim))) {
        p = (*of)[m].with_dim(kBatchDim);
      }
    }
    result.push_back(input[m].is_shard(kBatchDim) ? input[m] : p);
  }
  return result;
}

Placements with_batch_at(Placements placements, int64_t dim) {
  for (Placement& p : placements) {
    p = p.is_shard() ? p.with_dim(dim) : p;
  }
  return placements;
}

bool layer_is_sharded(const RuleCall& call) {
  const Operand& input = call.operand(0);
  const Operand& hidden = call.operand(kStates[0]);
  const Operand& cell = call.operand(kStates[1]);
  if (input.ndim() != 3 || hidden.ndim() < 2 || hidden.shape != cell.shape ||
      hidden.shape[hidden.shape.size() - 2] != input.shape[1] ||
      !call.integers("batch_sizes").empty()) {
    return false;
  }
  for (size_t w = 1; w <= kWeights; ++w) {
    if (call.operand(w).defined && shards_any(*call.operand(w).placements)) {
      return false;
    }
  }
  // Orders and strides of several mesh dims fit together in one tensor only.
  const auto is_plain = [](const Operand& operand) {
    return std::all_of(
        operand.placements->begin(), operand.placements->end(),
        [](const Placement& p) {
          return !p.is_shard() || (p.is_plain_shard() && p.order() < 0);
        });
  };
  return is_plain(input) && is_plain(hidden) && is_plain(cell) &&
         shards_any(by_batch(
             *input.placements, *hidden.placements, *cell.placements,
             hidden.ndim()));
}

// The operands of a call on this rank.
struct LocalLayer {
  explicit LocalLayer(DecomposedCall& decomposed)
      : names(names_of(decomposed)) {
    const auto spec = [&](size_t i) {
      return decomposed.spec(decomposed.tensor(names[i]));
    };
    state_dim = batch_dim_of(decomposed.tensor(names[kStates[0]]).dim());
    of_input = by_batch(
        spec(0)->placements(), spec(kStates[0])->placements(),
        spec(kStates[1])->placements(), state_dim + 2);
    of_state = with_batch_at(of_input, state_dim);
    const Placements whole = replicated(decomposed.mesh());
    for (size_t i = 0; i <= kStates[1]; ++i) {
      const at::Tensor t = decomposed.tensor(names[i]);
      shapes.push_back(t.sizes().vec());
      shards.push_back(decomposed.shard(
          names[i], t,
          i == 0          ? of_input
          : i <= kWeights ? whole
                          : of_state));
    }
  }

  bool is_empty() const { return shards[0].numel() == 0; }
  auto run(const DecomposedCall& decomposed, bool trains) const {
    const auto integer = [&](const char* name) {
      return decomposed.argument(name).toInt();
    };
    const auto boolean = [&](const char* name) {
      return decomposed.argument(name).toBool();
    };
    // The kernel makes a workspace only where it thinks that it is recorded.
    const at::AutoGradMode recorded(trains);
    return at::mkldnn_rnn_layer(
        shards[0].contiguous(), shards[1], shards[2], shards[3], shards[4],
        shards[5].contiguous(), shards[6].contiguous(), boolean("reverse"), {},
        integer("mode"), integer("hidden_size"), integer("num_layers"),
        boolean("has_biases"), boolean("bidirectional"), boolean("batch_first"),
        trains);
  }

  std::vector<std::string> names;
  int64_t state_dim = 0;
  Placements of_input;
  Placements of_state;
  std::vector<std::vector<int64_t>> shapes;
  std::vector<at::Tensor> shards;

 private:
  static std::vector<std::string> names_of(const DecomposedCall& decomposed) {
    std::vector<std::string> names;
    for (size_t i = 0; i <= kStates[1]; ++i) {
      names.push_back(decomposed.call().schema().arguments()[i].name());
    }
    return names;
  }
};

void run_layer(const OpCall& call) {
  DecomposedCall decomposed(call);
  LocalLayer layer(decomposed);
  const c10::ScalarType dtype = decomposed.tensor("input").scalar_type();
  std::vector<int64_t> shape = layer.shapes[0];
  shape[2] = decomposed.argument("hidden_size").toInt();
  const auto spec = [&](const Placements& p, const std::vector<int64_t>& of) {
    return DTensorSpec::make(decomposed.mesh(), p, of, dtype);
  };
  const SpecPtr of_result = spec(layer.of_input, shape);
  const SpecPtr of_state = spec(layer.of_state, layer.shapes[kStates[0]]);
  at::Tensor y, hidden, cell;
  if (decomposed.computes()) {
    if (layer.is_empty()) {
      y = at::empty(of_result->local_shape(), layer.shards[0].options());
      hidden = cell = at::empty(of_state->local_shape(), y.options());
    } else {
      std::tie(y, hidden, cell, std::ignore) =
          layer.run(decomposed, decomposed.argument("train").toBool());
    }
  }
  const auto state = [&](const at::Tensor& t) {
    return decomposed.wrap(
        of_state, [&] { return t.reshape(of_state->local_shape()); });
  };
  decomposed.finish(
      {decomposed.wrap(of_result, [&] { return y; }), state(hidden),
       state(cell),
       decomposed.wrap(
           DTensorSpec::make(
               decomposed.mesh(), replicated(decomposed.mesh()), {0},
               at::kByte),
           [&] { return at::empty({0}, y.options().dtype(at::kByte)); })});
}

void run_layer_backward(const OpCall& call) {
  DecomposedCall decomposed(call);
  LocalLayer layer(decomposed);
  const auto gradient = [&](const char* name, const Placements& p) {
    return decomposed.shard(name, decomposed.optional_tensor(name), p);
  };
  const at::Tensor of_y = gradient("grad_output", layer.of_input);
  const at::Tensor of_hidden = gradient("grad_hy", layer.of_state);
  const at::Tensor of_cell = gradient("grad_cy", layer.of_state);
  std::vector<at::Tensor> local;
  if (decomposed.computes()) {
    if (layer.is_empty()) {
      for (const at::Tensor& t : layer.shards) {
        local.push_back(at::zeros_like(t));
      }
    } else {
      const auto [y, hidden, cell, workspace] =
          layer.run(decomposed, /*trains=*/true);
      const auto given = [](const at::Tensor& t) {
        return t.defined() ? c10::IValue(t.contiguous()) : c10::IValue();
      };
      const auto& at = layer.names;
      for (const c10::IValue& result : decomposed.run_operator(
               {{at[0], layer.shards[0].contiguous()},
                {at[1], layer.shards[1]},
                {at[2], layer.shards[2]},
                {at[3], layer.shards[3]},
                {at[4], layer.shards[4]},
                {at[5], layer.shards[5].contiguous()},
                {at[6], layer.shards[6].contiguous()},
                {"output", y},
                {"hy_", hidden},
                {"cy_", cell},
                {"grad_output", given(of_y)},
                {"grad_hy", given(of_hidden)},
                {"grad_cy", given(of_cell)},
                {"workspace", workspace}})) {
        local.push_back(result.toTensor());
      }
    }
  }
  Placements partial = layer.of_input;
  for (Placement& p : partial) {
    p = p.is_shard() ? Partial() : p;
  }
  // Of input, weights, biases and states, in the order of the arguments.
  std::vector<c10::IValue> results;
  for (size_t i = 0; i <= kStates[1]; ++i) {
    const Placements& p = i == 0          ? layer.of_input
                          : i <= kWeights ? partial
                                          : layer.of_state;
    const SpecPtr spec = DTensorSpec::make(
        decomposed.mesh(), p, layer.shapes[i],
        decomposed.tensor("input").scalar_type());
    results.emplace_back(decomposed.wrap(
        spec, [&] { return local[i].reshape(spec->local_shape()); }));
  }
  decomposed.finish(std::move(results));
}

}  // namespace

void add_recurrent_decompositions(OpRegistry& ops) {
  ops.at("aten::mkldnn_rnn_layer").decomposition = {
      layer_is_sharded, run_layer};
  ops.at("aten::mkldnn_rnn_layer_backward").decomposition = {
      layer_is_sharded, run_layer_backward};
}

}  // namespace tessera::detail::inline tensor_layer
