#include <tessera/layout/layout.h>

#include <algorithm>
#include <ostream>

#include <c10/util/Exception.h>
#include <c10/util/StringUtil.h>
#include <tessera/layout/notation.h>

#include "base/hash.h"
#include "base/text.h"
#include "layout/arithmetic.h"
#include "layout/cut.h"

namespace tessera {

namespace {
using detail::Run;
using detail::Runs;
}  // namespace

using detail::Cut;

Runs cut_runs(
    const Placement& placement, int64_t length, int64_t parts,
    int64_t coordinate) {
  TORCH_CHECK_VALUE(
      length >= 0 && parts >= 1, "cut_runs(", placement,
      "): the length must not be negative and there is at least 1 part; got "
      "length ",
      length, ", parts ", parts);
  TORCH_CHECK_INDEX(
      coordinate >= 0 && coordinate < parts, "cut_runs(", placement,
      "): the coordinate must be one of 0 .. ", parts - 1, "; got ",
      coordinate);
  if (!placement.is_shard()) {
    Runs all;
    detail::append_run(all, {0, length});
    return all;
  }
  TORCH_CHECK_VALUE(
      placement.fits_any_size() ||
          (static_cast<int64_t>(placement.sizes().size()) == parts &&
           placement.begins().back() == length),
      "cut_runs(", placement, "): wants ", parts, " lengths that add up to ",
      length, "; got ", placement.sizes().size(), " that add up to ",
      placement.begins().back());
  return Cut(placement, parts).runs(length, coordinate);
}

int64_t total_length(const Runs& runs) {
  int64_t length = 0;
  for (const Run& run : runs) {
    length += run.length();
  }
  return length;
}

namespace {

// The layout as the caller gave it, for errors.
std::string describe(
    const std::vector<int64_t>& shape, const MeshShape& mesh,
    const Placements& placements) {
  return c10::str(
      "Layout(", shape_to_string(shape), " ", to_string(placements),
      placements.empty() ? "" : " ", "@ ", mesh, ")");
}

class LayoutCheck {
 public:
  LayoutCheck(
      const std::vector<int64_t>& shape, const MeshShape& mesh,
      Placements& placements)
      : shape_(shape), mesh_(mesh), placements_(placements) {}

  void shape_and_count() const {
    for (size_t d = 0; d < shape_.size(); ++d) {
      TORCH_CHECK_VALUE(
          shape_[d] >= 0, text(), ": sizes must not be negative; got ",
          shape_[d], " for tensor dim ", d);
    }
    TORCH_CHECK_VALUE(
        detail::checked_product(shape_).has_value(), text(),
        ": the number of elements exceeds 64 bits");
    TORCH_CHECK_VALUE(
        static_cast<int64_t>(placements_.size()) == mesh_.ndim(), text(),
        ": give one placement per mesh dim; got ", placements_.size(),
        " placements for ", mesh_.ndim(), " mesh dims");
  }

  void partial_kinds() const {
    const auto adds = [](const Placement* p) {
      return p->reduce_op() == ReduceOp::kSum ||
             p->reduce_op() == ReduceOp::kAvg;
    };
    const Placement* first = nullptr;
    for (const Placement& p : placements_) {
      if (!p.is_partial()) {
        continue;
      }
      first = first == nullptr ? &p : first;
      TORCH_CHECK_VALUE(
          p == *first || (adds(&p) && adds(first)), text(),
          ": partial kinds do not mix, except sum with avg, since their "
          "reductions do not commute; got ",
          *first, " and ", p);
    }
  }

  // Counts negative tensor dims from the end.
  void tensor_dims() const {
    const auto ndim = static_cast<int64_t>(shape_.size());
    for (size_t m = 0; m < placements_.size(); ++m) {
      Placement& p = placements_[m];
      if (!p.is_shard()) {
        continue;
      }
      TORCH_CHECK_INDEX(
          ndim > 0, text(), ": a 0-d tensor has no dim to cut; got ", p,
          " for mesh dim ", m, "; use R");
      TORCH_CHECK_INDEX(
          p.dim() >= -ndim && p.dim() < ndim, text(), ": tensor dims are ",
          -ndim, " .. ", ndim - 1, "; got ", p, " for mesh dim ", m);
      p = p.resolved(ndim);
    }
  }

