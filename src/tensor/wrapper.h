// The tensor that stands for a sharded one: it has a spec's shape and a meta,
// and no memory.
//
// Note [Cheap wrappers]
// Every result of every call is wrapped, so what a wrapper costs, every call
// pays. The flags that follow from sizes and strides are copied from an earlier
// wrapper of the same spec (`like`). The error texts that LibTorch keeps per
// tensor stay in their ExtraMeta when a wrapper dies and serve the next one of
// the thread, as do the blocks of memory of wrapper and meta.
#pragma once

#include <tensor/sharded_impl.h>

namespace tessera::detail {

/// Makes a wrapper around `meta`, whose shard and spec decide its shape. `like`
/// may be null, a wrapper of an equal shard and spec, or their wrapper_shape().
at::Tensor make_wrapper(
    c10::intrusive_ptr<ShardedMeta> meta, const c10::TensorImpl* like);

/// Returns an impl from which wrappers of shards like `local` can be copied.
c10::intrusive_ptr<c10::TensorImpl> wrapper_shape(
    const at::Tensor& local, const DTensorSpec& spec);

/// Makes a tensor, of whatever class, a wrapper around `meta`.
void become_wrapper(const at::Tensor& t, c10::intrusive_ptr<ShardedMeta> meta);

/// Makes `view` a normal tensor where `source`, of which it is a view, is one:
/// in inference mode new tensors are inference tensors, but views follow their
/// source.
void follow_source(const at::Tensor& view, const at::Tensor& source);

/// Adds a dispatch key to a wrapper.
void add_key(const at::Tensor& t, c10::DispatchKey key);

}  // namespace tessera::detail
