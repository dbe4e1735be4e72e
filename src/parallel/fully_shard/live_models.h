// Models whose parameters have died.
//
// A parameter owns its model, through its meta, and the model refers weakly to
// its parameters; LibTorch destroys what a tensor is made of only when the last
// weak reference goes. So models that lost their parameters are looked for now
// and then: when another one is made, and when a handle is used.
#pragma once

#include <memory>

#include <parallel/fully_shard/sharded_model.h>

namespace tessera::detail::inline parallel_layer {

/// Has release_orphans() look after a model.
void add_live_model(const std::shared_ptr<ShardedModel>& model);
/// Frees the models of this process whose parameters are all gone.
void release_orphans();

}  // namespace tessera::detail::inline parallel_layer
