#include <tensor/region.h>

#include <algorithm>

#include <ATen/ops/cat.h>
#include <c10/util/accumulate.h>

namespace tessera::detail {

namespace {

// The indices that two lists of runs share, in the order of `wanted`, as
// positions in each list.
struct Shared {
  Runs in_held;
  Runs in_wanted;
};

void append(Runs& runs, int64_t begin, int64_t end) {
  if (!runs.empty() && runs.back().end == begin) {
    runs.back().end = end;
  } else {
    runs.push_back({begin, end});
  }
}

// A run of `held` and the position at which it is stored.
struct Stored {
  Run run;
  int64_t position;
};

std::vector<Stored> by_index(const Runs& held) {
  std::vector<Stored> stored;
  int64_t position = 0;
  for (const Run& run : held) {
    stored.push_back({run, position});
    position += run.length();
  }
  std::sort(stored.begin(), stored.end(), [](const Stored& a, const Stored& b) {
    return a.run.begin < b.run.begin;
  });
  return stored;
}

Shared find_shared(const Runs& held, const Runs& wanted) {
  const std::vector<Stored> stored = by_index(held);
  Shared shared;
  int64_t position = 0;
  for (const Run& run : wanted) {
    auto it = std::partition_point(
        stored.begin(), stored.end(),
        [&](const Stored& s) { return s.run.end <= run.begin; });
    for (; it != stored.end() && it->run.begin < run.end; ++it) {
      const int64_t begin = std::max(run.begin, it->run.begin);
      const int64_t end = std::min(run.end, it->run.end);
      const int64_t from = it->position + begin - it->run.begin;
      const int64_t to = position + begin - run.begin;
      append(shared.in_held, from, from + end - begin);
      append(shared.in_wanted, to, to + end - begin);
    }
    position += run.length();
  }
  return shared;
}

at::Tensor take(const at::Tensor& from, int64_t dim, const Runs& runs) {
  if (runs.empty()) {
    return from.narrow(dim, 0, 0);
  }
  if (runs.size() == 1) {
    return from.narrow(dim, runs[0].begin, runs[0].length());
  }
  std::vector<at::Tensor> pieces;
  for (const Run& run : runs) {
    pieces.push_back(from.narrow(dim, run.begin, run.length()));
  }
  return at::cat(pieces, dim);
}

void put(
    const at::Tensor& piece, const std::vector<Runs>& places, int64_t dim,
    const at::Tensor& into) {
  if (dim == static_cast<int64_t>(places.size())) {
    into.copy_(piece);
    return;
  }
  int64_t position = 0;
  for (const Run& run : places[static_cast<size_t>(dim)]) {
    put(piece.narrow(dim, position, run.length()), places, dim + 1,
        into.narrow(dim, run.begin, run.length()));
    position += run.length();
  }
}

}  // namespace

Region region_of(const Layout& layout, const std::vector<int64_t>& coordinate) {
  Region region;
  for (int64_t d = 0; d < static_cast<int64_t>(layout.shape().size()); ++d) {
    region.push_back(layout.runs(d, coordinate));
  }
  return region;
}

Region region_of(const Box& box) {
  Region region;
  for (size_t d = 0; d < box.sizes.size(); ++d) {
    region.push_back({{box.offsets[d], box.offsets[d] + box.sizes[d]}});
  }
  return region;
}

std::vector<int64_t> shared_shape(const Region& a, const Region& b) {
  std::vector<int64_t> shape;
  for (size_t d = 0; d < a.size(); ++d) {
    shape.push_back(total_length(find_shared(a[d], b[d]).in_wanted));
  }
  return shape;
}

at::Tensor pack(
    const at::Tensor& shard, const Region& held, const Region& wanted) {
  at::Tensor packed = shard;
  for (size_t d = 0; d < held.size(); ++d) {
    packed = take(
        packed, static_cast<int64_t>(d),
        find_shared(held[d], wanted[d]).in_held);
  }
  return packed.contiguous().view({-1});
}

void unpack(
    const at::Tensor& packed, const Region& held, const Region& wanted,
    const at::Tensor& shard) {
  std::vector<Runs> places;
  for (size_t d = 0; d < held.size(); ++d) {
    places.push_back(find_shared(held[d], wanted[d]).in_wanted);
  }
  put(packed.view(shared_shape(held, wanted)), places, 0, shard);
}

}  // namespace tessera::detail
