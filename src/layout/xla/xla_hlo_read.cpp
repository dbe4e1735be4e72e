// HloSharding -> Layout on a known mesh: a step along a mesh dim moves one tile
// index (a cut, and the length of the step tells its order), or the index of
// the partial value, or nothing.
#include <algorithm>

#include <c10/util/Exception.h>
#include <tessera/layout/notation.h>
#include <tessera/layout/xla.h>

#include "layout/arithmetic.h"
#include "layout/xla/xla_axes.h"
#include "layout/xla/xla_hlo_text.h"

namespace tessera {
namespace {

using detail::HloText;
using detail::XlaAxes;

constexpr int64_t kMostDevices = int64_t{1} << 20;

std::vector<int64_t> dims_of_several(const MeshShape& mesh) {
  std::vector<int64_t> dims;
  for (int64_t m = 0; m < mesh.ndim(); ++m) {
    if (mesh.size(m) > 1) {
      dims.push_back(m);
    }
  }
  return dims;
}

// The devices in row-major order of the tiles.
std::vector<int64_t> listed_devices(const HloText& hlo) {
  if (!hlo.devices.empty()) {
    return hlo.devices;
  }
  std::vector<int64_t> strides(hlo.iota_sizes.size(), 1);
  for (size_t i = strides.size() - 1; i-- > 0;) {
    strides[i] = strides[i + 1] * hlo.iota_sizes[i + 1];
  }
  std::vector<int64_t> limits, devices;
  for (const int64_t at : hlo.iota_order) {
    limits.push_back(hlo.iota_sizes[static_cast<size_t>(at)]);
  }
  std::vector<int64_t> digits(limits.size(), 0);
  do {
    int64_t device = 0;
    for (size_t i = 0; i < digits.size(); ++i) {
      device += digits[i] * strides[static_cast<size_t>(hlo.iota_order[i])];
    }
    devices.push_back(device);
  } while (detail::next_row_major(digits, limits));
  return devices;
}

// What one device holds: its tile, and which partial value of it.
struct Held {
  std::vector<int64_t> tile;
  int64_t partial = 0;
};

std::vector<Held> held_by_device(const HloText& hlo) {
  const std::vector<int64_t> devices = listed_devices(hlo);
  const size_t ndim = hlo.tiles.size() - hlo.groups.size();
  std::vector<Held> held(devices.size());
  std::vector<int64_t> digits(hlo.tiles.size(), 0);
  for (const int64_t device : devices) {
    Held& mine = held[static_cast<size_t>(device)];
    mine.tile.assign(
        digits.begin(), digits.begin() + static_cast<std::ptrdiff_t>(ndim));
    for (size_t g = 0; g < hlo.groups.size(); ++g) {
      if (hlo.groups[g] == HloText::Group::kUnreduced) {
        mine.partial = mine.partial * hlo.tiles[ndim + g] + digits[ndim + g];
      }
    }
    detail::next_row_major(digits, hlo.tiles);
  }
  return held;
}

class KnownMesh {
 public:
  KnownMesh(const HloText& hlo, size_t ndim, const MeshShape& mesh)
      : hlo_(hlo), mesh_(mesh), cut_(ndim) {}

  XlaAxes axes() {
    check_devices();
    held_ = held_by_device(hlo_);
    steps_.assign(static_cast<size_t>(mesh_.ndim()), 0);
    for (int64_t m = 0; m < mesh_.ndim(); ++m) {
      look_along(m);
    }
    check_every_device();
    XlaAxes axes;
    for (auto& cuts : cut_) {
      std::sort(cuts.begin(), cuts.end(), [&](int64_t a, int64_t b) {
        return step(a) > step(b);
      });
      axes.dims.push_back(cuts);
    }
    axes.unreduced = unreduced_;
    axes.reduce_op = hlo_.reduce_op;
    return axes;
  }

 private:
  int64_t& step(int64_t m) { return steps_[static_cast<size_t>(m)]; }
  const Held& at(const std::vector<int64_t>& coordinate) const {
    return held_[static_cast<size_t>(mesh_.rank_at(coordinate))];
  }

  void check_devices() const {
    const auto devices = detail::checked_product(hlo_.tiles);
    TORCH_CHECK_VALUE(
        devices == mesh_.size() && mesh_.max_rank() == mesh_.size() - 1,
        detail::kFromHloSharding, " on ", mesh_,
        ": the text and the mesh must have the same devices; "
        "the text has 0 .. ",
        *devices - 1, ", the mesh has ", mesh_.size(), " up to ",
        mesh_.max_rank());
    TORCH_CHECK_VALUE(
        mesh_.size() <= kMostDevices, detail::kFromHloSharding, " on ", mesh_,
        ": looks at each device, and at most at ", kMostDevices, "; got ",
        mesh_.size(), "; leave the mesh out");
  }

