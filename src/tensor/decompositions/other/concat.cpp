// cat along the dim that one mesh dim cuts: the parts of equal tensors
// lie one after the other on every rank as they do in a strided cut of the
// result. The gradient of split(), as of a packed projection, is such a cat.
#include <algorithm>

#include <ATen/ops/cat.h>
#include <tensor/decompositions/decomposed_call.h>
#include <tensor/decompositions/table.h>

namespace tessera::detail::inline tensor_layer {

namespace {

bool has_one_plain_shard(const Operand& operand, int64_t dim) {
  const MeshDims mesh_dims = mesh_dims_of_shards(*operand.placements, dim);
  return mesh_dims.size() == 1 &&
         (*operand.placements)[static_cast<size_t>(mesh_dims[0])]
             .is_plain_shard() &&
         operand.shape[static_cast<size_t>(dim)] > 0;
}

bool cat_applies(const RuleCall& call) {
  const Operand& first = call.self();
  if (call.operands().size() < 2 || first.ndim() == 0) {
    return false;
  }
  const bool alike = std::all_of(
      call.operands().begin(), call.operands().end(), [&](const Operand& o) {
        return o.shape == first.shape && o.dtype == first.dtype &&
               *o.placements == *first.placements;
      });
  const bool adds = std::any_of(
      first.placements->begin(), first.placements->end(),
      [](const Placement& p) { return p.is_partial(); });
  return alike && !adds &&
         has_one_plain_shard(
             first, wrap_dim(call.integer("dim"), first.ndim()));
}

void cat(const OpCall& call) {
  DecomposedCall decomposed(call);
  const std::vector<at::Tensor> tensors =
      decomposed.argument("tensors").toTensorVector();
  const SpecPtr given = decomposed.spec(tensors[0]);
  const int64_t dim =
      wrap_dim(decomposed.argument("dim").toInt(), tensors[0].dim());
  const auto count = static_cast<int64_t>(tensors.size());
  Placements placements = given->placements();
  placements[static_cast<size_t>(mesh_dims_of_shards(placements, dim)[0])] =
      StridedShard(dim, count);
  std::vector<int64_t> shape = given->shape();
  shape[static_cast<size_t>(dim)] *= count;
  std::vector<at::Tensor> shards;
  for (const at::Tensor& t : tensors) {
    shards.push_back(decomposed.shard("tensors", t, given->placements()));
  }
  // In the format that all share.
  SpecPtr like = given;
  for (const at::Tensor& t : tensors) {
    like = is_channels_last(*decomposed.spec(t)) ? like : decomposed.spec(t);
  }
  decomposed.finish({decomposed.wrap(
      in_format_of(
          *DTensorSpec::make(
              decomposed.mesh(), placements, shape, given->dtype()),
          *like),
      [&] { return at::cat(shards, dim); })});
}

}  // namespace

void add_concat_decompositions(OpRegistry& ops) {
  ops.at("aten::cat").decomposition = {cat_applies, cat};
}

}  // namespace tessera::detail::inline tensor_layer
