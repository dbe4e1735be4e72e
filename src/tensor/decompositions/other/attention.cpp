// Attention in which several heads of the query share one of key and value:
// where ranks divide the heads of both, a rank holds the heads of key and value
// that its heads of the query read, and attends to them alone.
//
// Worked row, 8 heads over 2 of key and value, on 2 ranks: S(1) of the query is
// heads 0:4 and 4:8, S(1) of the key heads 0:1 and 1:2. Nothing moves.
//
// Where more ranks than heads of key and value share them, groups of ranks read
// one head: on 4 ranks heads 0:2, 2:4 of the query read head 0. Of a replicated
// key each takes its head, of a sharded one it is sent; the gradient goes back
// and is added.
#include <algorithm>
#include <array>
#include <string_view>

#include <tensor/decompositions/decomposed_call.h>
#include <tensor/decompositions/other/shared_heads.h>
#include <tensor/decompositions/table.h>
#include <tensor/impl/sharded_impl.h>

namespace tessera::detail::inline tensor_layer {

namespace {

const std::string& name_of(const RuleCall& call, const Operand& operand) {
  return call.schema()
      .arguments()[static_cast<size_t>(operand.argument)]
      .name();
}

const Operand* operand_named(const RuleCall& call, std::string_view name) {
  for (const Operand& operand : call.operands()) {
    if (name_of(call, operand) == name && operand.defined) {
      return &operand;
    }
  }
  return nullptr;
}

// The dim of query, key and value that a mesh dim shards: 0, 1, or -1; -2
// where they are sharded in another way.
int64_t dim_of_mesh_dim(
    const std::vector<const Placements*>& placements, size_t m) {
  int64_t dim = -1;
  for (const Placements* of_one : placements) {
    const Placement& p = (*of_one)[m];
    if (p.is_replicate()) {
      continue;
    }
    const bool fits = p.is_plain_shard() && p.order() < 0 && p.dim() < 2 &&
                      (dim < 0 || dim == p.dim());
    if (!fits) {
      return -2;
    }
    dim = p.dim();
  }
  return dim;
}

struct HeadGroups {
  const Operand* query;
  const Operand* key;
  const Operand* value;