  // Returns the mesh dims that cut tensor dim `d`, in order of application, and
  // drops orders that say nothing.
  std::vector<int64_t> cuts_of(int64_t d) const {
    std::vector<int64_t> cuts;
    int64_t ordered = 0;
    for (int64_t m = 0; m < mesh_.ndim(); ++m) {
      if (at(m).is_shard(d)) {
        cuts.push_back(m);
        ordered += at(m).order() >= 0 ? 1 : 0;
      }
    }
    if (ordered == 0) {
      return cuts;
    }
    const auto count = static_cast<int64_t>(cuts.size());
    std::vector<int64_t> by_order(cuts.size(), -1);
    for (int64_t m : cuts) {
      const int64_t order = at(m).order();
      TORCH_CHECK_VALUE(
          order >= 0 && order < count &&
              by_order[static_cast<size_t>(order)] < 0,
          text(), ": the cuts of tensor dim ", d, " have turns [0] .. [",
          count - 1, "], each once, or none has; got ", at(m), " for mesh dim ",
          m);
      by_order[static_cast<size_t>(order)] = m;
    }
    if (by_order == cuts) {
      for (int64_t m : cuts) {
        at(m) = at(m).with_order(-1);
      }
    }
    return by_order;
  }

  void ragged_count(int64_t m) const {
    TORCH_CHECK_VALUE(
        static_cast<int64_t>(at(m).sizes().size()) == mesh_.size(m), text(),
        ": ", at(m), " must give one length per coordinate of mesh dim ", m,
        "; got ", at(m).sizes().size(), " lengths for ", mesh_.size(m),
        " coordinates");
  }

  // Lengths add up at every coordinate of the earlier cuts only if all those
  // lists are equally long. Uneven lists stay uneven however they are cut,
  // since parts of equal length would make lists of equal length.
  void ragged_sums(
      int64_t d, const std::vector<int64_t>& cuts,
      const std::vector<Cut>& rules) const {
    int64_t length = shape_[static_cast<size_t>(d)];
    bool even = true;
    for (size_t i = 0; i < cuts.size(); ++i) {
      const Placement& p = at(cuts[i]);
      if (!p.fits_any_size()) {
        TORCH_CHECK_VALUE(
            even, text(), ": ", p,
            " cuts lists of different lengths, since "
            "an earlier cut of tensor dim ",
            d, " is uneven; apply the ragged cut first (turn [0])");
        TORCH_CHECK_VALUE(
            p.begins().back() == length, text(), ": the lengths of ", p,
            " must add up to what mesh dim ", cuts[i], " cuts, ", length,
            " of tensor dim ", d, "; got ", p.begins().back());
      }
      even = even && rules[i].is_even(length);
      length = rules[i].part_length(length, 0);
    }
  }

 private:
  std::string text() const { return describe(shape_, mesh_, placements_); }
  Placement& at(int64_t m) const { return placements_[static_cast<size_t>(m)]; }

