#include "plan/transfer/part_spans.h"

#include <optional>
#include <utility>

#include "plan/transfer/region.h"

namespace tessera::detail::inline plan_layer {

namespace {

// By how much copies of one part lie further in the tensor than those of
// another, where they are alike otherwise.
std::optional<int64_t> shift_between(
    const StridedCopies& a, const StridedCopies& b,
    int64_t StridedCopy::*offset) {
  if (a.size() != b.size()) {
    return std::nullopt;
  }
  const int64_t shift = a.empty() ? 0 : b[0].*offset - a[0].*offset;
  for (size_t i = 0; i < a.size(); ++i) {
    StridedCopy moved = a[i];
    moved.*offset += shift;
    if (moved != b[i]) {
      return std::nullopt;
    }
  }
  return shift;
}

class PartFinder {
 public:
  PartFinder(
      const Layout& cut, const Layout& bare, int64_t mesh_dim,
      std::vector<int64_t> coordinate, PartSide side)
      : cut_(cut),
        mesh_dim_(static_cast<size_t>(mesh_dim)),
        coordinate_(std::move(coordinate)),
        side_(side),
        bare_(region_of(bare, coordinate_)) {}

  // Coordinates between two neighbours of the list have equally large parts.
  void find(const std::vector<int64_t>& bounds) {
    for (size_t i = 0; i + 1 < bounds.size(); ++i) {
      add(bounds[i], bounds[i + 1]);
    }
  }

  std::vector<PartSpan> take() { return std::move(spans_); }

 private:
  StridedCopies copies_at(int64_t c) {
    coordinate_[mesh_dim_] = c;
    const Region part = region_of(cut_, coordinate_);
    StridedCopies copies = side_ == PartSide::kToTensor
                               ? copies_between(part, bare_)
                               : packing(bare_, part);
    return total_numel(copies) == 0 ? StridedCopies() : copies;
  }

  void add(int64_t first, int64_t last) {
    if (first == last) {
      return;
    }
    PartSpan span{first, first + 1, 0, copies_at(first)};
    span.numel = total_numel(span.copies);
    const auto step = last - first == 1 ? std::optional<int64_t>()
                                        : shift_between(
                                              span.copies, copies_at(first + 1),
                                              tensor_offset(side_));
    if (step) {
      span.last = last;
      span.step = *step;
      spans_.push_back(std::move(span));
      return;
    }
    join(std::move(span));
    for (int64_t c = first + 1; c < last; ++c) {
      add(c, c + 1);
    }
  }

  // One coordinate more: at the end of the last span, or a span of its own.
  void join(PartSpan one) {
    if (!spans_.empty()) {
      PartSpan& before = spans_.back();
      const int64_t count = before.last - before.first;
      const auto shift =
          shift_between(before.copies, one.copies, tensor_offset(side_));
      if (shift && (count == 1 || *shift == count * before.step)) {
        before.step = *shift / count;
        ++before.last;
        return;
      }
    }
    spans_.push_back(std::move(one));
  }

  const Layout& cut_;
  size_t mesh_dim_;
  std::vector<int64_t> coordinate_;
  PartSide side_;
  Region bare_;
  std::vector<PartSpan> spans_;
};

// Ceil chunks: full ones, one that is shorter, none.
std::vector<int64_t> bounds_of_chunks(int64_t length, int64_t parts) {
  const int64_t each = (length + parts - 1) / parts;
  const int64_t full = each == 0 ? 0 : length / each;
  return {0, full, each > 0 && length % each != 0 ? full + 1 : full, parts};
}

std::vector<int64_t> all_bounds(int64_t parts) {
  std::vector<int64_t> bounds;
  for (int64_t c = 0; c <= parts; ++c) {
    bounds.push_back(c);
  }
  return bounds;
}

}  // namespace

int64_t StridedCopy::*tensor_offset(PartSide side) {
  return side == PartSide::kToTensor ? &StridedCopy::to : &StridedCopy::from;
}

int64_t StridedCopy::*part_offset(PartSide side) {
  return side == PartSide::kToTensor ? &StridedCopy::from : &StridedCopy::to;
}

std::vector<PartSpan> part_spans(
    const Layout& cut, const Layout& bare, int64_t mesh_dim,
    const std::vector<int64_t>& coordinate, PartSide side) {
  const Placement& placement = cut.placements()[static_cast<size_t>(mesh_dim)];
  const int64_t parts = cut.mesh().size(mesh_dim);
  PartFinder finder(cut, bare, mesh_dim, coordinate, side);
  finder.find(
      placement.is_plain_shard()
          ? bounds_of_chunks(
                bare.local_shape(
                    coordinate)[static_cast<size_t>(placement.dim())],
                parts)
          : all_bounds(parts));
  return finder.take();
}

}  // namespace tessera::detail::inline plan_layer
