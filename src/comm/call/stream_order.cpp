#include "comm/call/stream_order.h"

#include <algorithm>

#include <c10/core/impl/VirtualGuardImpl.h>

namespace tessera::detail::inline comm_layer {
namespace {

bool has_streams(const CollectiveCall& call) {
  const at::Tensor& sample = call.sample();
  return sample.defined() && !sample.is_cpu() && !sample.is_meta();
}

c10::Stream current_stream(c10::Device device) {
  return c10::impl::VirtualGuardImpl(device.type()).getStream(device);
}

StreamPoint mark(c10::Stream stream) {
  StreamPoint point{stream, c10::Event(stream.device_type())};
  point.event.record(stream);
  return point;
}

std::vector<c10::Device> devices_of(const Calls& calls) {
  std::vector<c10::Device> devices;
  for (const CollectiveCall* call : calls) {
    if (!has_streams(*call)) {
      continue;
    }
    const c10::Device device = call->sample().device();
    if (std::find(devices.begin(), devices.end(), device) == devices.end()) {
      devices.push_back(device);
    }
  }
  return devices;
}

void keep_alive(const at::Tensor& tensor, c10::Stream stream) {
  if (tensor.defined() && tensor.device() == stream.device()) {
    tensor.record_stream(stream);
  }
}

}  // namespace

std::optional<StreamPoint> mark_stream(const CollectiveCall& call) {
  if (!has_streams(call)) {
    return std::nullopt;
  }
  return mark(current_stream(call.sample().device()));
}

void enter_chunks(
    const Calls& calls, const std::vector<std::optional<StreamPoint>>& points) {
  for (const c10::Device device : devices_of(calls)) {
    const c10::Stream stream = current_stream(device);
    for (size_t r = 0; r < points.size(); ++r) {
      if (!points[r].has_value() || points[r]->stream == stream) {
        continue;
      }
      points[r]->event.block(stream);
      keep_alive(calls[r]->input, stream);
      keep_alive(calls[r]->output, stream);
    }
  }
}

std::vector<StreamPoint> leave_chunks(const Calls& calls) {
  std::vector<StreamPoint> points;
  for (const c10::Device device : devices_of(calls)) {
    points.push_back(mark(current_stream(device)));
  }
  return points;
}

void join_chunks(
    const CollectiveCall& call, const std::vector<StreamPoint>& points) {
  if (!has_streams(call)) {
    return;
  }
  const c10::Stream stream = current_stream(call.sample().device());
  for (const StreamPoint& point : points) {
    if (point.stream != stream) {
      point.event.block(stream);
    }
  }
}

}  // namespace tessera::detail::inline comm_layer
