// What saving and the other functions of checkpoint.h share.
#pragma once

#include <cstdint>
#include <memory>
#include <string>

#include <checkpoint/calls/save_plan.h>
#include <io/model/reader.h>
#include <io/save.h>
#include <tessera/checkpoint/checkpoint.h>
#include <tessera/comm/world.h>

namespace tessera::detail::inline checkpoint_layer {

io::Format to_io(checkpoint::Format format);

/// A save that all ranks have agreed on and the first one has begun.
struct BegunSave {
  SavePlan plan;
  std::unique_ptr<io::Save> saving;  // of the first rank
  std::string ticket;
};

/// Collective over the world; what is wrong on one rank is thrown on all.
/// `call` is what errors begin with.
BegunSave begin_save(
    const std::string& call, const World& world,
    const checkpoint::StateDict& state, const std::string& path,
    const checkpoint::SaveOptions& options);

/// Returns the path of a step. Collective; errors as begin_save().
std::string agree_on_step(
    const std::string& call, const World& world, const std::string& folder,
    int64_t step, int64_t keep);
/// Makes a step that is saved the latest one, and removes all but the newest
/// `keep` (0: removes none). On one rank.
void make_latest(const std::string& folder, int64_t step, int64_t keep);

}  // namespace tessera::detail::inline checkpoint_layer
