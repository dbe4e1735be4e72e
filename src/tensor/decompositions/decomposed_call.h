// A decomposed call at work: shards in, parts of small values, one collective
// per small value, shards out.
//
// Everything here also runs where nothing may be computed or sent: on ranks
// outside the mesh, and in dry runs. Parts and shards are therefore given as
// functions, which are called only on ranks that compute; elsewhere their
// values are undefined tensors, and results have specs only.
#pragma once

#include <functional>
#include <initializer_list>
#include <optional>
#include <string_view>
#include <utility>
#include <vector>

#include <tensor/call/decision.h>
#include <tensor/call/moves.h>
#include <tensor/call/op_call.h>
#include <tensor/impl/wrap.h>
#include <tensor/run/run_off_mesh.h>
#include <tensor/state/value_limits.h>

namespace tessera::detail::inline tensor_layer {

/// Mesh dims.
using MeshDims = std::vector<int64_t>;

class DecomposedCall {
 public:
  explicit DecomposedCall(const OpCall& call);

  const OpCall& call() const { return call_; }
  const DeviceMesh& mesh() const { return mesh_; }
  /// Returns this rank's place in the mesh; only where it computes.
  const std::vector<int64_t>& coordinate() const { return *mesh_.coordinate(); }
  bool computes() const { return computes_; }

  /// Returns an argument by name.
  const c10::IValue& argument(std::string_view name) const;
  /// Returns which argument of the schema has a name.
  size_t number(std::string_view name) const;
  bool has_argument(std::string_view name) const;
  at::Tensor tensor(std::string_view name) const;
  /// Returns an optional tensor; undefined where it is None.
  at::Tensor optional_tensor(std::string_view name) const;

  /// Returns the spec of a tensor; a plain one is replicated.
  SpecPtr spec(const at::Tensor& t) const;

  /// Returns the shard of a tensor argument in placements `target`; undefined
  /// where the tensor is, or where nothing is computed.
  at::Tensor shard(
      std::string_view argument, const at::Tensor& t, const Placements& target);

  /// Combines what the ranks along mesh dims `over` each have of a value:
  /// part() is this rank's, `spec` that of the value, replicated along `over`.
  template <class F>
  at::Tensor all_reduce(
      const SpecPtr& spec, const MeshDims& over, ReduceOp op, F part) {
    return reduce_to(
        with_placement(*spec, over, Partial(op)), spec,
        computes_ ? part() : at::Tensor());
  }

  /// Puts the parts of ranks along mesh dim `m` one after the other on tensor
  /// dim `dim`: coordinate c gives `lengths[c]` of its indices. `like` is the
  /// spec of a value that is not cut along `m`.
  template <class F>
  at::Tensor all_gather(
      const DTensorSpec& like, int64_t dim, int64_t m,
      const std::vector<int64_t>& lengths, F part) {
    const SpecPtr unsharded = with_size(like, dim, lengths);
    return reduce_to(
        with_placement(*unsharded, {m}, RaggedShard(dim, lengths)), unsharded,
        computes_ ? part() : at::Tensor());
  }

  /// Returns what each rank along mesh dims `over` has of a value, on a new
  /// first dim, by one collective: part() is this rank's, of the shape that
  /// `spec` says it has. `subject` names it in explanations.
  at::Tensor gathered(
      const SpecPtr& spec, const MeshDims& over, const char* subject,
      const std::function<at::Tensor()>& part) const;

  /// Brings this rank's shard of a value on the way from one layout to another.
  at::Tensor move_part(
      const SpecPtr& from, const SpecPtr& to, const at::Tensor& shard) {
    return move({0, from, to->placements()}, shard);
  }

  /// Wraps local(), this rank's shard of a result, in the order of dims of the
  /// spec.
  template <class F>
  at::Tensor wrap(const SpecPtr& spec, F local) const {
    return computes_ ? detail::wrap(arranged(local(), *spec), spec)
                     : wrap_without_data(spec, device_);
  }

