// A folder of checkpoints by step, and which of them is the latest.
//
//   runs/step_000000000100/
//   runs/step_000000000200/
//   runs/latest               one line: step_000000000200
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include <io/files/file_system.h>

namespace tessera::io {

/// Returns "step_000000000100".
std::string step_name(int64_t step);
/// Returns the step of such a name; nothing for others.
std::optional<int64_t> step_of(std::string_view name);

/// Returns the steps whose checkpoints are complete, in ascending order.
std::vector<int64_t> list_steps(
    const std::string& folder, FileSystem& files = system_files());

/// Makes a step the latest: one rename replaces the file that says so. Throws
/// where the step has no checkpoint.
void set_latest(
    const std::string& folder, int64_t step,
    FileSystem& files = system_files());

/// Returns the step that `latest` names; where it names none that is there, the
/// highest. Nothing where there is no checkpoint.
std::optional<int64_t> find_latest(
    const std::string& folder, FileSystem& files = system_files());

/// Removes all but the highest `keep` steps; the latest one stays too. What is
/// removed first gets a temporary name, so that a crash leaves no half of it.
/// Returns the steps that were removed.
std::vector<int64_t> remove_old_steps(
    const std::string& folder, int64_t keep,
    FileSystem& files = system_files());

}  // namespace tessera::io
