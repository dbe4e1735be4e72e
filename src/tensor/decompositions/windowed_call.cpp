#include <tensor/decompositions/windowed_call.h>

#include <algorithm>
#include <functional>

#include <c10/util/accumulate.h>

namespace tessera::detail::inline tensor_layer {

namespace {

bool all_shards_of(
    const Placements& placements, int64_t dim,
    bool (Placement::*holds)() const) {
  return std::all_of(
      placements.begin(), placements.end(),
      [&](const Placement& p) { return !p.is_shard(dim) || (p.*holds)(); });
}

// The placements, with plain shards of the dims from `first_dim` on whose
// shards are not all what is asked for.
Placements with_plain_shards(
    const Placements& placements, int64_t first_dim,
    const std::function<bool(int64_t)>& keeps) {
  Placements result = placements;
  for (Placement& p : result) {
    if (p.is_shard() && p.dim() >= first_dim && !keeps(p.dim())) {
      p = Shard(p.dim());
    }
  }
  return result;
}

// Ranks exchange what lies between neighbours, so each must hold one run.
SpecPtr in_runs(const DTensorSpec& operand, int64_t first_dim) {
  const Placements given = without_partials(operand.placements());
  return operand.contiguous(
      with_plain_shards(
          given, first_dim,
          [&](int64_t dim) {
            return all_shards_of(given, dim, &Placement::is_contiguous);
          }),
      operand.dtype());
}

}  // namespace

WindowedCall::WindowedCall(
    const DTensorSpec& operand, const std::vector<int64_t>& shape,
    int64_t first_dim, Halo::ReadBy read_by)
    : operand_(in_runs(operand, first_dim)), read_by_(std::move(read_by)) {
  const Placements& given = operand_->placements();
  for (size_t m = 0; m < given.size(); ++m) {
    if (given[m].is_shard() && given[m].dim() >= first_dim) {
      over_.push_back(static_cast<int64_t>(m));
    }
  }
  // Lengths of ragged shards fit one size alone.
  const auto keeps = [&](int64_t dim) {
    const auto d = static_cast<size_t>(dim);
    return shape[d] == operand.shape()[d] ||
           all_shards_of(given, dim, &Placement::fits_any_size);
  };
  result_ = DTensorSpec::make(
      operand.mesh(), with_plain_shards(given, first_dim, keeps), shape,
      operand.dtype());
}

bool WindowedCall::is_sharded(int64_t dim) const {
  for (const int64_t m : over_) {
    if (operand_->placements()[static_cast<size_t>(m)].is_shard(dim)) {
      return true;
    }
  }
  return false;
}

void WindowedCall::follow_format(const DTensorSpec& like) {
  operand_ = in_format_of(*operand_, like);
  result_ = in_format_of(*result_, like);
}

void WindowedCall::announce(
    const DecomposedCall& decomposed, std::string_view argument,
    int64_t times) const {
  if (times == 0) {
    return;
  }
  decomposed.announce_exchange(
      argument, operand_, over_, [&](const std::vector<int64_t>& at) {
        return times * halo_at(at).elements_moved() *
               static_cast<int64_t>(c10::elementSize(operand_->dtype()));
      });
}

Halo WindowedCall::halo_at(const std::vector<int64_t>& coordinate) const {
  return Halo(
      operand_->layout(), result_->layout(), over_, coordinate, read_by_);
}

Halo WindowedCall::halo(const DecomposedCall& decomposed) const {
  return halo_at(decomposed.coordinate());
}

Communicator WindowedCall::group(const DecomposedCall& decomposed) const {
  return decomposed.mesh().communicator_over(
      over_.empty() ? MeshDims{0} : over_);  // none exchanges: any will do
}

bool shards_windows(const Placements& placements, int64_t first_dim) {
  return std::any_of(
      placements.begin(), placements.end(),
      [&](const Placement& p) { return p.is_shard() && p.dim() >= first_dim; });
}

// Of even shards the last rank's are the smallest; rules make others even.
bool wants_windowed_call(
    const Operand& operand, int64_t first_dim, const MeshShape& mesh) {
  if (shards_windows(*operand.placements, first_dim)) {
    return true;
  }
  std::vector<int64_t> last;
  for (int64_t m = 0; m < mesh.ndim(); ++m) {
    last.push_back(mesh.size(m) - 1);
  }
  const Layout layout(
      operand.shape.vec(), mesh, without_partials(*operand.placements));
  return c10::multiply_integers(layout.local_shape(last)) == 0;
}

}  // namespace tessera::detail::inline tensor_layer
