#include <io/model/tensor_reader.h>

#include <algorithm>

#include <base/escape.h>
#include <io/files/error.h>

namespace tessera::io {

TensorReader::TensorReader(const Reader& reader, const Entry& tensor)
    : reader_(reader), tensor_(tensor) {
  if (!tensor.is_tensor()) {
    throw_usage(
        reader.path(), "'" + base::escape(tensor.name) + "' is no tensor");
  }
}

void TensorReader::read(const Box& box, const Target& target) {
  for (const detail::Overlap& overlap :
       detail::overlaps_of(reader_.path(), tensor_, box, target)) {
    copy_part(
        open(overlap.chunk), tensor_.chunks[overlap.chunk].box, overlap.part,
        element_bytes(*tensor_.dtype), overlap.target);
  }
}

void TensorReader::finish() {
  while (!order_.empty()) {
    close_first();
  }
}

detail::Payload& TensorReader::open(size_t chunk) {
  if (const auto found = open_.find(chunk); found != open_.end()) {
    return *found->second;
  }
  if (order_.size() == kMostOpen) {
    close_first();
  }
  auto payload = reader_.open_payload(tensor_, chunk);
  order_.push_back(chunk);
  return *(open_[chunk] = std::move(payload));
}

void TensorReader::close_first() {
  const size_t chunk = order_.front();
  order_.pop_front();
  const auto payload = std::move(open_[chunk]);
  open_.erase(chunk);
  payload->finish();
}

void for_each_part(
    const Box& box, Dtype dtype, int64_t bytes,
    const std::function<void(const Box&)>& use) {
  if (element_count(box.sizes) == 0) {
    return;
  }
  // Dims behind `split` are whole in a part, those before it have one index.
  size_t split = box.sizes.size();
  int64_t inner = element_bytes(dtype);
  while (split > 0 && inner * box.sizes[split - 1] <= bytes) {
    inner *= box.sizes[--split];
  }
  Box part = box;
  if (split == 0) {
    use(part);
    return;
  }
  std::fill_n(part.sizes.begin(), --split, 1);
  const int64_t most = std::max<int64_t>(bytes / inner, 1);
  for (;;) {
    const int64_t end = box.offsets[split] + box.sizes[split];
    for (int64_t at = box.offsets[split]; at < end; at += most) {
      part.offsets[split] = at;
      part.sizes[split] = std::min(most, end - at);
      use(part);
    }
    size_t d = split;
    while (d > 0 &&
           ++part.offsets[d - 1] == box.offsets[d - 1] + box.sizes[d - 1]) {
      part.offsets[d - 1] = box.offsets[d - 1];
      --d;
    }
    if (d == 0) {
      return;
    }
  }
}

}  // namespace tessera::io
