// What holds of shards wherever they come from.
#pragma once

#include <tessera/sharded_tensor/metadata.h>

namespace tessera::sharded_tensor::format {

/// Throws unless a shard has as many offsets as sizes, none is negative and it
/// ends before 2^63. The fields are public, so this is asked again where it
/// counts.
void check_shard(const ShardMetadata& shard);
/// Throws where a size is negative; `call` opens the message.
void check_sizes(const char* call, const std::vector<int64_t>& sizes);

}  // namespace tessera::sharded_tensor::format
