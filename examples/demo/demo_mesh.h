// The mesh that `tessera demo` trains on.
#pragma once

#include <optional>
#include <string>

#include "demo.h"

namespace tessera::cli {

/// Returns the mesh dp x tp for a number of ranks: 2 -> 1 x 2, 3 -> 3 x 1,
/// 4 -> 2 x 2, 8 -> 4 x 2, 16 -> 4 x 4.
DemoMesh choose_demo_mesh(int64_t ranks);

/// Returns another mesh, of one rank less where there are several: 2 x 2 -> 3 x
/// 1, 1 x 2 -> 1 x 1, 3 x 1 -> 1 x 2.
DemoMesh choose_restart_mesh(const DemoMesh& mesh);

/// Returns the mesh that is asked for: a text such as "dp=2,tp=2", where a dim
/// that is left out has size 1, or else one for a number of ranks. A mesh that
/// does not fit the ranks or the model is a UsageError.
DemoMesh demo_mesh(const std::string& text, std::optional<int64_t> ranks);

/// Returns the mesh that a text names, else that of choose_restart_mesh();
/// nothing for "none", and by default where there is one step. One that does
/// not fit the model, or that has more than `most` ranks, is a UsageError.
std::optional<DemoMesh> restart_mesh(
    const std::string& text, const DemoMesh& mesh, int steps, int64_t most);

}  // namespace tessera::cli
