// A number along a sharded dim, and what flows back from numbers and ranges.
//
// x[5] of [8] S(0) has no dim that could stay on one rank: the range 5:6 does,
// and its one row moves. Gradients of rows that lie on the ranks that hold them
// become rows of zeros there, without communication:
//   [3] RS(0,[0,3]) of index 5 of [8, 3] -> [8, 3] S(0)
#include <algorithm>

#include <ATen/ops/slice.h>
#include <ATen/ops/squeeze.h>
#include <ATen/ops/zeros.h>
#include <tensor/decompositions/decomposed_call.h>
#include <tensor/decompositions/table.h>
#include <tensor/impl/sharded_impl.h>

namespace tessera::detail::inline tensor_layer {

namespace {

// Where no dim beside it is free, the rule would gather the tensor.
bool select_applies(const RuleCall& call) {
  const Operand& self = call.self();
  if (self.ndim() == 0) {
    return false;
  }
  const int64_t dim = wrap_dim(call.integer("dim"), self.ndim());
  const int64_t size = self.shape[static_cast<size_t>(dim)];
  const int64_t index = call.integer("index");
  bool has_free_dim = false;
  for (int64_t d = 0; d < self.ndim(); ++d) {
    has_free_dim =
        has_free_dim ||
        (d != dim && mesh_dims_of_shards(*self.placements, d).empty());
  }
  return mesh_dims_of_shards(*self.placements, dim).size() == 1 &&
         !has_free_dim && size > 1 && index >= -size && index < size;
}

void select(const OpCall& call) {
  const at::Tensor self = call.argument(0).toTensor();
  const int64_t dim = wrap_dim(call.argument(1).toInt(), self.dim());
  const int64_t given = call.argument(2).toInt();
  const int64_t index = given < 0 ? given + self.size(dim) : given;
  call.finish(at::squeeze(at::slice(self, dim, index, index + 1, 1), dim));
}

// The layout of the gradient's operand, if the gradient lies on the ranks that
// hold its rows: Shard(dim) in the place of the placement of one mesh dim.
struct PickedLayout {
  Placements placements;
  int64_t mesh_dim = -1;
};

bool has_partial_placement(const Placements& placements) {
  return std::any_of(
      placements.begin(), placements.end(),
      [](const Placement& p) { return p.is_partial(); });
}

int64_t single_holder(const std::vector<int64_t>& lengths, int64_t length) {
  for (size_t c = 0; c < lengths.size(); ++c) {
    if (lengths[c] == length) {
      return static_cast<int64_t>(c);
    }
  }
  return -1;
}

// Of select: one mesh dim must hold all of the gradient on one coordinate.
PickedLayout selected_layout(
    const std::vector<int64_t>& shape, const Placements& placements,
    const MeshShape& mesh, const std::vector<int64_t>& sizes, int64_t dim,
    int64_t index) {
  if (has_partial_placement(placements)) {
    return {};
  }
  const Layout gradient(shape, mesh, placements);
  for (int64_t m = 0; m < mesh.ndim(); ++m) {
    const Placement& p = gradient.placements()[static_cast<size_t>(m)];
    if (!p.is_shard() || !p.is_contiguous() ||
        gradient.cuts(p.dim()).size() != 1 || mesh.size(m) == 1) {
      continue;
    }
    const int64_t length = shape[static_cast<size_t>(p.dim())];
    const int64_t holder =
        single_holder(lengths_along(gradient, p.dim(), m), length);
    if (holder < 0 || length == 0) {
      continue;
    }
    const Runs held = cut_runs(
        Shard(0), sizes[static_cast<size_t>(dim)], mesh.size(m), holder);
    if (held.empty() || index < held[0].begin || index >= held[0].end) {
      continue;
    }
    PickedLayout result{gradient.placements(), m};
    for (Placement& other : result.placements) {
      if (other.is_shard() && other.dim() >= dim) {
        other = other.with_dim(other.dim() + 1);
      }
    }
    result.placements[static_cast<size_t>(m)] = Shard(dim);
    return result;
  }
  return {};
}

// Of slice: the range's rows must lie where Shard(dim) has them.
PickedLayout sliced_layout(
    const std::vector<int64_t>& shape, const Placements& placements,
    const MeshShape& mesh, const std::vector<int64_t>& sizes, int64_t dim,
    int64_t start, int64_t step) {
  const MeshDims by = mesh_dims_of_shards(placements, dim);
  if (has_partial_placement(placements) || by.size() != 1 ||
      !placements[static_cast<size_t>(by[0])].is_contiguous()) {
    return {};
  }
  const Layout gradient(shape, mesh, placements);
  const std::vector<int64_t> lengths = lengths_along(gradient, dim, by[0]);
  const int64_t size = sizes[static_cast<size_t>(dim)];
  int64_t first = 0;
  for (int64_t c = 0; c < mesh.size(by[0]); ++c) {
    const Runs held = cut_runs(Shard(0), size, mesh.size(by[0]), c);
    const int64_t length = lengths[static_cast<size_t>(c)];
    if (length > 0 && (held.empty() || start + first * step < held[0].begin ||
                       start + (first + length - 1) * step >= held[0].end)) {
      return {};
    }
    first += length;
  }
  PickedLayout result{gradient.placements(), by[0]};
  result.placements[static_cast<size_t>(by[0])] = Shard(dim);
  return result;
}

int64_t wrapped_index(int64_t index, int64_t size) {
  return std::clamp<int64_t>(index < 0 ? index + size : index, 0, size);
}

PickedLayout layout_of_gradient(
    const RuleCall& call, const Placements& placements, const MeshShape& mesh) {
  const std::vector<int64_t> sizes = call.integers("input_sizes");
  const int64_t dim =
      wrap_dim(call.integer("dim"), static_cast<int64_t>(sizes.size()));
  const int64_t size = sizes[static_cast<size_t>(dim)];
  if (call.has_argument("index")) {
    return selected_layout(
        call.self().shape.vec(), placements, mesh, sizes, dim,
        wrapped_index(call.integer("index"), size));
  }
  return sliced_layout(
      call.self().shape.vec(), placements, mesh, sizes, dim,
      wrapped_index(call.integer("start"), size), call.integer("step"));
}

bool gradient_is_sharded(const RuleCall& call) {
  return std::any_of(
      call.self().placements->begin(), call.self().placements->end(),
      [](const Placement& p) { return p.is_shard(); });
}

bool gradient_lies_well(const RuleCall& call, const MeshShape& mesh) {
  return layout_of_gradient(call, *call.self().placements, mesh).mesh_dim >= 0;
}

void picked_backward(const OpCall& call) {
  DecomposedCall decomposed(call);
  const at::Tensor self = call.argument(0).toTensor();
  const SpecPtr given = decomposed.spec(self);
  const torch::jit::Stack& stack = *call.stack();
  const Operand operand{
      .shape = self.sizes(), .strides = self.strides(), .defined = true};
  const RuleCall rule_call(
      call.schema(),
      c10::ArrayRef<c10::IValue>(
          stack.data() + stack.size() - call.size(), call.size()),
      operand);
  const MeshShape& mesh = decomposed.mesh().mesh_shape();
  const PickedLayout picked =
      layout_of_gradient(rule_call, given->placements(), mesh);
  const std::vector<int64_t> sizes = rule_call.integers("input_sizes");
  const int64_t dim =
      wrap_dim(rule_call.integer("dim"), static_cast<int64_t>(sizes.size()));
  const int64_t size = sizes[static_cast<size_t>(dim)];
  const bool is_index = rule_call.has_argument("index");
  const int64_t begin =
      wrapped_index(rule_call.integer(is_index ? "index" : "start"), size);
  const int64_t step = is_index ? 1 : rule_call.integer("step");
  const SpecPtr spec = DTensorSpec::make(
      decomposed.mesh(), picked.placements, sizes, given->dtype());
  const at::Tensor x = decomposed.shard(
      call.schema().arguments()[0].name(), self, given->placements());
  decomposed.finish({decomposed.wrap(spec, [&] {
    const at::Tensor result = at::zeros(spec->local_shape(), x.options());
    const Runs held = spec->layout().runs(dim, decomposed.coordinate());
    if (held.empty()) {
      return result;
    }
    if (is_index) {
      if (held[0].begin <= begin && begin < held[0].end) {
        result.select(dim, begin - held[0].begin).copy_(x);
      }
      return result;
    }
    const int64_t skipped =
        std::max<int64_t>(0, (held[0].begin - begin + step - 1) / step);
    const int64_t first = begin + skipped * step - held[0].begin;
    if (x.size(dim) > 0) {
      result.slice(dim, first, first + (x.size(dim) - 1) * step + 1, step)
          .copy_(x);
    }
    return result;
  })});
}

}  // namespace

void add_picked_decompositions(OpRegistry& ops) {
  ops.at("aten::select.int").decomposition = {select_applies, select};
  for (const char* name : {"aten::select_backward", "aten::slice_backward"}) {
    ops.at(name).decomposition = {
        gradient_is_sharded, picked_backward, gradient_lies_well};
  }
}

}  // namespace tessera::detail::inline tensor_layer
