#include "plan/transfer/strided_copies.h"

#include <algorithm>

namespace tessera::detail::inline plan_layer {

namespace {

// Indices of one tensor dim that two shards share: where they are stored in
// each, and where in a buffer that holds nothing else.
struct Segment {
  int64_t held;
  int64_t packed;
  int64_t wanted;
  int64_t length;
};
using Side = int64_t Segment::*;

// `count` segments of `length`, evenly spaced on both sides.
struct Strip {
  int64_t from;
  int64_t to;
  int64_t length;
  int64_t count = 1;
  int64_t from_step = 0;
  int64_t to_step = 0;
};

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

// In the order of `wanted`.
std::vector<Segment> shared_segments(const Runs& held, const Runs& wanted) {
  const std::vector<Stored> stored = by_index(held);
  std::vector<Segment> segments;
  int64_t packed = 0;
  int64_t position = 0;
  for (const Run& run : wanted) {
    auto it = std::partition_point(
        stored.begin(), stored.end(),
        [&](const Stored& s) { return s.run.end <= run.begin; });
    for (; it != stored.end() && it->run.begin < run.end; ++it) {
      const int64_t begin = std::max(run.begin, it->run.begin);
      const int64_t end = std::min(run.end, it->run.end);
      segments.push_back(
          {it->position + begin - it->run.begin, packed,
           position + begin - run.begin, end - begin});
      packed += end - begin;
    }
    position += run.length();
  }
  return segments;
}

std::vector<Strip> joined(
    const std::vector<Segment>& segments, Side from, Side to) {
  std::vector<Strip> strips;
  for (const Segment& s : segments) {
    if (!strips.empty() &&
        strips.back().from + strips.back().length == s.*from &&
        strips.back().to + strips.back().length == s.*to) {
      strips.back().length += s.length;
    } else {
      strips.push_back({s.*from, s.*to, s.length});
    }
  }
  return strips;
}

std::vector<Strip> strips_of(
    const std::vector<Segment>& segments, Side from, Side to) {
  std::vector<Strip> strips;
  for (const Strip& s : joined(segments, from, to)) {
    if (!strips.empty() && strips.back().length == s.length) {
      Strip& last = strips.back();
      const int64_t from_step =
          s.from - (last.from + (last.count - 1) * last.from_step);
      const int64_t to_step =
          s.to - (last.to + (last.count - 1) * last.to_step);
      if (last.count == 1 ||
          (from_step == last.from_step && to_step == last.to_step)) {
        last.from_step = from_step;
        last.to_step = to_step;
        ++last.count;
        continue;
      }
    }
    strips.push_back(s);
  }
  return strips;
}

// One tensor dim of both sides.
struct DimStrips {
  std::vector<Strip> strips;
  int64_t from_stride = 1;
  int64_t to_stride = 1;
};

void add_dim(StridedCopy& copy, int64_t size, int64_t from, int64_t to) {
  if (size == 1) {
    return;
  }
  if (!copy.sizes.empty() && copy.from_strides.back() == size * from &&
      copy.to_strides.back() == size * to) {
    copy.sizes.back() *= size;
    copy.from_strides.back() = from;
    copy.to_strides.back() = to;
    return;
  }
  copy.sizes.push_back(size);
  copy.from_strides.push_back(from);
  copy.to_strides.push_back(to);
}

void combine(
    const std::vector<DimStrips>& dims, size_t d, const StridedCopy& outer,
    StridedCopies& result) {
  if (d == dims.size()) {
    result.push_back(outer);
    return;
  }
  for (const Strip& s : dims[d].strips) {
    const int64_t from = dims[d].from_stride;
    const int64_t to = dims[d].to_stride;
    StridedCopy copy = outer;
    copy.from += s.from * from;
    copy.to += s.to * to;
    add_dim(copy, s.count, s.from_step * from, s.to_step * to);
    add_dim(copy, s.length, from, to);
    combine(dims, d + 1, copy, result);
  }
}

StridedCopies copies_of(
    const Region& held, const Region& wanted, Side from, Side to) {
  std::vector<DimStrips> dims(held.size());
  int64_t from_stride = 1;
  int64_t to_stride = 1;
  for (size_t d = held.size(); d-- > 0;) {
    const auto segments = shared_segments(held[d], wanted[d]);
    int64_t packed = 0;
    for (const Segment& s : segments) {
      packed += s.length;
    }
    const auto length = [&](Side side) {
      return side == &Segment::packed
                 ? packed
                 : total_length(side == &Segment::held ? held[d] : wanted[d]);
    };
    dims[d] = {strips_of(segments, from, to), from_stride, to_stride};
    from_stride *= length(from);
    to_stride *= length(to);
  }
  StridedCopies result;
  combine(dims, 0, {}, result);
  return result;
}

}  // namespace

int64_t StridedCopy::numel() const {
  int64_t count = 1;
  for (const int64_t size : sizes) {
    count *= size;
  }
  return count;
}

bool StridedCopy::is_run() const {
  return sizes.empty() ||
         (sizes.size() == 1 && from_strides[0] == 1 && to_strides[0] == 1);
}

int64_t total_numel(const StridedCopies& copies) {
  int64_t count = 0;
  for (const StridedCopy& strided : copies) {
    count += strided.numel();
  }
  return count;
}

void append_shifted(
    StridedCopies& copies, StridedCopies more, int64_t from, int64_t to) {
  for (StridedCopy& copy : more) {
    copy.from += from;
    copy.to += to;
    copies.push_back(std::move(copy));
  }
}

StridedCopies copies_between(const Region& held, const Region& wanted) {
  return copies_of(held, wanted, &Segment::held, &Segment::wanted);
}

StridedCopies packing(const Region& held, const Region& wanted) {
  return copies_of(held, wanted, &Segment::held, &Segment::packed);
}

StridedCopies unpacking(const Region& held, const Region& wanted) {
  return copies_of(held, wanted, &Segment::packed, &Segment::wanted);
}

}  // namespace tessera::detail::inline plan_layer
