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

namespace tessera::detail {

namespace {

struct Normalized {
  at::Tensor output, mean, rstd;
};

Normalized normalized(
    const CutCall& cut, const at::Tensor& running_mean,
    const at::Tensor& running_var) {
  at::Tensor mean = running_mean, variance = running_var;  // written
  auto [output, saved_mean, saved_rstd] = at::_native_batch_norm_legit(
      cut.tensor("input"), cut.optional_tensor("weight"),
      cut.optional_tensor("bias"), mean, variance, /*training=*/true,
      cut.argument("momentum").toDouble(), cut.argument("eps").toDouble());
  return {output, saved_mean, saved_rstd};
}

at::Tensor empty_reserve(const CutCall& cut) {
  return cut.wrap(
      DTensorSpec::make(
          cut.mesh(), replicated(cut.mesh()), {0}, c10::ScalarType::Byte),
      [&] {
        const at::Tensor& shard = fresh_local(cut.tensor("input"));
        return at::empty({0}, shard.options().dtype(at::kByte));
      });
}

void with_update(const OpCall& call) {
  const CutCall cut(call);
  const Normalized result =
      normalized(cut, cut.tensor("running_mean"), cut.tensor("running_var"));
  cut.finish({result.output, result.mean, result.rstd, empty_reserve(cut)});
}

// Gives an out tensor its value, and its shape where it has another one.
void write_out(const at::Tensor& out, const at::Tensor& value) {
  if (out.sizes() != value.sizes()) {
    out.resize_(value.sizes());
  }
  out.copy_(value);
}

void with_update_out(const OpCall& call) {
  const CutCall cut(call);
  const Normalized result =
      normalized(cut, cut.tensor("running_mean"), cut.tensor("running_var"));
  const std::vector<at::Tensor> outs{
      cut.tensor("out"), cut.tensor("save_mean"), cut.tensor("save_invstd"),
      cut.tensor("reserve")};
  const at::Tensor values[] = {
      result.output, result.mean, result.rstd, empty_reserve(cut)};
  for (size_t i = 0; i < outs.size(); ++i) {
    write_out(outs[i], values[i]);
  }
  cut.finish({outs[0], outs[1], outs[2], outs[3]});
}

// A copy of a value per channel, cut as the channels of the input are.
at::Tensor copied_by_channel(CutCall& cut, const char* name) {
  const at::Tensor t = cut.tensor(name);
  Placements placements = replicated(cut.mesh());
  const SpecPtr input = cut.spec(cut.tensor("input"));
  for (const int64_t m : cuts_of(input->placements(), 1)) {
    const auto number = static_cast<size_t>(m);
    placements[number] = input->placements()[number].with_dim(0);
  }
  const at::Tensor local = cut.shard(name, t, placements);
  return cut.wrap(
      with_placements(*cut.spec(t), placements, t.scalar_type()),
      [&] { return local.clone(); });
}

void with_update_functional(const OpCall& call) {
  CutCall cut(call);
  const at::Tensor mean = copied_by_channel(cut, "running_mean");
  const at::Tensor variance = copied_by_channel(cut, "running_var");
  const Normalized result = normalized(cut, mean, variance);
  cut.finish(
      {result.output, result.mean, result.rstd, empty_reserve(cut), mean,
       variance});
}

void backward(const OpCall& call) {
  const CutCall cut(call);
  const auto flags = cut.argument("output_mask").toBoolList();
  const auto [input, weight, bias] = at::native_batch_norm_backward(
      cut.tensor("grad_out"), cut.tensor("input"), cut.tensor("weight"),
      cut.optional_tensor("running_mean"), cut.optional_tensor("running_var"),
      cut.optional_tensor("save_mean"), cut.optional_tensor("save_var"),
      cut.argument("update").toBool(), cut.argument("eps").toDouble(),
      {flags[0], flags[1], flags[2]});
  cut.finish({input, weight, bias});
}

bool cuts_input(const RuleCall& call) {
  return call.self().ndim() > 1 && cuts_any(*call.self().placements);
}

bool has_no_reserve(const RuleCall& call) {
  const Operand& input = call.operand(1);
  return input.ndim() > 1 && cuts_any(*input.placements) &&
         c10::multiply_integers(call.operands().back().shape) == 0;
}

}  // namespace

void add_batch_norm_update_decompositions(Decompositions& all) {
  all.push_back({"aten::_batch_norm_with_update", cuts_input, with_update});
  all.push_back(
      {"aten::_batch_norm_with_update.out", cuts_input, with_update_out});
  all.push_back(
      {"aten::_batch_norm_with_update_functional", cuts_input,
       with_update_functional});
  all.push_back({"aten::batch_norm_backward", has_no_reserve, backward});
}

}  // namespace tessera::detail
