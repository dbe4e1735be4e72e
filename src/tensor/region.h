// Regions: what a shard holds, one list of runs per tensor dim, and how the
// elements that two shards share are packed and unpacked.
#pragma once

#include <vector>

#include <ATen/core/Tensor.h>
#include <tessera/layout/layout.h>

namespace tessera::detail {

/// The indices of each tensor dim, in storage order.
using Region = std::vector<Runs>;

/// Returns what the shard at a coordinate holds.
Region region_of(const Layout& layout, const std::vector<int64_t>& coordinate);
/// Returns the region of a box.
Region region_of(const Box& box);

/// Returns the lengths of the elements that two regions share.
std::vector<int64_t> shared_shape(const Region& a, const Region& b);

/// Returns the elements of `shard`, which holds `held`, that lie in `wanted`,
/// in the storage order of `wanted`, as a flat contiguous tensor.
at::Tensor pack(
    const at::Tensor& shard, const Region& held, const Region& wanted);
/// Writes what pack(_, held, wanted) gave into `shard`, which holds `wanted`.
void unpack(
    const at::Tensor& packed, const Region& held, const Region& wanted,
    const at::Tensor& shard);

}  // namespace tessera::detail
