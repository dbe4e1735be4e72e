#include <tessera/tensor/predicted_time.h>

#include <algorithm>

#include <c10/util/StringUtil.h>
#include <plan/text.h>

namespace tessera {

namespace {

std::string line_of(const std::string& what, const PredictedTime& sum) {
  return c10::str(
      what, ": ", sum.count, sum.count == 1 ? " call, " : " calls, ", sum.bytes,
      " bytes, ", detail::seconds(sum.seconds), "\n");
}

}  // namespace

double predicted_time(const CommLogEntry& entry, const MachineModel& model) {
  return step_cost(
      model, model.over(entry.dims),
      message_count(entry.kind, static_cast<int64_t>(entry.ranks.size())),
      entry.bytes, entry.written);
}

std::vector<PredictedTime> predicted_times(
    const CommLog& log, const MachineModel& model) {
  std::vector<PredictedTime> sums;
  for (const CommLogEntry& entry : log.entries()) {
    auto at = std::find_if(sums.begin(), sums.end(), [&](const auto& sum) {
      return sum.kind == entry.kind && sum.mesh_dims == entry.mesh_dims;
    });
    if (at == sums.end()) {
      at = sums.insert(at, {.kind = entry.kind, .mesh_dims = entry.mesh_dims});
    }
    ++at->count;
    at->bytes += entry.bytes;
    at->seconds += predicted_time(entry, model);
  }
  std::stable_sort(sums.begin(), sums.end(), [](const auto& a, const auto& b) {
    return a.seconds > b.seconds;
  });
  return sums;
}

std::string to_string(const std::vector<PredictedTime>& times) {
  std::string text;
  PredictedTime total;
  for (const PredictedTime& sum : times) {
    text += line_of(
        sum.mesh_dims.empty() ? sum.kind : sum.kind + " " + sum.mesh_dims, sum);
    total.count += sum.count;
    total.bytes += sum.bytes;
    total.seconds += sum.seconds;
  }
  return text + line_of("total", total);
}

}  // namespace tessera
