#include <tessera/plan/step.h>

#include <ostream>

#include <c10/util/StringUtil.h>

#include "base/text.h"
#include "plan/text.h"

namespace tessera {

const char* to_string(StepKind kind) {
  switch (kind) {
    case StepKind::kAllGather:
      return "all_gather";
    case StepKind::kAllReduce:
      return "all_reduce";
    case StepKind::kReduceScatter:
      return "reduce_scatter";
    case StepKind::kAllToAll:
      return "all_to_all";
    case StepKind::kSlice:
      return "slice";
    case StepKind::kToPartial:
      return "to_partial";
    case StepKind::kExchange:
      return "exchange";
  }
  return "";
}

namespace {

Placements at_dims(const Layout& layout, const std::vector<int64_t>& dims) {
  Placements result;
  for (const int64_t m : dims) {
    result.push_back(layout.placements()[static_cast<size_t>(m)]);
  }
  return result;
}

}  // namespace

// An exchange between two meshes shows all placements of both.
Placements Step::from() const {
  return kind == StepKind::kExchange ? before.placements()
                                     : at_dims(before, mesh_dims);
}

Placements Step::to() const {
  return at_dims(after, mesh_dims);
}

std::string dims_of(const Step& step) {
  const auto& names = step.after.mesh().names();
  std::vector<std::string> words;
  for (const int64_t m : step.mesh_dims) {
    words.push_back(
        names.empty() ? std::to_string(m) : names[static_cast<size_t>(m)]);
  }
  return base::join(words, ", ");
}

std::string describe(const Step& step) {
  std::string where = dims_of(step);
  if (!(step.before.mesh() == step.after.mesh())) {
    where = c10::str(step.before.mesh(), " -> ", step.after.mesh());
  }
  return c10::str(
      to_string(step.kind), where.empty() ? "" : " ", where, ": ",
      to_string(step.from()), " -> ", to_string(step.to()));
}

std::string to_string(const Step& step) {
  return base::with_bytes(describe(step), step.bytes) + ", " +
         detail::seconds(step.cost);
}

std::string to_json(const Step& step) {
  return c10::str(
      "{\"kind\": \"", to_string(step.kind), "\", \"mesh_dims\": [",
      base::join(step.mesh_dims, ", "), "], \"from\": \"",
      to_string(step.from()), "\", \"to\": \"", to_string(step.to()),
      "\", \"after\": \"", step.after, "\", \"bytes\": ", step.bytes,
      ", \"cost\": ", detail::number(step.cost), "}");
}

std::ostream& operator<<(std::ostream& out, const Step& step) {
  return out << to_string(step);
}

}  // namespace tessera
