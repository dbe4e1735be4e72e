// tessera show: a picture of who holds what.
#include "show.h"

#include <unistd.h>
#include <CLI/CLI.hpp>

#include <memory>
#include <string>

#include <tessera/layout/visualize_sharding.h>

#include "cli/command.h"

namespace tessera::cli {
namespace {

struct ShowOptions {
  std::string layout, mesh, shape, placements;
  std::optional<int64_t> rank;
  bool json = false;
  bool ascii = false;
  bool table = false;
  bool xla = false;
};

TypedLayout layout_of(const ShowOptions& options, const CLI::App& show) {
  const bool parts = show.count("--mesh") + show.count("--shape") +
                         show.count("--placements") >
                     0;
  if (show.count("layout") > 0) {
    if (parts) {
      throw UsageError(
          "give either a layout or --mesh, --shape and --placements, not both");
    }
    return parse_layout(options.layout);
  }
  for (const char* name : {"--mesh", "--shape", "--placements"}) {
    if (show.count(name) == 0) {
      throw UsageError(
          std::string(name) +
          " is missing; example: tessera show --mesh dp=2,tp=4 --shape 8x16 "
          "--placements \"S(0) S(1)\"");
    }
  }
  return TypedLayout{
      "", Layout(
              parse_shape(options.shape), parse_mesh(options.mesh),
              parse_placements(options.placements))};
}

std::string picture(const Layout& layout, const ShowOptions& options) {
  const Terminal terminal = detect_terminal(STDOUT_FILENO, options.ascii);
  if (options.rank) {
    coordinate_of_rank(layout, *options.rank);  // one outside is a mistake
    return wrapped(
        visualize_shard(layout, *options.rank) + "\n", terminal,
        /*indent=*/4);
  }
  const VisualizeOptions drawn{
      .width = terminal.width,
      .ascii = !terminal.utf8,
      .color = terminal.color,
      .table = options.table,
      .shortened_note =
          "shortened: --rank N prints one rank, --json all of them"};
  return visualize_sharding(layout, drawn) + "\n\n" +
         wrapped(summary_line(layout), terminal);
}

int show_layout(const ShowOptions& options, const CLI::App& show) {
  const TypedLayout typed = layout_of(options, show);
  if (options.json) {
    print(show_json(typed, options.rank, options.xla) + "\n");
    return 0;
  }
  print(
      typed.dtype + to_string(typed.layout) + "\n\n" +
      picture(typed.layout, options) +
      (options.xla ? "\n" + xla_texts(typed.layout) : ""));
  return 0;
}

void set_up_show(CLI::App& show, Invocation& invocation) {
  auto options = std::make_shared<ShowOptions>();
  show.add_option(
      "layout", options->layout,
      "the layout in one text: \"[8, 16] S(0) R @ mesh(dp=2, tp=4)\"");
  show.add_option("--mesh", options->mesh, "2x4, or with names dp=2,tp=4");
  show.add_option("--shape", options->shape, "the global shape: 8x16");
  show.add_option(
      "--placements", options->placements,
      "one per mesh dim: R, S(0), SS(0,2), RS(0,[3,5]), P(sum)");
  show.add_option("--rank", options->rank, "this rank alone");
  show.add_flag("--table", options->table, "list shards instead of a grid");
  show.add_flag(
      "--xla", options->xla, "add the sharding texts of XLA and Shardy");
  show.add_flag("--json", options->json, "print JSON");
  show.add_flag("--ascii", options->ascii, "draw without box characters");
  show.callback([options, &show, &invocation] {
    invocation.exit_code = show_layout(*options, show);
  });
}

const Command kShow{"show", &set_up_show};

}  // namespace
}  // namespace tessera::cli
