// What saving and the other functions of checkpoint.h share.
#pragma once

#include <memory>
#include <string>

#include <checkpoint/save_plan.h>
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

}  // namespace tessera::detail::inline checkpoint_layer