  const std::vector<int64_t>& shape_;
  const MeshShape& mesh_;
  Placements& placements_;
};

}  // namespace

Layout::Layout(
    std::vector<int64_t> shape, MeshShape mesh, Placements placements)
    : shape_(std::move(shape)),
      mesh_(std::move(mesh)),
      placements_(std::move(placements)) {
  const LayoutCheck check(shape_, mesh_, placements_);
  check.shape_and_count();
  check.partial_kinds();
  check.tensor_dims();
  for (size_t m = 0; m < placements_.size(); ++m) {
    if (!placements_[m].fits_any_size()) {
      check.ragged_count(static_cast<int64_t>(m));
    }
  }
  for (size_t d = 0; d < shape_.size(); ++d) {
    cuts_.push_back(check.cuts_of(static_cast<int64_t>(d)));
    std::vector<Cut> rules;
    for (int64_t m : cuts_[d]) {
      rules.push_back(cut(m));
    }
    check.ragged_sums(static_cast<int64_t>(d), cuts_[d], rules);
  }
}

Cut Layout::cut(int64_t mesh_dim) const {
  return Cut(placements_[static_cast<size_t>(mesh_dim)], mesh_.size(mesh_dim));
}

void Layout::check_coordinate(
    const char* call, const std::vector<int64_t>& coordinate) const {
  bool inside = static_cast<int64_t>(coordinate.size()) == mesh_.ndim();
  for (size_t m = 0; inside && m < coordinate.size(); ++m) {
    inside = coordinate[m] >= 0 &&
             coordinate[m] < mesh_.size(static_cast<int64_t>(m));
  }
  TORCH_CHECK_INDEX(
      inside, call, " of ", to_string(*this),
      ": the coordinate must be one of the mesh; got [",
      base::join(coordinate, ", "), "]");
}

bool Layout::has_partial() const {
  return std::any_of(
      placements_.begin(), placements_.end(),
      [](const Placement& p) { return p.is_partial(); });
}

bool Layout::is_replicated() const {
  return std::all_of(
      placements_.begin(), placements_.end(),
      [](const Placement& p) { return p.is_replicate(); });
}

bool Layout::is_even() const {
  for (size_t d = 0; d < shape_.size(); ++d) {
    int64_t length = shape_[d];
    for (int64_t m : cuts_[d]) {
      if (!cut(m).is_even(length)) {
        return false;
      }
      length = cut(m).part_length(length, 0);
    }
  }
  return true;
}

Runs Layout::runs(
    int64_t tensor_dim, const std::vector<int64_t>& coordinate) const {
  TORCH_CHECK_INDEX(
      tensor_dim >= 0 && tensor_dim < static_cast<int64_t>(shape_.size()),
      "Layout::runs of ", to_string(*this), ": the tensor has ", shape_.size(),
      " dims; got dim ", tensor_dim);
  check_coordinate("Layout::runs", coordinate);
  const auto d = static_cast<size_t>(tensor_dim);
  Runs held;
  detail::append_run(held, {0, shape_[d]});
  int64_t length = shape_[d];
  for (int64_t m : cuts_[d]) {
    const int64_t r = coordinate[static_cast<size_t>(m)];
    held = detail::select_runs(held, cut(m).runs(length, r));
    length = cut(m).part_length(length, r);
  }
  return held;
}

std::vector<int64_t> Layout::local_shape(
    const std::vector<int64_t>& coordinate) const {
  check_coordinate("Layout::local_shape", coordinate);
  std::vector<int64_t> local = shape_;
  for (size_t d = 0; d < shape_.size(); ++d) {
    for (int64_t m : cuts_[d]) {
      local[d] =
          cut(m).part_length(local[d], coordinate[static_cast<size_t>(m)]);
    }
  }
  return local;
}

bool operator==(const Layout& a, const Layout& b) {
  return a.shape_ == b.shape_ && a.placements_ == b.placements_ &&
         a.mesh_ == b.mesh_;
}

size_t Layout::hash() const {
  return base::hash_combine(
      base::hash_combine(mesh_.hash(), shape_), placements_);
}

std::vector<int64_t> local_shape(
    const std::vector<int64_t>& shape, const MeshShape& mesh,
    const Placements& placements, const std::vector<int64_t>& coordinate) {
  return Layout(shape, mesh, placements).local_shape(coordinate);
}

Box local_box(
    const std::vector<int64_t>& shape, const MeshShape& mesh,
    const Placements& placements, const std::vector<int64_t>& coordinate) {
  return Layout(shape, mesh, placements).box(coordinate);
}

std::string to_string(const Layout& layout) {
  std::string text = shape_to_string(layout.shape());
  for (const Placement& placement : layout.placements()) {
    text += c10::str(" ", placement);
  }
  return text + " @ " + to_string(layout.mesh());
}

std::ostream& operator<<(std::ostream& out, const Layout& layout) {
  return out << to_string(layout);
}

}  // namespace tessera
