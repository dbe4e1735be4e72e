#include <io/model/tensor_reader.h>

#include <algorithm>

#include <base/escape.h>
#include <io/files/error.h>
#include <io/model/check_entry.h>

namespace tessera::io {

TensorReader::TensorReader(const Reader& reader, const Entry& tensor)
    : reader_(reader), tensor_(tensor) {
  if (!tensor.is_tensor()) {
    throw_usage(
        reader.path(), "'" + base::escape(tensor.name) + "' is no tensor");
  }
}

void TensorReader::read(const Box& box, const Target& target) {
  detail::check_box(reader_.path(), tensor_.name, box, tensor_.shape);
  const std::vector<int64_t> strides =
      target.strides.empty() ? detail::row_major_strides(box.sizes)
                             : target.strides;
  const int64_t item = element_bytes(*tensor_.dtype);
  for (size_t i = 0; i < tensor_.chunks.size(); ++i) {
    const auto part = intersect(tensor_.chunks[i].box, box);
    if (!part || element_count(part->sizes) == 0) {
      continue;
    }
    int64_t first = 0;
    for (size_t d = 0; d < box.sizes.size(); ++d) {
      first += (part->offsets[d] - box.offsets[d]) * strides[d];
    }
    copy_part(
        open(i), tensor_.chunks[i].box, *part, item,
        {static_cast<char*>(target.data) + first * item, strides});
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
