#include <tessera/layout/notation.h>

#include <array>

#include <c10/util/Exception.h>
#include <c10/util/StringUtil.h>

#include "base/text.h"
#include "layout/cursor.h"

namespace tessera {
namespace {

using detail::Cursor;

constexpr const char* kPlacement =
    "a placement: R, S(0), SS(0,2), RS(0,[3,0,5]) or P(sum)";

ReduceOp read_reduce_op(Cursor& cursor) {
  cursor.skip_blanks();
  const size_t begin = cursor.offset();
  const std::string_view word = cursor.word();
  constexpr std::array kOps{
      ReduceOp::kSum, ReduceOp::kAvg, ReduceOp::kMax, ReduceOp::kMin,
      ReduceOp::kProduct};
  for (ReduceOp op : kOps) {
    if (word == to_string(op)) {
      return op;
    }
  }
  cursor.move_to(begin);
  cursor.fail("sum, avg, max, min or product");
}

// Reads "1, 2, 3" up to `close`, commas between numbers.
std::vector<int64_t> read_list(
    Cursor& cursor, const char* close, const char* item) {
  std::vector<int64_t> list;
  if (cursor.accept(close)) {
    return list;
  }
  do {
    list.push_back(cursor.number(item));
  } while (cursor.accept(","));
  if (!cursor.accept(close)) {
    cursor.fail(c10::str("',' or '", close, "'"));
  }
  return list;
}

Placement read_shard(Cursor& cursor, std::string_view word) {
  const int64_t dim = cursor.number("a tensor dim");
  if (word == "S") {
    cursor.expect(")", "')'");
    return Shard(dim);
  }
  cursor.expect(",", "','");
  if (word == "SS") {
    const int64_t factor = cursor.number("a split factor");
    cursor.expect(")", "')'");
    return StridedShard(dim, factor);
  }
  cursor.expect("[", "'[' before the lengths");
  std::vector<int64_t> sizes = read_list(cursor, "]", "a length");
  cursor.expect(")", "')'");
  return RaggedShard(dim, std::move(sizes));
}

Placement read_placement(Cursor& cursor) {
  cursor.skip_blanks();
  const size_t begin = cursor.offset();
  const std::string_view word = cursor.word();
  if (word == "R") {
    return Replicate();
  }
  if (word != "S" && word != "SS" && word != "RS" && word != "P") {
    cursor.move_to(begin);
    cursor.fail(kPlacement);
  }
  cursor.expect("(", "'('");
  if (word == "P") {
    const ReduceOp op = read_reduce_op(cursor);
    cursor.expect(")", "')'");
    return Partial(op);
  }
  Placement shard = read_shard(cursor, word);
  if (!cursor.on_blank() && cursor.accept("[")) {
    cursor.skip_blanks();
    const size_t at = cursor.offset();
    const int64_t order = cursor.number("a turn");
    if (order < 0) {
      cursor.move_to(at);
      cursor.fail("a turn that is not negative");
    }
    cursor.expect("]", "']'");
    shard = shard.with_order(order);
  }
  return shard;
}

// Reads placements up to `stop` ("" for the end of the text).
Placements read_placements(Cursor& cursor, std::string_view stop) {
  const auto done = [&] {
    return cursor.at_end() || (!stop.empty() && cursor.sees(stop));
  };
  Placements placements;
  while (!done()) {
    placements.push_back(read_placement(cursor));
    const bool blank = cursor.on_blank();
    if (cursor.accept(",")) {
      if (done()) {
        cursor.fail(kPlacement);
      }
    } else if (!blank && !done()) {
      cursor.fail("a blank or ',' after a placement");
    }
  }
  return placements;
}

struct MeshText {
  std::vector<int64_t> sizes;
  std::vector<std::string> names;
};

// Reads "dp=2" or "2"; either all dims have names or none has.
void read_mesh_dim(Cursor& cursor, MeshText& mesh) {
  const bool first = mesh.sizes.empty();
  const bool named = first || !mesh.names.empty();
  const std::string_view name = named ? cursor.word() : std::string_view();
  if (!name.empty()) {
    mesh.names.emplace_back(name);
    cursor.expect("=", "'=' after the name of a mesh dim");
  } else if (!first && named) {
    cursor.fail("a name, as for the dims before, such as tp=4");
  }
  mesh.sizes.push_back(
      cursor.number(first ? "a mesh dim, such as tp=4 or 4" : "a size"));
}

MeshShape read_long_mesh(Cursor& cursor) {
  cursor.expect("mesh", "mesh(");
  cursor.expect("(", "'('");
  MeshText mesh;
  if (!cursor.sees(")") && !cursor.sees(";")) {
    do {
      read_mesh_dim(cursor, mesh);
    } while (cursor.accept(","));
  }
  if (!cursor.accept(";")) {
    cursor.expect(")", "',', ';' or ')'");
    return MeshShape(std::move(mesh.sizes), std::move(mesh.names));
  }
  cursor.expect("ranks", "ranks after ';'");
  std::vector<int64_t> ranks;
  while (!cursor.accept(")")) {
    ranks.push_back(cursor.number("a rank or ')'"));
  }
  return MeshShape::from_ranks(
      std::move(ranks), std::move(mesh.sizes), std::move(mesh.names));
}

MeshShape read_mesh(Cursor& cursor) {
  if (cursor.sees("mesh(") || cursor.sees("mesh (")) {
    return read_long_mesh(cursor);
  }
  MeshText mesh;
  read_mesh_dim(cursor, mesh);
  if (mesh.names.empty()) {
    while (cursor.accept("x")) {
      mesh.sizes.push_back(cursor.number("a size after 'x'"));
    }
  } else {
    while (cursor.accept(",")) {
      read_mesh_dim(cursor, mesh);
    }
  }
  return MeshShape(std::move(mesh.sizes), std::move(mesh.names));
}

std::vector<int64_t> read_shape(Cursor& cursor) {
  if (cursor.accept("[")) {
    return read_list(cursor, "]", "a size or ']'");
  }
  std::vector<int64_t> shape{cursor.number("a shape, such as [8, 16] or 8x16")};
  while (cursor.accept("x")) {
    shape.push_back(cursor.number("a size after 'x'"));
  }
  return shape;
}

}  // namespace

Placement parse_placement(std::string_view text) {
  Cursor cursor("parse_placement", text);
  Placement placement = read_placement(cursor);
  cursor.finish("the end after one placement");
  return placement;
}

Placements parse_placements(std::string_view text) {
  Cursor cursor("parse_placements", text);
  return read_placements(cursor, "");
}

MeshShape parse_mesh(std::string_view text) {
  Cursor cursor("parse_mesh", text);
  MeshShape mesh = read_mesh(cursor);
  cursor.finish("the end after the mesh");
  return mesh;
}

std::vector<int64_t> parse_shape(std::string_view text) {
  Cursor cursor("parse_shape", text);
  std::vector<int64_t> shape = read_shape(cursor);
  cursor.finish("the end after the shape");
  return shape;
}

TypedLayout parse_layout(std::string_view text) {
  Cursor cursor("parse_layout", text);
  std::string dtype(cursor.word());
  if (!dtype.empty() && !cursor.sees("[")) {
    cursor.fail("'[' and the shape after the dtype");
  }
  std::vector<int64_t> shape = read_shape(cursor);
  Placements placements = read_placements(cursor, "@");
  cursor.expect("@", "a placement, or '@' and the mesh");
  MeshShape mesh = read_mesh(cursor);
  cursor.finish("the end after the mesh");
  return {
      std::move(dtype),
      Layout(std::move(shape), std::move(mesh), std::move(placements))};
}

std::string shape_to_string(const std::vector<int64_t>& shape) {
  return c10::str("[", base::join(shape, ", "), "]");
}

}  // namespace tessera
