#include "demo_records.h"

#include <algorithm>
#include <functional>
#include <map>
#include <numeric>
#include <tuple>

#include <tessera/tensor/dtensor.h>

namespace tessera::cli {
namespace {

/// Returns a path with a star for every number in it, so that layers that are
/// alike have one name: "blocks.0.mlp.up" -> "blocks.*.mlp.up".
std::string alike(const std::string& path) {
  std::string text;
  for (size_t begin = 0; begin <= path.size();) {
    const size_t end = std::min(path.find('.', begin), path.size());
    const std::string part = path.substr(begin, end - begin);
    const bool is_number =
        !part.empty() &&
        part.find_first_not_of("0123456789") == std::string::npos;
    text += (begin > 0 ? "." : "") + (is_number ? "*" : part);
    begin = end + 1;
  }
  return text;
}

}  // namespace

DemoParameter describe(
    const std::string& name, const at::Tensor& parameter, int64_t mesh_dim) {
  const Layout& layout = spec(parameter).layout();
  DemoParameter described{
      .name = name,
      .alike = alike(name),
      .shape = layout.shape(),
      .placements = to_string(layout.placements())};
  for (size_t dim = 0; dim < layout.shape().size(); ++dim) {
    if (!layout.cuts(static_cast<int64_t>(dim)).empty()) {
      described.cut_dim = static_cast<int>(dim);
    }
  }
  std::vector<int64_t> coordinate{0, 0};
  for (int64_t c = 0; c < layout.mesh().size(mesh_dim); ++c) {
    coordinate[static_cast<size_t>(mesh_dim)] = c;
    const std::vector<int64_t> shard = layout.local_shape(coordinate);
    described.held.push_back(std::accumulate(
        shard.begin(), shard.end(), int64_t{1}, std::multiplies<>()));
    if (described.cut_dim >= 0) {
      const Layout::Runs runs = layout.runs(described.cut_dim, coordinate);
      described.parts.push_back(
          runs.empty() ? DemoPart{} : DemoPart{runs[0].begin, runs[0].end});
    }
  }
  return described;
}

int64_t held_bytes(const torch::optim::AdamW& optimizer) {
  int64_t bytes = 0;
  const auto add = [&](const at::Tensor& t) {
    if (t.defined()) {
      const at::Tensor mine = is_dtensor(t) ? to_local(t.detach()) : t;
      bytes += static_cast<int64_t>(mine.nbytes());
    }
  };
  for (const auto& group : optimizer.param_groups()) {
    for (const at::Tensor& parameter : group.params()) {
      add(parameter);
      add(parameter.grad());
    }
  }
  for (const auto& [parameter, state] : optimizer.state()) {
    const auto& moments =
        static_cast<const torch::optim::AdamWParamState&>(*state);
    add(moments.exp_avg());
    add(moments.exp_avg_sq());
  }
  return bytes;
}

std::vector<DemoTraffic> sum_up(const std::vector<CommLogEntry>& entries) {
  using Key = std::tuple<std::string, std::string, std::string, bool>;
  std::map<Key, DemoTraffic> sums;
  for (const CommLogEntry& entry : entries) {
    const std::string cause = alike(entry.cause);
    DemoTraffic& sum =
        sums[{cause, entry.kind, entry.mesh_dims, entry.in_backward}];
    sum.cause = cause;
    sum.kind = entry.kind;
    sum.mesh_dims = entry.mesh_dims;
    sum.in_backward = entry.in_backward;
    ++sum.count;
    sum.bytes += entry.bytes;
  }
  std::vector<DemoTraffic> traffic;
  for (auto& [key, sum] : sums) {
    traffic.push_back(std::move(sum));
  }
  std::stable_sort(
      traffic.begin(), traffic.end(),
      [](const DemoTraffic& a, const DemoTraffic& b) {
        return a.bytes > b.bytes;
      });
  return traffic;
}

}  // namespace tessera::cli