  void look_along(int64_t m) {
    if (mesh_.size(m) == 1) {
      return;
    }
    std::vector<int64_t> coordinate(static_cast<size_t>(mesh_.ndim()), 0);
    const Held& here = at(coordinate);
    coordinate[static_cast<size_t>(m)] = 1;
    const Held& next = at(coordinate);
    for (size_t d = 0; d < cut_.size(); ++d) {
      if (here.tile[d] != next.tile[d]) {
        TORCH_CHECK_VALUE(
            step(m) == 0, detail::kFromHloSharding, " on ", mesh_,
            ": mesh dim ", m,
            " moves along two tensor dims at once, the second is ", d,
            "; leave the mesh out to get the one that the text speaks of");
        step(m) = next.tile[d] - here.tile[d];
        cut_[d].push_back(m);
      }
    }
    if (step(m) == 0 && here.partial != next.partial) {
      unreduced_.push_back(m);
    }
  }

  // The tile of a coordinate is the sum of its steps, and its partial value
  // depends on the mesh dims of partial values alone.
  void check_every_device() {
    int64_t partials = 1;
    for (const int64_t m : unreduced_) {
      partials *= mesh_.size(m);
    }
    std::vector<int64_t> known(static_cast<size_t>(partials), -1);
    const std::vector<int64_t> limits = mesh_.sizes();
    std::vector<int64_t> coordinate(limits.size(), 0);
    bool right = partials == partial_count();
    do {
      int64_t which = 0;
      for (const int64_t m : unreduced_) {
        which = which * mesh_.size(m) + coordinate[static_cast<size_t>(m)];
      }
      const Held& held = at(coordinate);
      int64_t& partial = known[static_cast<size_t>(which)];
      partial = partial < 0 ? held.partial : partial;
      right = right && partial == held.partial && held.tile == tile(coordinate);
      TORCH_CHECK_VALUE(
          right, detail::kFromHloSharding, " on ", mesh_,
          ": the tiles of the text do not follow "
          "the dims of this mesh; got tile ",
          shape_to_string(held.tile), " at coordinate ",
          shape_to_string(coordinate), " for device ",
          mesh_.rank_at(coordinate),
          "; leave the mesh out to get the one that the text speaks of");
    } while (detail::next_row_major(coordinate, limits));
  }

  int64_t partial_count() const {
    const size_t ndim = cut_.size();
    int64_t count = 1;
    for (size_t g = 0; g < hlo_.groups.size(); ++g) {
      if (hlo_.groups[g] == HloText::Group::kUnreduced) {
        count *= hlo_.tiles[ndim + g];
      }
    }
    return count;
  }

  std::vector<int64_t> tile(const std::vector<int64_t>& coordinate) {
    std::vector<int64_t> result(cut_.size(), 0);
    for (size_t d = 0; d < cut_.size(); ++d) {
      for (const int64_t m : cut_[d]) {
        result[d] += coordinate[static_cast<size_t>(m)] * step(m);
      }
    }
    return result;
  }

  const HloText& hlo_;
  const MeshShape& mesh_;
  std::vector<Held> held_;                 // per device
  std::vector<std::vector<int64_t>> cut_;  // per tensor dim, mesh dims
  std::vector<int64_t> steps_;             // per mesh dim, in tiles
  std::vector<int64_t> unreduced_;         // mesh dims
};

}  // namespace

Layout from_hlo_sharding(
    std::string_view text, std::vector<int64_t> shape, const MeshShape& mesh) {
  const HloText hlo =
      detail::parse_hlo_text(text, static_cast<int64_t>(shape.size()));
  XlaAxes axes;
  axes.reduce_op = hlo.reduce_op;
  switch (hlo.kind) {
    case HloText::Kind::kReplicated:
      break;
    case HloText::Kind::kUnreduced:
      axes.unreduced = dims_of_several(mesh);
      break;
    case HloText::Kind::kMaximal:
      TORCH_CHECK_VALUE(
          mesh.size() == 1 && mesh.max_rank() == hlo.device,
          detail::kFromHloSharding, " on ", mesh,
          ": the text puts the tensor on device ", hlo.device,
          " alone; give the mesh of that rank alone, or leave it out");
      break;
    case HloText::Kind::kTiled:
      axes = KnownMesh(hlo, shape.size(), mesh).axes();
  }
  return detail::layout_of_axes(
      detail::kFromHloSharding, std::move(shape), mesh, axes);
}

}  // namespace tessera
