// Views of a range of a dim: slice, split. A cut of that dim stays where every
// rank keeps a run of what is left, which a ragged cut can say.
//   [10] S(0) over 4 (3 3 3 1), indices 2 .. 7 -> RS(0,[1,3,2,0])
#include <algorithm>
#include <limits>

#include <base/text.h>
#include <c10/util/Exception.h>
#include <layout/cut.h>
#include <rules/families/view_layout.h>

namespace tessera::detail::inline rules_layer {

namespace {

// Indices begin, begin + step, ... : `count` of them.
struct Range {
  int64_t begin;
  int64_t count;
  int64_t step;
};

int64_t count_steps(int64_t a, int64_t b) {
  return a <= 0 ? 0 : (a + b - 1) / b;
}

// Counts the indices of a range below `end`.
int64_t count_below(const Range& range, int64_t end) {
  return std::min(count_steps(end - range.begin, range.step), range.count);
}

// The only cut of a dim, as it takes part in a range.
class RangeSplit {
 public:
  RangeSplit(const ViewMaker& view, int64_t dim)
      : dim_(dim),
        mesh_dim_(view.cuts(dim)[0]),
        parts_(view.mesh().size(mesh_dim_)),
        size_(view.size(dim)),
        placement_(view.placements()[static_cast<size_t>(mesh_dim_)]) {}

  int64_t mesh_dim() const { return mesh_dim_; }
  int64_t parts() const { return parts_; }

  /// Returns how the range is cut, or nothing where that cannot be said.
  std::optional<Placement> of(const Range& range) const {
    if (placement_.is_contiguous()) {
      std::vector<int64_t> lengths;
      for (int64_t r = 0; r < parts_; ++r) {
        lengths.push_back(local(range, r).count);
      }
      return shard_of_lengths(dim_, std::move(lengths));
    }
    // Whole pieces of a strided cut.
    const int64_t factor = placement_.split_factor();
    if (!placement_.is_chunked() || range.step != 1 || size_ % factor != 0 ||
        size_ == 0) {
      return std::nullopt;
    }
    const int64_t piece = size_ / factor;
    if (range.begin % piece != 0 || range.count % piece != 0 ||
        range.count == 0) {
      return std::nullopt;
    }
    return range.count == piece ? Shard(dim_)
                                : StridedShard(dim_, range.count / piece);
  }

  /// Returns the range as indices of the shard at a coordinate.
  Range local(const Range& range, int64_t r) const {
    Range found{0, 0, range.step};
    int64_t before = 0;  // elements of the shard's earlier runs
    for (const Run& run : cut_runs(placement_, size_, parts_, r)) {
      const int64_t first = count_below(range, run.begin);
      const int64_t count = count_below(range, run.end) - first;
      if (found.count == 0 && count > 0) {
        found.begin = before + range.begin + first * range.step - run.begin;
      }
      found.count += count;
      before += run.length();
    }
    return found;
  }

