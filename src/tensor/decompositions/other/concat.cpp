// cat along the dim that one mesh dim cuts: the parts of equal tensors
// lie one after the other on every rank as they do in a strided cut of the
// result. The gradient of split(), as of a packed projection, is such a cat.
// Other tensors send the rows that change their rank.
#include <algorithm>
#include <functional>

#include <ATen/ops/cat.h>
#include <c10/util/accumulate.h>
#include <tensor/decompositions/decomposed_call.h>
#include <tensor/decompositions/other/row_exchange.h>
#include <tensor/decompositions/table.h>
#include <tensor/impl/sharded_impl.h>

namespace tessera::detail::inline tensor_layer {

namespace {

bool has_one_plain_shard(const Operand& operand, int64_t dim) {
  const MeshDims mesh_dims = mesh_dims_of_shards(*operand.placements, dim);
  return mesh_dims.size() == 1 &&
         (*operand.placements)[static_cast<size_t>(mesh_dims[0])]
             .is_plain_shard() &&
         operand.shape[static_cast<size_t>(dim)] > 0;
}

bool is_plain_along(const at::Tensor& t, int64_t dim) {
  const Placements& placements = spec_of(t).placements();
  const MeshDims by = mesh_dims_of_shards(placements, wrap_dim(dim, t.dim()));
  return by.size() == 1 &&
         placements[static_cast<size_t>(by[0])].is_plain_shard();
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

// Which mesh dim cuts the dim of a cat that sends rows, and how each tensor
// lies on it; none where tensors lie otherwise apart.
struct JoinedRows {
  int64_t dim = 0;
  int64_t mesh_dim = -1;

  explicit JoinedRows(const RuleCall& call)
      : JoinedRows(
            wrap_dim(call.integer("dim"), call.self().ndim()), placements(call),
            call.operands().size()) {}
  template <class PlacementsOf>
  JoinedRows(int64_t d, const PlacementsOf& of, size_t count) : dim(d) {
    for (size_t i = 0; i < count && mesh_dim < 0; ++i) {
      const MeshDims by = mesh_dims_of_shards(of(i), dim);
      mesh_dim = by.size() == 1 ? by[0] : -1;
    }
  }

  static std::function<const Placements&(size_t)> placements(
      const RuleCall& call) {
    return [&call](size_t i) -> const Placements& {
      return *call.operand(i).placements;
    };
  }
};

// Tensors of one kind, each in runs along one mesh dim or whole along it, and
// alike along the others. Not vectors: a list of the rows that move would be as
// long as they are, and optimizers join all parameters to one.
bool join_applies(const RuleCall& call) {
  const Operand& first = call.self();
  const auto has_its_dims = [&](const Operand& o) {
    return o.ndim() == first.ndim();  // [0] beside [5, 5] is skipped
  };
  if (call.operands().size() < 2 || first.ndim() < 2 ||
      !std::all_of(
          call.operands().begin(), call.operands().end(), has_its_dims)) {
    return false;
  }
  const JoinedRows rows(call);
  if (rows.mesh_dim < 0) {
    return false;
  }
  const auto fits = [&](const Operand& o) {
    if (o.dtype != first.dtype) {
      return false;
    }
    for (int64_t d = 0; d < o.ndim(); ++d) {
      const auto i = static_cast<size_t>(d);
      if (d != rows.dim && o.shape[i] != first.shape[i]) {
        return false;  // ATen says what is wrong
      }
    }
    for (size_t m = 0; m < o.placements->size(); ++m) {
      const Placement& p = (*o.placements)[m];
      const bool is_alike =
          static_cast<int64_t>(m) == rows.mesh_dim
              ? p.is_replicate() || (p.is_shard(rows.dim) && p.is_contiguous())
              : p == (*first.placements)[m] && !p.is_partial() &&
                    !p.is_shard(rows.dim);
      if (!is_alike) {
        return false;
      }
    }
    return true;
  };
  return std::all_of(call.operands().begin(), call.operands().end(), fits);
}

// The tensors of a cat one after the other, cut evenly again: ranks send each
// other the rows that change their rank.
void join(const OpCall& call) {
  DecomposedCall decomposed(call);
  const std::vector<at::Tensor> tensors =
      decomposed.argument("tensors").toTensorVector();
  const JoinedRows rows(
      wrap_dim(decomposed.argument("dim").toInt(), tensors[0].dim()),
      [&](size_t i) -> Placements {
        return decomposed.spec(tensors[i])->placements();
      },
      tensors.size());
  const auto m = static_cast<size_t>(rows.mesh_dim);
  const auto ranks = static_cast<size_t>(decomposed.mesh().size(rows.mesh_dim));
  std::vector<std::vector<int64_t>> becomes(ranks);
  std::vector<at::Tensor> shards;
  std::vector<int64_t> shape = tensors[0].sizes().vec();
  int64_t& size = shape[static_cast<size_t>(rows.dim)];
  size = 0;
  SpecPtr like = decomposed.spec(tensors[0]);
  for (const at::Tensor& t : tensors) {
    const SpecPtr spec = decomposed.spec(t);
    like = is_channels_last(*spec) ? like : spec;
    Placements target = spec->placements();
    target[m] = target[m].is_shard() ? target[m] : Shard(rows.dim);
    shards.push_back(decomposed.shard("tensors", t, target));
    const std::vector<int64_t> lengths = lengths_along(
        Layout(spec->shape(), decomposed.mesh().mesh_shape(), target), rows.dim,
        rows.mesh_dim);
    for (size_t c = 0; c < ranks; ++c) {
      for (int64_t row = 0; row < lengths[c]; ++row) {
        becomes[c].push_back(size++);
      }
    }
  }
  Placements placements = like->placements();
  placements[m] = Shard(rows.dim);
  const SpecPtr result =
      DTensorSpec::make(decomposed.mesh(), placements, shape, like->dtype());
  std::vector<Run> runs;
  int64_t begin = 0;
  for (const int64_t length :
       lengths_along(result->layout(), rows.dim, rows.mesh_dim)) {
    runs.push_back({begin, begin + length});
    begin += length;
  }
  decomposed.announce_exchange(
      "tensors", result, {rows.mesh_dim},
      [&](const std::vector<int64_t>& coordinate) {
        std::vector<int64_t> row = result->layout().local_shape(coordinate);
        row[static_cast<size_t>(rows.dim)] = 1;
        return RowExchange(becomes, runs, coordinate[m]).rows_moved() *
               c10::multiply_integers(row) *
               static_cast<int64_t>(c10::elementSize(result->dtype()));
      });
  decomposed.finish({decomposed.wrap(in_format_of(*result, *like), [&] {
    return RowExchange(becomes, runs, decomposed.coordinate()[m])(
        at::cat(shards, rows.dim), rows.dim, 0,
        decomposed.mesh().communicator(rows.mesh_dim));
  })});
}

bool cat_or_join_applies(const RuleCall& call) {
  return cat_applies(call) || join_applies(call);
}

void cat_or_join(const OpCall& call) {
  const std::vector<at::Tensor> tensors = call.argument(0).toTensorVector();
  const auto is_like_first = [&](const at::Tensor& t) {
    return t.sizes() == tensors[0].sizes() &&
           is_sharded(t) == is_sharded(tensors[0]) &&
           (!is_sharded(t) ||
            spec_of(t).placements() == spec_of(tensors[0]).placements());
  };
  const bool alike =
      std::all_of(tensors.begin(), tensors.end(), is_like_first) &&
      tensors[0].numel() > 0 &&
      is_plain_along(tensors[0], call.argument(1).toInt());
  return alike ? cat(call) : join(call);
}

}  // namespace

void add_concat_decompositions(OpRegistry& ops) {
  ops.at("aten::cat").decomposition = {cat_or_join_applies, cat_or_join};
}

}  // namespace tessera::detail::inline tensor_layer