  /// Says what is about to move, so that a StrictMode can forbid it.
  void announce(const Move& move) const;
  /// The same of rows of an argument that ranks along mesh dims `over` are
  /// about to exchange: bytes(coordinate) is what the rank there sends or
  /// receives, whichever is more.
  void announce_exchange(
      std::string_view argument, const SpecPtr& spec, const MeshDims& over,
      const std::function<int64_t(const std::vector<int64_t>&)>& bytes) const;
  /// Tells whether anybody asks what moves: an explanation, or a StrictMode.
  bool is_watched() const;

  /// Runs the operator itself on plain tensors of this rank: with the arguments
  /// of the call but for those named. Returns its results.
  std::vector<c10::IValue> run_operator(
      std::initializer_list<std::pair<std::string_view, c10::IValue>> with)
      const;

  /// Leaves the results in the place of the arguments.
  void finish(std::vector<c10::IValue> results) const;

 private:
  static SpecPtr with_placement(
      const DTensorSpec& spec, const MeshDims& dims, const Placement& p);
  static SpecPtr with_size(
      const DTensorSpec& like, int64_t dim,
      const std::vector<int64_t>& lengths);
  static at::Tensor arranged(const at::Tensor& local, const DTensorSpec& spec);
  void announce_collective(
      Move move, const char* kind, const char* subject, const MeshDims& over,
      const std::function<int64_t(const std::vector<int64_t>&)>& bytes) const;
  // Brings a value from one spec to another: the one place that communicates,
  // but for gathered() and exchanges.
  at::Tensor reduce_to(
      const SpecPtr& from, const SpecPtr& to, const at::Tensor& part);
  at::Tensor move(const Move& move, const at::Tensor& shard);

  const OpCall& call_;
  const DeviceMesh mesh_;
  c10::Device device_;
  bool computes_;
};

/// Returns the placements with Partial ones replaced by Replicate.
Placements without_partials(const Placements& placements);

/// What is left of a tensor when some of its dims are reduced.
struct Reduced {
  /// The reduced dims, ascending.
  std::vector<int64_t> dims;
  /// The placements that the operand must have: no Partial.
  Placements operand;
  /// The mesh dims that cut a reduced dim.
  MeshDims over;
  /// The spec of the value: other cuts stay; with and without the dims kept.
  SpecPtr kept;
  SpecPtr dropped;
  /// How many elements are reduced to one.
  int64_t count = 1;

  const SpecPtr& spec(bool keepdim) const { return keepdim ? kept : dropped; }
};

/// Returns what is left of a tensor of `self`; values have type `dtype`.
Reduced reduced(
    const DTensorSpec& self, const std::vector<bool>& dims,
    c10::ScalarType dtype);
/// The same for the dims that a call names in "dim"; all where it names none.
Reduced reduced_by_call(
    const DecomposedCall& decomposed, const DTensorSpec& self,
    c10::ScalarType dtype);

/// Tells whether a tensor of 4 dims lies as images with channels last do.
bool is_channels_last(const DTensorSpec& spec);
/// Returns the same spec, channels_last where `like` is, else contiguous.
SpecPtr in_format_of(const DTensorSpec& spec, const DTensorSpec& like);

/// Returns the type in which sums of a type are taken: f32 for f16 and bf16.
c10::ScalarType sum_type(c10::ScalarType dtype);
/// Returns a tensor in another type; an undefined one as it is.
inline at::Tensor as_type(const at::Tensor& t, c10::ScalarType dtype) {
  return t.defined() ? t.to(dtype) : t;
}

/// Returns the mesh dims that cut tensor dim `dim`.
MeshDims mesh_dims_of_shards(const Placements& placements, int64_t dim);
/// Tells whether a placement cuts a dim for which `dims` is true.
bool shards_any(const Placements& placements, const std::vector<bool>& dims);
/// Tells whether any dim is cut.
bool shards_any(const Placements& placements);

/// Returns the global index of every local one along tensor dim `dim`, int64.
at::Tensor positions(
    const DTensorSpec& spec, int64_t dim, const c10::Device& device);

/// Returns the length of tensor dim `dim`, which mesh dim `m` alone cuts, on
/// every coordinate of `m`.
std::vector<int64_t> lengths_along(
    const Layout& layout, int64_t dim, int64_t m);

}  // namespace tessera::detail::inline tensor_layer
