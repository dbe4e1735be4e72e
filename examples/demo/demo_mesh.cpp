#include "demo_mesh.h"

#include <algorithm>

#include <tessera/layout/notation.h>

#include "cli/command.h"
#include "cli/text/terminal.h"

namespace tessera::cli {
namespace {

DemoMesh parse_demo_mesh(const std::string& option, const std::string& text) {
  const MeshShape shape = parse_mesh(text);
  const std::vector<std::string>& names = shape.names();
  using Names = std::vector<std::string>;
  if (names != Names{"dp", "tp"} && names != Names{"dp"} &&
      names != Names{"tp"}) {
    throw UsageError(
        option +
        ": the dims are dp, along which batches are cut, and tp, along which "
        "weights are; got '" +
        text + "'; example: " + option + " dp=2,tp=2");
  }
  const auto size_of = [&](const std::string& name) {
    const auto found = std::find(names.begin(), names.end(), name);
    return found == names.end() ? 1 : shape.size(found - names.begin());
  };
  return {.dp = size_of("dp"), .tp = size_of("tp")};
}

void check_fits_model(const DemoMesh& mesh) {
  if (mesh.dp > kDemoSizes.batch) {
    throw UsageError(
        "dp must be at most " + std::to_string(kDemoSizes.batch) +
        ", the sequences of a batch; got mesh dp=" + std::to_string(mesh.dp) +
        ",tp=" + std::to_string(mesh.tp) + "; use fewer ranks");
  }
  if (mesh.tp > kDemoSizes.heads) {
    throw UsageError(
        "tp must be at most " + std::to_string(kDemoSizes.heads) +
        ", the heads of the model; got mesh dp=" + std::to_string(mesh.dp) +
        ",tp=" + std::to_string(mesh.tp) + "; use fewer ranks, or more for dp");
  }
}

}  // namespace

DemoMesh choose_demo_mesh(int64_t ranks) {
  int64_t tp = 1;
  for (int64_t size = 2; size <= kDemoSizes.heads; ++size) {
    const bool divides = ranks % size == 0 && kDemoSizes.heads % size == 0;
    if (divides && (size == 2 || size * size <= ranks)) {
      tp = size;
    }
  }
  return {.dp = ranks / tp, .tp = tp};
}

DemoMesh choose_restart_mesh(const DemoMesh& mesh) {
  const int64_t ranks = std::max<int64_t>(mesh.ranks() - 1, 1);
  return mesh.tp > 1
             ? DemoMesh{.dp = std::min(ranks, kDemoSizes.batch), .tp = 1}
             : choose_demo_mesh(ranks);
}

DemoMesh demo_mesh(const std::string& text, std::optional<int64_t> ranks) {
  DemoMesh mesh;
  if (!text.empty()) {
    mesh = parse_demo_mesh("--mesh", text);
  } else if (ranks) {
    mesh = choose_demo_mesh(*ranks);
  }
  if (ranks && mesh.ranks() != *ranks) {
    throw UsageError(
        "the mesh " + text + " has " + counted(mesh.ranks(), "rank") +
        ", but there are " + std::to_string(*ranks) +
        "; leave out --ranks or --mesh, or make them agree");
  }
  check_fits_model(mesh);
  return mesh;
}

std::optional<DemoMesh> restart_mesh(
    const std::string& text, const DemoMesh& mesh, int steps, int64_t most) {
  if (text == "none" || (text.empty() && steps < 2)) {
    return std::nullopt;
  }
  if (steps < 2) {
    throw UsageError(
        "--restart: a restart is between two steps; got --steps " +
        std::to_string(steps) + "; use more, or --restart none");
  }
  const DemoMesh restart = text.empty() ? choose_restart_mesh(mesh)
                                        : parse_demo_mesh("--restart", text);
  check_fits_model(restart);
  if (restart.ranks() > most) {
    throw UsageError(
        "--restart: the mesh " + text + " has " +
        counted(restart.ranks(), "rank") + ", but there are " +
        std::to_string(most) +
        " processes; use fewer, or ranks that are "
        "threads");
  }
  return restart;
}

}  // namespace tessera::cli
