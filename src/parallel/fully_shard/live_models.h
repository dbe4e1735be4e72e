// Models whose parameters have died.
//
// Note [Orphans]
// A parameter owns its model, through its meta, and the model refers weakly to
// its parameters; LibTorch destroys what a tensor is made of only when the last
// weak reference goes. So models that lost their parameters are looked for now
// and then: when another one is made, when a handle is used, and when a thread
// ends that was a rank.
//
// A rank ends its own models only. The end of a model waits for the gathers
// that it has begun: on the thread of another rank that could be a gather which
// that very rank has still to join. What outlives the thread of its rank is
// anybody's, as are models of a rank that has its process for itself.
#pragma once

#include <memory>

#include <parallel/fully_shard/sharded_model.h>

namespace tessera::detail::inline parallel_layer {

/// Has release_orphans() look after a model of this rank.
void add_live_model(const std::shared_ptr<ShardedModel>& model);
/// Frees models whose parameters are all gone: this rank's, and anybody's.
void release_orphans();

}  // namespace tessera::detail::inline parallel_layer