 private:
  int64_t dim_;
  int64_t mesh_dim_;
  int64_t parts_;
  int64_t size_;
  Placement placement_;
};

Range wanted_range(const RuleCall& call, int64_t size) {
  const auto bound = [&](const char* name, int64_t otherwise) {
    const int64_t value = call.is_none(name) ? otherwise : call.integer(name);
    return std::clamp<int64_t>(value < 0 ? value + size : value, 0, size);
  };
  const int64_t step = call.integer("step");
  TORCH_CHECK(
      step > 0, call.schema().name(), ": the step must be positive; got ",
      step);
  const int64_t begin = bound("start", 0);
  const int64_t end = bound("end", std::numeric_limits<int64_t>::max());
  return {begin, count_steps(end - begin, step), step};
}

std::vector<int64_t> identity(int64_t ndim) {
  std::vector<int64_t> dims;
  for (int64_t d = 0; d < ndim; ++d) {
    dims.push_back(d);
  }
  return dims;
}

// The placements of a range of dim `dim`, of which the cut stays.
Placements ranged(
    ViewMaker& view, const RangeSplit& split, const Placement& of) {
  Placements placements = view.mapped(identity(view.ndim()));
  placements[static_cast<size_t>(split.mesh_dim())] = of;
  return placements;
}

std::vector<int64_t> wanted_lengths(const RuleCall& call, int64_t size) {
  if (call.has_argument("split_sizes")) {
    std::vector<int64_t> lengths = call.integers("split_sizes");
    int64_t total = 0;
    for (const int64_t length : lengths) {
      TORCH_CHECK(
          length >= 0, call.schema().name(),
          ": lengths must not be negative; got ", length);
      total += length;
    }
    TORCH_CHECK(
        total == size, call.schema().name(), ": the lengths [",
        base::join(lengths, ", "), "] must add up to the size of the dim, ",
        size);
    return lengths;
  }
  const int64_t length = call.integer("split_size");
  TORCH_CHECK(
      length > 0 || (length == 0 && size == 0), call.schema().name(),
      ": the length must be positive; got ", length, " for a dim of size ",
      size);
  std::vector<int64_t> lengths;
  for (int64_t begin = 0; begin < size; begin += length) {
    lengths.push_back(std::min(length, size - begin));
  }
  return lengths.empty() ? std::vector<int64_t>{0} : lengths;
}

// The lengths of the pieces at a coordinate.
std::vector<int64_t> local_lengths(
    const RangeSplit& split, const std::vector<int64_t>& lengths, int64_t r) {
  std::vector<int64_t> local;
  int64_t begin = 0;
  for (const int64_t length : lengths) {
    local.push_back(split.local({begin, length, 1}, r).count);
    begin += length;
  }
  return local;
}

// split() makes pieces of one length, of which the last may be shorter.
bool is_one_length(const std::vector<int64_t>& lengths) {
  const bool alike = std::all_of(
      lengths.begin(), lengths.end() - 1,
      [&](int64_t length) { return length == lengths[0]; });
  return alike && lengths.back() <= lengths[0] &&
         (lengths.back() > 0 || lengths.size() == 1);
}

// Tells whether split() by some length makes the pieces of every coordinate.
bool is_one_length_everywhere(
    const RangeSplit& split, const std::vector<int64_t>& lengths) {
  for (int64_t r = 0; r < split.parts(); ++r) {
    if (!is_one_length(local_lengths(split, lengths, r))) {
      return false;
    }
  }
  return true;
}

bool writes_out(const RuleCall& call) {
  return call.schema().arguments().back().is_out();
}

// The placements of the pieces of a dim whose only cut stays, or nothing.
std::optional<std::vector<Placement>> split_pieces(
    const RuleCall& call, const RangeSplit& split,
    const std::vector<int64_t>& lengths) {
  if ((is_copy(call) || writes_out(call)) &&
      !call.has_argument("split_sizes") &&
      !is_one_length_everywhere(split, lengths)) {
    return std::nullopt;
  }
  std::vector<Placement> pieces;
  int64_t begin = 0;
  for (const int64_t length : lengths) {
    const auto piece = split.of({begin, length, 1});
    if (!piece) {
      return std::nullopt;
    }
    pieces.push_back(*piece);
    begin += length;
  }
  return pieces;
}

}  // namespace

ViewLayout slice_view(
    const RuleCall& call, const MeshShape& mesh,
    const std::vector<int64_t>* coordinate) {
  ViewMaker view(call, mesh);
  const int64_t dim = wrap_dim(call.integer("dim"), view.ndim());
  TORCH_CHECK(
      view.ndim() > 0, call.schema().name(), ": a 0-d tensor has no dim");
  const Range range = wanted_range(call, view.size(dim));
  std::vector<int64_t> shape = view.shape();
  std::vector<int64_t> strides = view.strides();
  shape[static_cast<size_t>(dim)] = range.count;
  strides[static_cast<size_t>(dim)] *= range.step;
  const int64_t offset = range.begin * view.stride(dim);

  if (range.count == view.size(dim)) {
    view.add(shape, strides, view.mapped(identity(view.ndim())), offset);
    if (view.is_sharded(dim)) {
      view.local_argument("start", int64_t{0});
      view.local_argument("end", view.size(dim));
    }
    return view.take();
  }
  if (view.cuts(dim).size() == 1) {
    const RangeSplit split(view, dim);
    if (const auto of = split.of(range)) {
      view.add(shape, strides, ranged(view, split, *of), offset);
      if (coordinate != nullptr) {
        const auto m = static_cast<size_t>(split.mesh_dim());
        const Range local = split.local(range, (*coordinate)[m]);
        view.local_argument("start", local.begin);
        view.local_argument("end", local.begin + local.count * local.step);
      }
      return view.take();
    }
  }
  std::vector<int64_t> to = identity(view.ndim());
  to[static_cast<size_t>(dim)] = kNoDim;
  view.add(shape, strides, view.mapped(to), offset);
  return view.take();
}

ViewLayout split_view(
    const RuleCall& call, const MeshShape& mesh,
    const std::vector<int64_t>* coordinate) {
  ViewMaker view(call, mesh);
  TORCH_CHECK(
      view.ndim() > 0, call.schema().name(), ": a 0-d tensor has no dim");
  const int64_t dim = wrap_dim(call.integer("dim"), view.ndim());
  const std::vector<int64_t> lengths = wanted_lengths(call, view.size(dim));
  std::optional<std::vector<Placement>> pieces;
  if (view.cuts(dim).size() == 1 && !lengths.empty()) {
    const RangeSplit split(view, dim);
    pieces = split_pieces(call, split, lengths);
    if (pieces && coordinate != nullptr) {
      const auto m = static_cast<size_t>(split.mesh_dim());
      const std::vector<int64_t> local =
          local_lengths(split, lengths, (*coordinate)[m]);
      if (call.has_argument("split_sizes")) {
        view.local_argument("split_sizes", local);
      } else if (is_one_length_everywhere(split, lengths)) {
        view.local_argument("split_size", local[0]);
      }
    }
    if (pieces && !call.has_argument("split_sizes") &&
        !is_one_length_everywhere(split, lengths)) {
      view.run_by(RunBy::kSplit);
    }
  }
  if (!pieces) {
    view.drop_shards(dim);
  }
  int64_t begin = 0;
  for (size_t i = 0; i < lengths.size(); ++i) {
    std::vector<int64_t> shape = view.shape();
    shape[static_cast<size_t>(dim)] = lengths[i];
    Placements placements = view.mapped(identity(view.ndim()));
    for (Placement& p : placements) {
      p = pieces && p.is_shard(dim) ? (*pieces)[i] : p;
    }
    view.add(
        std::move(shape), view.strides(), std::move(placements),
        begin * view.stride(dim));
    begin += lengths[i];
  }
  return view.take();
}

}  // namespace tessera::detail::inline rules_layer
