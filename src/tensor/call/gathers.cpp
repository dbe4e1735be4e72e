#include <tensor/call/gathers.h>

#include <algorithm>

#include <c10/util/accumulate.h>

namespace tessera::detail::inline tensor_layer {

namespace {

int64_t part_count(const MeshShape& mesh, const Placements& placements) {
  int64_t parts = 1;
  for (size_t m = 0; m < placements.size(); ++m) {
    parts *= placements[m].is_shard() ? mesh.size(static_cast<int64_t>(m)) : 1;
  }
  return parts;
}

int64_t local_numel(const DTensorSpec& spec, const Placements& placements) {
  return c10::multiply_integers(
      Layout(spec.shape(), spec.mesh().mesh_shape(), placements)
          .local_shape(*spec.mesh().coordinate()));
}

}  // namespace

bool is_gather(
    const DTensorSpec& like, const Placements& from, const Placements& to) {
  const MeshShape& mesh = like.mesh().mesh_shape();
  return part_count(mesh, to) < part_count(mesh, from) &&
         c10::multiply_integers(like.shape()) > 1;
}

int64_t gained_bytes(const DTensorSpec& source, const Placements& target) {
  if (!source.mesh().coordinate()) {
    return 0;
  }
  const int64_t gained =
      local_numel(source, target) - local_numel(source, source.placements());
  return std::max<int64_t>(gained, 0) *
         static_cast<int64_t>(c10::elementSize(source.dtype()));
}

}  // namespace tessera::detail::inline tensor_layer
