// _batch_norm_with_update and its gradient. They pass a buffer on whose
// contents only the kernel of a device knows; of a cut input it is empty, and
// both are the batch norm that needs none.
#include <ATen/ops/_native_batch_norm_legit.h>
#include <ATen/ops/empty.h>
#include <ATen/ops/native_batch_norm_backward.h>
#include <c10/util/accumulate.h>
#include <tensor/decompositions/decomposed_call.h>
#include <tensor/decompositions/table.h>
#include <tensor/move/view_copies.h>
#include <tensor/state/replicated.h>

namespace tessera::detail::inline tensor_layer {

namespace {

struct Normalized {
  at::Tensor output, mean, rstd;
};

Normalized normalized(
    const DecomposedCall& decomposed, const at::Tensor& running_mean,
    const at::Tensor& running_var) {
  at::Tensor mean = running_mean, variance = running_var;  // written
  auto [output, saved_mean, saved_rstd] = at::_native_batch_norm_legit(
      decomposed.tensor("input"), decomposed.optional_tensor("weight"),
      decomposed.optional_tensor("bias"), mean, variance, /*training=*/true,
      decomposed.argument("momentum").toDouble(),
      decomposed.argument("eps").toDouble());
  return {output, saved_mean, saved_rstd};
}

at::Tensor empty_reserve(const DecomposedCall& decomposed) {
  return decomposed.wrap(
      DTensorSpec::make(
          decomposed.mesh(), replicated(decomposed.mesh()), {0},
          c10::ScalarType::Byte),
      [&] {
        const at::Tensor shard = refreshed_shard(decomposed.tensor("input"));
        return at::empty({0}, shard.options().dtype(at::kByte));
      });
}

void with_update(const OpCall& call) {
  const DecomposedCall decomposed(call);
  const Normalized result = normalized(
      decomposed, decomposed.tensor("running_mean"),
      decomposed.tensor("running_var"));
  decomposed.finish(
      {result.output, result.mean, result.rstd, empty_reserve(decomposed)});
}

// Gives an out tensor its value, and its shape where it has another one.
void write_out(const at::Tensor& out, const at::Tensor& value) {
  if (out.sizes() != value.sizes()) {
    out.resize_(value.sizes());
  }
  out.copy_(value);
}

void with_update_out(const OpCall& call) {
  const DecomposedCall decomposed(call);
  const Normalized result = normalized(
      decomposed, decomposed.tensor("running_mean"),
      decomposed.tensor("running_var"));
  const std::vector<at::Tensor> outs{
      decomposed.tensor("out"), decomposed.tensor("save_mean"),
      decomposed.tensor("save_invstd"), decomposed.tensor("reserve")};
  const at::Tensor values[] = {
      result.output, result.mean, result.rstd, empty_reserve(decomposed)};
  for (size_t i = 0; i < outs.size(); ++i) {
    write_out(outs[i], values[i]);
  }
  decomposed.finish({outs[0], outs[1], outs[2], outs[3]});
}

// A copy of a value per channel, cut as the channels of the input are.
at::Tensor copied_by_channel(DecomposedCall& decomposed, const char* name) {
  const at::Tensor t = decomposed.tensor(name);
  Placements placements = replicated(decomposed.mesh());
  const SpecPtr input = decomposed.spec(decomposed.tensor("input"));
  for (const int64_t m : mesh_dims_of_shards(input->placements(), 1)) {
    const auto number = static_cast<size_t>(m);
    placements[number] = input->placements()[number].with_dim(0);
  }
  const at::Tensor local = decomposed.shard(name, t, placements);
  return decomposed.wrap(
      decomposed.spec(t)->contiguous(placements, t.scalar_type()),
      [&] { return local.clone(); });
}

void with_update_functional(const OpCall& call) {
  DecomposedCall decomposed(call);
  const at::Tensor mean = copied_by_channel(decomposed, "running_mean");
  const at::Tensor variance = copied_by_channel(decomposed, "running_var");
  const Normalized result = normalized(decomposed, mean, variance);
  decomposed.finish(
      {result.output, result.mean, result.rstd, empty_reserve(decomposed), mean,
       variance});
}

void backward(const OpCall& call) {
  const DecomposedCall decomposed(call);
  const auto flags = decomposed.argument("output_mask").toBoolList();
  const auto [input, weight, bias] = at::native_batch_norm_backward(
      decomposed.tensor("grad_out"), decomposed.tensor("input"),
      decomposed.tensor("weight"), decomposed.optional_tensor("running_mean"),
      decomposed.optional_tensor("running_var"),
      decomposed.optional_tensor("save_mean"),
      decomposed.optional_tensor("save_var"),
      decomposed.argument("update").toBool(),
      decomposed.argument("eps").toDouble(), {flags[0], flags[1], flags[2]});
  decomposed.finish({input, weight, bias});
}

bool shards_input(const RuleCall& call) {
  return call.self().ndim() > 1 && shards_any(*call.self().placements);
}

bool has_no_reserve(const RuleCall& call) {
  const Operand& input = call.operand(1);
  return input.ndim() > 1 && shards_any(*input.placements) &&
         c10::multiply_integers(call.operands().back().shape) == 0;
}

}  // namespace

void add_batch_norm_update_decompositions(OpRegistry& ops) {
  ops.at("aten::_batch_norm_with_update").decomposition = {
      shards_input, with_update};
  ops.at("aten::_batch_norm_with_update.out").decomposition = {
      shards_input, with_update_out};
  ops.at("aten::_batch_norm_with_update_functional").decomposition = {
      shards_input, with_update_functional};
  ops.at("aten::batch_norm_backward").decomposition = {
      has_no_reserve, backward};
}

}  // namespace tessera::detail::inline tensor_layer
