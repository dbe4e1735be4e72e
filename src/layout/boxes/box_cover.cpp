// Note [Covers by cancellation]
// Let f(x) = (number of boxes that hold x) - (1 if outer holds x). The boxes
// cover outer exactly iff f is 0 everywhere, and f is 0 iff its differences
// along all dims are. The difference of a box along one dim is +1 where it
// begins and -1 where it ends, so along all dims it is a sum over its corners
// with sign (-1)^(number of ends); f is 0 iff these signs cancel at every
// point.
//   [0:4] + [4:9] - [0:9]: at 0: +1 -1, at 4: -1 +1, at 9: -1 +1.
//
// Corners are not listed. Along the first dim the begins and ends at one place
// are signed faces (boxes of one dim less), which must cancel among themselves
// by the same rule; equal faces of opposite sign go first, and between the
// cells of a grid nothing else remains. At most n 2^d faces are sorted.
//
// Places are visited in ascending order, and before the first place where f is
// not 0 every difference is 0, so the first point without cancellation is the
// row-major first x with f(x) != 0.
#include "layout/boxes/box_cover.h"

#include <algorithm>

#include <c10/util/Exception.h>

#include "layout/arithmetic.h"

namespace tessera {

namespace {

struct Face {
  const Box* box;
  int64_t weight;
};

struct Edge {
  int64_t place;
  Face face;
};

// Orders boxes by what they are in dims `dim` and beyond.
int compare_from(const Box& a, const Box& b, size_t dim) {
  for (size_t d = dim; d < a.sizes.size(); ++d) {
    if (a.offsets[d] != b.offsets[d]) {
      return a.offsets[d] < b.offsets[d] ? -1 : 1;
    }
    if (a.sizes[d] != b.sizes[d]) {
      return a.sizes[d] < b.sizes[d] ? -1 : 1;
    }
  }
  return 0;
}

// Adds up faces that are equal in dims `dim` and beyond; drops those that
// cancel.
void cancel_equal(std::vector<Face>& faces, size_t dim) {
  std::sort(faces.begin(), faces.end(), [&](const Face& a, const Face& b) {
    return compare_from(*a.box, *b.box, dim) < 0;
  });
  size_t kept = 0;
  for (const Face& face : faces) {
    if (kept > 0 && compare_from(*faces[kept - 1].box, *face.box, dim) == 0) {
      faces[kept - 1].weight += face.weight;
      kept -= faces[kept - 1].weight == 0 ? 1 : 0;
    } else {
      faces[kept++] = face;
    }
  }
  faces.resize(kept);
}

// Returns the first point where the faces do not cancel, its coordinates of
// dims below `dim` not yet set.
std::optional<std::vector<int64_t>> first_left_over(
    std::vector<Face> faces, size_t dim, size_t ndim) {
  cancel_equal(faces, dim);
  if (faces.empty()) {
    return std::nullopt;
  }
  if (dim == ndim) {
    return std::vector<int64_t>(ndim);
  }
  std::vector<Edge> edges;
  for (const auto& [box, weight] : faces) {
    const int64_t begin = box->offsets[dim];
    edges.push_back({begin, {box, weight}});
    edges.push_back({detail::end_of(begin, box->sizes[dim]), {box, -weight}});
  }
  std::stable_sort(
      edges.begin(), edges.end(),
      [](const Edge& a, const Edge& b) { return a.place < b.place; });
  for (size_t i = 0; i < edges.size();) {
    const int64_t place = edges[i].place;
    std::vector<Face> here;
    for (; i < edges.size() && edges[i].place == place; ++i) {
      here.push_back(edges[i].face);
    }
    if (auto point = first_left_over(std::move(here), dim + 1, ndim)) {
      (*point)[dim] = place;
      return point;
    }
  }
  return std::nullopt;
}

}  // namespace

namespace detail::inline layout_layer {

std::optional<std::vector<int64_t>> first_miscovered(
    const std::vector<Box>& boxes, const Box& outer) {
  std::vector<Face> faces;
  if (!outer.empty()) {
    faces.push_back({&outer, -1});
  }
  for (const Box& box : boxes) {
    TORCH_CHECK_VALUE(
        box.ndim() == outer.ndim(), "is_exact_cover: the box ", to_string(box),
        " must have as many dims as the region ", to_string(outer));
    if (!box.empty()) {
      faces.push_back({&box, 1});
    }
  }
  return first_left_over(std::move(faces), 0, outer.sizes.size());
}

}  // namespace detail::inline layout_layer

bool is_exact_cover(const std::vector<Box>& boxes, const Box& outer) {
  return !detail::first_miscovered(boxes, outer).has_value();
}

}  // namespace tessera
