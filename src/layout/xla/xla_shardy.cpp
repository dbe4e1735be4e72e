// Layout <-> Shardy: a list of mesh dims per tensor dim, outermost first.
#include <algorithm>
#include <optional>

#include <c10/util/Exception.h>
#include <c10/util/StringUtil.h>
#include <tessera/layout/xla.h>

#include "base/text.h"
#include "layout/cursor.h"
#include "layout/xla/xla_axes.h"

namespace tessera {
namespace {

using detail::Cursor;
using detail::XlaAxes;

constexpr const char* kTo = "to_shardy";
constexpr const char* kFrom = "from_shardy";

// Shardy has no mesh dims without names.
std::vector<std::string> placeholder_names(int64_t ndim) {
  std::vector<std::string> names;
  for (int64_t m = 0; m < ndim; ++m) {
    names.push_back(c10::str("_axis_", m));
  }
  return names;
}

std::vector<std::string> axis_names(const MeshShape& mesh) {
  return mesh.names().empty() ? placeholder_names(mesh.ndim()) : mesh.names();
}

std::string mesh_text(const MeshShape& mesh) {
  const std::vector<std::string> names = axis_names(mesh);
  std::vector<std::string> axes;
  for (int64_t m = 0; m < mesh.ndim(); ++m) {
    axes.push_back(
        c10::str("\"", names[static_cast<size_t>(m)], "\"=", mesh.size(m)));
  }
  std::string text =
      c10::str("sdy.mesh @mesh = <[", base::join(axes, ", "), "]");
  if (mesh.ndim() == 0 || !detail::is_iota(mesh)) {
    text += c10::str(", device_ids=[", base::join(mesh.ranks(), ", "), "]");
  }
  return text + ">";
}

std::string axes_text(
    const std::vector<std::string>& names, const std::vector<int64_t>& dims) {
  std::vector<std::string> axes;
  for (const int64_t m : dims) {
    axes.push_back(c10::str("\"", names[static_cast<size_t>(m)], "\""));
  }
  return c10::str("{", base::join(axes, ", "), "}");
}

void check_for_shardy(const char* call, const Layout& layout) {
  for (size_t d = 0; d < layout.shape().size(); ++d) {
    TORCH_CHECK_VALUE(
        layout.shape()[d] > 0 || layout.cuts(static_cast<int64_t>(d)).empty(),
        call, "(", layout, "): Shardy does not cut a dim of size 0; got ",
        layout.placements()[static_cast<size_t>(
            layout.cuts(static_cast<int64_t>(d))[0])],
        " for mesh dim ", layout.cuts(static_cast<int64_t>(d))[0],
        " and tensor dim ", d, "; use R");
  }
  const MeshShape& mesh = layout.mesh();
  TORCH_CHECK_VALUE(
      mesh.ndim() == 0 || mesh.names() != placeholder_names(mesh.ndim()), call,
      "(", layout,
      "): _axis_0, _axis_1, ... stand for mesh dims without "
      "names; give other names");
}

class ShardyReader {
 public:
  ShardyReader(std::string_view text, size_t ndim)
      : cursor_(kFrom, text), ndim_(ndim) {}

  MeshShape read_mesh() {
    expect_all({"sdy.mesh", "@"}, "sdy.mesh @mesh = <[...]>");
    mesh_name_ = cursor_.word();
    if (mesh_name_.empty()) {
      cursor_.fail("the name of the mesh");
    }
    expect_all({"=", "<", "["}, "= <[ after the name of the mesh");
    std::vector<std::string> names;
    std::vector<int64_t> sizes;
    if (!cursor_.accept("]")) {
      do {
        names.push_back(quoted());
        cursor_.expect("=", "'='");
        sizes.push_back(cursor_.number("a size"));
      } while (cursor_.accept(","));
      cursor_.expect("]", "',' or ']'");
    }
    std::optional<std::vector<int64_t>> devices = read_device_ids();
    if (sizes.empty() && !devices) {
      cursor_.fail(
          "device_ids, since a mesh without axes does not tell its device");
    }
    cursor_.expect(">", "'>'");
    if (names == placeholder_names(static_cast<int64_t>(names.size()))) {
      names.clear();
    }
    return devices
               ? MeshShape::from_ranks(
                     std::move(*devices), std::move(sizes), std::move(names))
               : MeshShape(std::move(sizes), std::move(names));
  }

  XlaAxes read_sharding(const MeshShape& mesh) {
    names_ = axis_names(mesh);
    used_.assign(names_.size(), false);
    expect_all({"#sdy.sharding", "<", "@"}, "#sdy.sharding<@mesh, ...>");
    const size_t begin = cursor_.offset();
    const std::string_view name = cursor_.word();
    if (name.empty() || (!mesh_name_.empty() && name != mesh_name_)) {
      cursor_.move_to(begin);
      cursor_.fail("the name of the mesh, " + std::string(mesh_name_));
    }
    cursor_.expect(",", "','");
    XlaAxes axes;
    read_dims(axes, mesh.ndim() == 0 ? 0 : ndim_);
    axes.dims.resize(ndim_);
    read_groups(axes);
    cursor_.expect(">", "'>'");
    cursor_.finish("the end after the sharding");
    return axes;
  }

 private:
  void expect_all(
      std::initializer_list<std::string_view> tokens, const char* expected) {
    for (const std::string_view token : tokens) {
      cursor_.expect(token, expected);
    }
  }

  std::string quoted() {
    cursor_.expect("\"", "an axis, such as \"x\"");
    const std::string_view word =
        cursor_.on_blank() ? std::string_view() : cursor_.word();
    if (word.empty() || cursor_.on_blank() || !cursor_.accept("\"")) {
      cursor_.fail("a name of letters, digits, '_', '.', '-', then '\"'");
    }
    return std::string(word);
  }

