#include "layout/cut.h"

#include <algorithm>
#include <numeric>

#include "layout/arithmetic.h"

namespace tessera::detail::inline layout_layer {

Cut::Cut(const Placement& placement, int64_t parts)
    : parts_(parts),
      pieces_(placement.split_factor()),
      begins_(placement.fits_any_size() ? nullptr : &placement.begins()) {}

Cut::Pieces Cut::pieces_of(int64_t length) const {
  if (length == 0) {
    return {0, 0, 0};
  }
  const int64_t size = ceil_div(length, pieces_);
  return {size, length / size, length % size};
}

// The chunk of coordinate r of a piece: ceil chunks, clamped to the piece.
// The division keeps r * c from overflowing where the chunk is empty.
Run Cut::chunk(int64_t size, int64_t r) const {
  if (size == 0) {
    return {0, 0};
  }
  const int64_t c = ceil_div(size, parts_);
  if (r > size / c) {
    return {size, size};
  }
  const int64_t begin = c * r;
  return {begin, begin + std::min(c, size - begin)};
}

int64_t Cut::part_length(int64_t length, int64_t r) const {
  if (begins_ != nullptr) {
    return (*begins_)[r + 1] - (*begins_)[r];
  }
  const Pieces pieces = pieces_of(length);
  return pieces.full * chunk(pieces.size, r).length() +
         chunk(pieces.rest, r).length();
}

bool Cut::is_even(int64_t length) const {
  if (begins_ == nullptr) {
    // Lengths of chunk cuts never grow with the coordinate.
    return part_length(length, 0) == part_length(length, parts_ - 1);
  }
  for (int64_t r = 1; r < parts_; ++r) {
    if (part_length(length, r) != part_length(length, 0)) {
      return false;
    }
  }
  return true;
}

int64_t Cut::list_position(int64_t length, int64_t r, int64_t i) const {
  if (begins_ != nullptr) {
    return (*begins_)[r] + i;
  }
  const Pieces pieces = pieces_of(length);
  const Run full_chunk = chunk(pieces.size, r);
  const int64_t in_full = pieces.full * full_chunk.length();
  if (i < in_full) {
    return i / full_chunk.length() * pieces.size + full_chunk.begin +
           i % full_chunk.length();
  }
  return pieces.full * pieces.size + chunk(pieces.rest, r).begin + i - in_full;
}

CutTarget Cut::target_of(int64_t length, int64_t j) const {
  if (begins_ != nullptr) {
    // The last begin <= j: empty parts share their begin with the next one.
    const auto after = std::upper_bound(begins_->begin(), begins_->end(), j);
    return {after - begins_->begin() - 1, j - *(after - 1)};
  }
  const Pieces pieces = pieces_of(length);
  const int64_t piece = j / pieces.size;
  const int64_t within = j % pieces.size;
  const int64_t c =
      ceil_div(piece < pieces.full ? pieces.size : pieces.rest, parts_);
  const int64_t r = within / c;
  return {r, piece * chunk(pieces.size, r).length() + within % c};
}

int64_t Cut::count_before(int64_t length, int64_t r, int64_t j) const {
  if (begins_ != nullptr) {
    const int64_t begin = (*begins_)[r];
    return std::clamp<int64_t>(j, begin, (*begins_)[r + 1]) - begin;
  }
  const Pieces pieces = pieces_of(length);
  if (pieces.size == 0) {
    return 0;
  }
  const int64_t piece = std::min(j / pieces.size, pieces.full);
  const int64_t within = j - piece * pieces.size;
  const Run last = chunk(piece < pieces.full ? pieces.size : pieces.rest, r);
  return piece * chunk(pieces.size, r).length() +
         std::clamp(within, last.begin, last.end) - last.begin;
}

Run Cut::holders(int64_t length, const Run& wanted) const {
  if (begins_ == nullptr && wanted.begin / pieces_of(length).size !=
                                (wanted.end - 1) / pieces_of(length).size) {
    return {0, parts_};
  }
  return {
      target_of(length, wanted.begin).coordinate,
      target_of(length, wanted.end - 1).coordinate + 1};
}

Runs Cut::runs(int64_t length, int64_t r) const {
  Runs result;
  if (begins_ != nullptr) {
    append_run(result, {(*begins_)[r], (*begins_)[r + 1]});
    return result;
  }
  const Pieces pieces = pieces_of(length);
  const Run full_chunk = chunk(pieces.size, r);
  for (int64_t p = 0; p < pieces.full && full_chunk.length() > 0; ++p) {
    const int64_t origin = p * pieces.size;
    append_run(result, {origin + full_chunk.begin, origin + full_chunk.end});
  }
  const int64_t origin = pieces.full * pieces.size;
  const Run rest = chunk(pieces.rest, r);
  append_run(result, {origin + rest.begin, origin + rest.end});
  return result;
}

Placement shard_of_lengths(int64_t dim, std::vector<int64_t> lengths) {
  const Cut even(Shard(dim), static_cast<int64_t>(lengths.size()));
  const int64_t total =
      std::accumulate(lengths.begin(), lengths.end(), int64_t{0});
  for (size_t r = 0; r < lengths.size(); ++r) {
    if (even.part_length(total, static_cast<int64_t>(r)) != lengths[r]) {
      return RaggedShard(dim, std::move(lengths));
    }
  }
  return Shard(dim);
}

void append_run(Runs& runs, const Run& run) {
  if (run.begin == run.end) {
    return;
  }
  if (!runs.empty() && runs.back().end == run.begin) {
    runs.back().end = run.end;
  } else {
    runs.push_back(run);
  }
}

Runs select_runs(const Runs& runs, const Runs& positions) {
  Runs result;
  size_t k = 0;
  int64_t before = 0;  // elements of runs[0] .. runs[k - 1]
  for (const Run& wanted : positions) {
    int64_t at = wanted.begin;
    while (at < wanted.end) {
      while (at - before >= runs[k].length()) {
        before += runs[k++].length();
      }
      const int64_t begin = runs[k].begin + (at - before);
      const int64_t take = std::min(wanted.end - at, runs[k].end - begin);
      append_run(result, {begin, begin + take});
      at += take;
    }
  }
  return result;
}

}  // namespace tessera::detail::inline layout_layer
