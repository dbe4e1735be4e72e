// tessera plan: the steps of a redistribution and their price.
#include <tessera/layout/notation.h>
#include <tessera/plan/redistribute_plan.h>
#include <unistd.h>
#include <CLI/CLI.hpp>

#include <map>
#include <memory>
#include <string>

#include "cli/text/terminal.h"
#include "command.h"

namespace tessera::cli {
namespace {

struct PlanOptions {
  std::string mesh, to_mesh, shape, from, to;
  std::string dtype = "f32";
  bool json = false;
};

int64_t element_size(const std::string& dtype) {
  static const std::map<std::string, int64_t> sizes{
      {"bool", 1}, {"u8", 1},  {"i8", 1},  {"i16", 2},
      {"i32", 4},  {"i64", 8}, {"f16", 2}, {"bf16", 2},
      {"f32", 4},  {"f64", 8}, {"c64", 8}, {"c128", 16}};
  const auto at = sizes.find(dtype);
  if (at == sizes.end()) {
    std::string known;
    for (const auto& [name, size] : sizes) {
      known += (known.empty() ? "" : ", ") + name;
    }
    throw UsageError("unknown dtype '" + dtype + "'; there are: " + known);
  }
  return at->second;
}

int show_plan(const PlanOptions& options) {
  const MeshShape mesh = parse_mesh(options.mesh);
  const auto shape = parse_shape(options.shape);
  const Layout source(shape, mesh, parse_placements(options.from));
  const Layout target(
      shape, options.to_mesh.empty() ? mesh : parse_mesh(options.to_mesh),
      parse_placements(options.to));
  const RedistributePlan plan =
      plan_redistribution(source, target, element_size(options.dtype));
  if (options.json) {
    print(to_json(plan) + "\n");
    return 0;
  }
  const Terminal terminal = detect_terminal(STDOUT_FILENO, false);
  print(
      options.dtype + to_string(source) + "\n" + options.dtype +
      to_string(target) + "\n\n" +
      wrapped(to_string(plan), terminal, /*indent=*/3));
  return 0;
}

void set_up_plan(CLI::App& plan, Invocation& invocation) {
  auto options = std::make_shared<PlanOptions>();
  plan.add_option("--mesh", options->mesh, "2x4, or with names dp=2,tp=4")
      ->required();
  plan.add_option(
      "--to-mesh", options->to_mesh,
      "the mesh wanted, where it is another one; both hold ranks 0, 1, ...");
  plan.add_option("--shape", options->shape, "the global shape: 1024x1024")
      ->required();
  plan.add_option("--dtype", options->dtype, "f32 unless told");
  plan.add_option("--from", options->from, "placements now: \"S(0) R\"")
      ->required();
  plan.add_option("--to", options->to, "placements wanted: \"R S(1)\"")
      ->required();
  plan.add_flag("--json", options->json, "print JSON");
  plan.callback(
      [options, &invocation] { invocation.exit_code = show_plan(*options); });
}

const Command kPlan{"plan", &set_up_plan};

}  // namespace
}  // namespace tessera::cli