  explicit HeadGroups(const RuleCall& call)
      : query(operand_named(call, "query")),
        key(operand_named(call, "key")),
        value(operand_named(call, "value")) {}
  bool are_there() const {
    return query != nullptr && key != nullptr && value != nullptr &&
           query->ndim() == 4 && key->ndim() == 4 && value->ndim() == 4 &&
           key->shape[1] == value->shape[1] && key->shape[1] > 0 &&
           query->shape[1] != key->shape[1] &&
           query->shape[1] % key->shape[1] == 0;
  }
  std::vector<const Placements*> placements() const {
    return {query->placements, key->placements, value->placements};
  }
};

bool attention_applies(const RuleCall& call) {
  const HeadGroups groups(call);
  if (!groups.are_there() || call.argument("dropout_p").toDouble() != 0) {
    return false;
  }
  bool by_heads = false;
  for (size_t m = 0; m < groups.query->placements->size(); ++m) {
    const int64_t dim = dim_of_mesh_dim(groups.placements(), m);
    if (dim == -2) {
      return false;
    }
    by_heads = by_heads || dim == 1;
  }
  return by_heads;
}

// The one mesh dim whose ranks share heads of key and value in groups; -1 where
// each has heads of its own.
int64_t sharing_mesh_dim(
    const std::vector<const Placements*>& placements, int64_t heads,
    int64_t shared, const MeshShape& mesh) {
  int64_t found = -1;
  int64_t cuts = 0;
  for (int64_t m = 0; m < mesh.ndim(); ++m) {
    if (dim_of_mesh_dim(placements, static_cast<size_t>(m)) == 1) {
      found = m;
      ++cuts;
    }
  }
  const bool shares = cuts == 1 && mesh.size(found) > shared &&
                      mesh.size(found) % shared == 0 &&
                      heads % mesh.size(found) == 0;
  return shares ? found : -1;
}

bool attention_divides(const RuleCall& call, const MeshShape& mesh) {
  const HeadGroups groups(call);
  std::array<int64_t, 2> parts{1, 1};
  for (int64_t m = 0; m < mesh.ndim(); ++m) {
    const int64_t dim =
        dim_of_mesh_dim(groups.placements(), static_cast<size_t>(m));
    if (dim >= 0) {
      parts[static_cast<size_t>(dim)] *= mesh.size(m);
    }
  }
  const int64_t heads = groups.query->shape[1], shared = groups.key->shape[1];
  return groups.query->shape[0] == groups.key->shape[0] &&
         groups.query->shape[0] % parts[0] == 0 &&
         (shared % parts[1] == 0 ||
          sharing_mesh_dim(groups.placements(), heads, shared, mesh) >= 0);
}

// Where each tensor of the call lies: those of heads and batches as the query
// does, a mask where it has them.
Placements placements_for(
    const at::Tensor& t, const Placements& of_query, int64_t batches,
    int64_t heads) {
  Placements placements = of_query;
  for (Placement& p : placements) {
    if (!p.is_shard()) {
      continue;
    }
    const int64_t own = p.dim() - std::max<int64_t>(4 - t.dim(), 0);
    const int64_t size = p.dim() == 0 ? batches : heads;
    p = own >= 0 && t.size(own) == size ? Shard(own) : Replicate();
  }
  return placements;
}

void attention(const OpCall& call) {
  DecomposedCall decomposed(call);
  const at::Tensor query = decomposed.tensor("query");
  const at::Tensor key = decomposed.tensor("key");
  const std::array<at::Tensor, 3> three{query, key, decomposed.tensor("value")};
  const size_t mesh_ndim = static_cast<size_t>(decomposed.mesh().ndim());
  std::vector<Placements> given;
  for (const at::Tensor& t : three) {
    given.push_back(decomposed.spec(t)->placements());
  }
  Placements by_query(mesh_ndim, Replicate());
  for (size_t m = 0; m < mesh_ndim; ++m) {
    const int64_t dim = dim_of_mesh_dim({&given[0], &given[1], &given[2]}, m);
    by_query[m] = dim >= 0 ? Shard(dim) : Replicate();
  }
  const SharedHeads shared(
      decomposed,
      sharing_mesh_dim(
          {&given[0], &given[1], &given[2]}, query.size(1), key.size(1),
          decomposed.mesh().mesh_shape()),
      key.size(1));
  torch::jit::Stack local;
  for (size_t i = 0; i < call.size(); ++i) {
    const c10::IValue& value = call.argument(i);
    if (!value.isTensor() || !value.toTensor().defined()) {
      local.push_back(value);
      continue;
    }
    const std::string& name = call.schema().arguments()[i].name();
    const at::Tensor t = value.toTensor();
    const bool is_mask = name == "attn_mask";
    const bool is_shared = shared.exist() && (name == "key" || name == "value");
    if (is_shared) {
      const Placements& from = given[name == "key" ? 1 : 2];
      const Placements to = shared.before(by_query, from);
      const at::Tensor whole = decomposed.shard(name, t, to);
      if (shared.are_sharded(from)) {
        shared.announce(name.c_str(), decomposed.spec(t)->with_placements(to));
      }
      local.emplace_back(
          decomposed.computes() ? shared.taken(whole, from) : at::Tensor());
      continue;
    }
    // logsumexp is [batch, heads, length].
    const Placements target =
        is_mask ? placements_for(t, by_query, query.size(0), query.size(1))
                : by_query;
    local.emplace_back(decomposed.shard(name, t, target));
  }
  if (decomposed.computes()) {
    call.op().callBoxed(&local);
  }
  const bool is_gradient = call.schema().returns().size() == 3;
  std::vector<c10::IValue> results;
  const auto add = [&](std::vector<int64_t> shape, c10::ScalarType dtype) {
    const size_t i = results.size();
    const bool is_shared = is_gradient && i > 0 && shared.exist();
    const SpecPtr spec = DTensorSpec::make(
        decomposed.mesh(),
        is_shared ? shared.of_gradient(shared.before(by_query, given[i]))
                  : by_query,
        std::move(shape), dtype);
    results.emplace_back(decomposed.wrap(spec, [&] {
      const at::Tensor t = local[i].toTensor();
      return is_shared ? shared.given_back(t, given[i]) : t;
    }));
  };
  if (is_gradient) {
    for (const at::Tensor& t : three) {
      add(t.sizes().vec(), t.scalar_type());
    }
  } else {
    add({query.size(0), query.size(1), query.size(2), three[2].size(3)},
        query.scalar_type());
    add({query.size(0), query.size(1), query.size(2)},
        query.scalar_type() == at::kDouble ? at::kDouble : at::kFloat);
  }
  decomposed.finish(std::move(results));
}

}  // namespace

void add_attention_decompositions(OpRegistry& ops) {
  for (const char* name :
       {"aten::_scaled_dot_product_flash_attention_for_cpu",
        "aten::_scaled_dot_product_flash_attention_for_cpu_backward"}) {
    ops.at(name).decomposition = {
        attention_applies, attention, attention_divides};
  }
}

}  // namespace tessera::detail::inline tensor_layer