  std::optional<std::vector<int64_t>> read_device_ids() {
    if (!cursor_.accept(",")) {
      return std::nullopt;
    }
    expect_all({"device_ids", "=", "["}, "device_ids=[...]");
    std::vector<int64_t> devices;
    do {
      devices.push_back(cursor_.number("a device"));
    } while (cursor_.accept(","));
    cursor_.expect("]", "',' or ']'");
    return devices;
  }

  // On a mesh without axes there is one device and no dims are listed.
  void read_dims(XlaAxes& axes, size_t ndim) {
    cursor_.expect("[", "'[' and the tensor dims");
    if (!cursor_.sees("]")) {
      do {
        if (axes.dims.size() == ndim) {
          cursor_.fail(count_text(ndim));
        }
        axes.dims.push_back(read_dim());
      } while (cursor_.accept(","));
    }
    if (axes.dims.size() != ndim) {
      cursor_.fail(count_text(ndim));
    }
    cursor_.expect("]", "',' or ']'");
  }

  static std::string count_text(size_t ndim) {
    return std::to_string(ndim) + " tensor dims";
  }

  std::vector<int64_t> read_dim() {
    std::vector<int64_t> axes = read_axes();
    if (cursor_.sees("p")) {
      cursor_.fail("',' or ']'; priorities are wishes, no layout");
    }
    return axes;
  }

  std::vector<int64_t> read_axes() {
    cursor_.expect("{", "'{' and axes");
    std::vector<int64_t> axes;
    if (cursor_.accept("}")) {
      return axes;
    }
    do {
      if (cursor_.sees("?")) {
        cursor_.fail("a closed list of axes; open dims are no layout");
      }
      axes.push_back(read_axis());
    } while (cursor_.accept(","));
    cursor_.expect("}", "',' or '}'");
    return axes;
  }

  int64_t read_axis() {
    cursor_.skip_blanks();
    const size_t begin = cursor_.offset();
    const std::string name = quoted();
    const auto found = std::find(names_.begin(), names_.end(), name);
    if (found == names_.end()) {
      cursor_.move_to(begin);
      cursor_.fail("an axis of the mesh: " + base::join(names_, ", "));
    }
    const auto m = static_cast<size_t>(found - names_.begin());
    if (used_[m]) {
      cursor_.move_to(begin);
      cursor_.fail("an axis that has not been named before");
    }
    if (cursor_.sees(":")) {
      cursor_.fail(
          "a whole axis; give a mesh in which the parts of " + name +
          " are dims (MeshShape::unflatten)");
    }
    used_[m] = true;
    return static_cast<int64_t>(m);
  }

  void read_groups(XlaAxes& axes) {
    bool more = cursor_.accept(",");
    if (more && cursor_.accept("replicated")) {
      cursor_.expect("=", "'='");
      axes.replicated = read_group();
      more = cursor_.accept(",");
    }
    if (!more) {
      return;
    }
    cursor_.expect("unreduced", "unreduced={...}");
    cursor_.expect("=", "'='");
    if (cursor_.accept("max")) {
      axes.reduce_op = ReduceOp::kMax;
    } else if (cursor_.accept("min")) {
      axes.reduce_op = ReduceOp::kMin;
    }
    axes.unreduced = read_group();
  }

  std::vector<int64_t> read_group() {
    cursor_.skip_blanks();
    const size_t begin = cursor_.offset();
    std::vector<int64_t> axes = read_axes();
    if (axes.empty() || !std::is_sorted(axes.begin(), axes.end())) {
      cursor_.move_to(begin);
      cursor_.fail("axes in the order of the mesh");
    }
    return axes;
  }

  Cursor cursor_;
  size_t ndim_;
  std::string_view mesh_name_;  // "" where the text has no mesh
  std::vector<std::string> names_;
  std::vector<bool> used_;  // per mesh dim
};

Layout checked_layout(
    std::vector<int64_t> shape, MeshShape mesh, const XlaAxes& axes) {
  Layout layout =
      detail::layout_of_axes(kFrom, std::move(shape), std::move(mesh), axes);
  check_for_shardy(kFrom, layout);
  return layout;
}

}  // namespace

std::string to_shardy(const Layout& layout) {
  const XlaAxes axes = detail::xla_axes(kTo, layout);
  check_for_shardy(kTo, layout);
  const std::vector<std::string> names = axis_names(layout.mesh());
  std::vector<std::string> dims;
  for (const auto& cuts : axes.dims) {
    dims.push_back(axes_text(names, cuts));
  }
  if (layout.mesh().ndim() == 0) {
    dims.clear();
  }
  std::string text = c10::str(
      mesh_text(layout.mesh()), "\n#sdy.sharding<@mesh, [",
      base::join(dims, ", "), "]");
  if (!axes.unreduced.empty()) {
    text += c10::str(
        ", unreduced=",
        axes.reduce_op == ReduceOp::kSum ? "" : to_string(axes.reduce_op),
        axes_text(names, axes.unreduced));
  }
  return text + ">";
}

Layout from_shardy(std::string_view text, std::vector<int64_t> shape) {
  ShardyReader reader(text, shape.size());
  MeshShape mesh = reader.read_mesh();
  const XlaAxes axes = reader.read_sharding(mesh);
  return checked_layout(std::move(shape), std::move(mesh), axes);
}

Layout from_shardy(
    std::string_view text, std::vector<int64_t> shape, const MeshShape& mesh) {
  const XlaAxes axes = ShardyReader(text, shape.size()).read_sharding(mesh);
  return checked_layout(std::move(shape), mesh, axes);
}

}  // namespace tessera
