#include <nlohmann/json.hpp>

#include "demo_report.h"
#include "demo_verdict.h"

namespace tessera::cli {
namespace {

using Json = nlohmann::ordered_json;

Json parameters_json(const DemoResult& result) {
  Json list = Json::array();
  for (const DemoParameter& parameter : result.parameters) {
    Json parts = Json::array();
    for (const DemoPart& part : parameter.parts) {
      parts.push_back({part.begin, part.end});
    }
    list.push_back(
        {{"name", parameter.name},
         {"shape", parameter.shape},
         {"placements", parameter.placements},
         {"cut_dim", parameter.cut_dim < 0 ? Json() : Json(parameter.cut_dim)},
         {"parts", parts},
         {"held", parameter.held}});
  }
  return list;
}

Json traffic_json(const DemoResult& result) {
  Json list = Json::array();
  for (const DemoTraffic& row : result.traffic) {
    list.push_back(
        {{"cause", row.cause},
         {"op", row.kind},
         {"mesh_dims", row.mesh_dims},
         {"backward", row.in_backward},
         {"count", row.count},
         {"bytes", row.bytes}});
  }
  return list;
}

double tokens_per_second(const DemoRun& run) {
  const auto steps = static_cast<double>(run.losses.size());
  return run.seconds > 0 ? steps * kDemoTokensPerStep / run.seconds : 0;
}

}  // namespace

std::string demo_json(const DemoResult& result, const DemoOptions& options) {
  const DemoVerdict verdict = compare_curves(
      result.plain.losses, result.sharded.losses, accuracy_of(options.dtype));
  Json json = {
      {"ranks", options.mesh.ranks()},
      {"mesh", result.mesh},
      {"engine", result.engine},
      {"steps", options.steps},
      {"dtype", options.dtype},
      {"recompute", options.recompute},
      {"plain_losses", result.plain.losses},
      {"sharded_losses", result.sharded.losses},
      {"largest_relative_difference", verdict.difference},
      {"allowed_difference", verdict.allowed},
      {"equal", verdict.equal()},
      {"plain_seconds", result.plain.seconds},
      {"sharded_seconds", result.sharded.seconds},
      {"plain_tokens_per_second", tokens_per_second(result.plain)},
      {"sharded_tokens_per_second", tokens_per_second(result.sharded)},
      {"parameters", parameters_json(result)},
      {"communication", traffic_json(result)},
      {"prompt", result.prompt},
      {"text", result.sharded.text},
      {"plain_text", result.plain.text}};
  if (options.fsdp) {
    json["rank_bytes"] = result.rank_bytes;
    json["replicated_bytes"] = result.replicated_bytes;
  }
  if (options.restart) {
    json.update(
        {{"restart_after", options.steps_before_restart()},
         {"restart_ranks", options.restart->ranks()},
         {"restart_mesh", result.restart.mesh},
         {"checkpoint_bytes", result.restart.checkpoint_bytes},
         {"save_seconds", result.restart.save_seconds},
         {"load_seconds", result.restart.load_seconds}});
  }
  return json.dump() + "\n";
}

}  // namespace tessera::cli
