// tessera show: a picture of who holds what.
#include "show.h"

#include <unistd.h>
#include <CLI/CLI.hpp>

#include <memory>
#include <string>

#include "command.h"
#include "holders.h"

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
    return wrapped(
        describe_rank(layout, *options.rank), terminal, /*indent=*/4);
  }
  const bool grid = fits_grid(layout) && !options.table;
  return (grid ? draw_grid(layout, terminal) : draw_table(layout, terminal)) +
         "\n" + wrapped(summary_line(layout), terminal);
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

}  // namespace

void add_show(CLI::App& app, int& exit_code) {
  CLI::App* show = app.add_subcommand(
      "show", "Draw which rank holds which part of a tensor");
  auto options = std::make_shared<ShowOptions>();
  show->add_option(
      "layout", options->layout,
      "the layout in one text: \"[8, 16] S(0) R @ mesh(dp=2, tp=4)\"");
  show->add_option("--mesh", options->mesh, "2x4, or with names dp=2,tp=4");
  show->add_option("--shape", options->shape, "the global shape: 8x16");
  show->add_option(
      "--placements", options->placements,
      "one per mesh dim: R, S(0), SS(0,2), RS(0,[3,5]), P(sum)");
  show->add_option("--rank", options->rank, "this rank alone");
  show->add_flag("--table", options->table, "list shards instead of a grid");
  show->add_flag(
      "--xla", options->xla, "add the sharding texts of XLA and Shardy");
  show->add_flag("--json", options->json, "print JSON");
  show->add_flag("--ascii", options->ascii, "draw without box characters");
  show->callback([options, show, &exit_code] {
    exit_code = show_layout(*options, *show);
  });
}

}  // namespace tessera::cli
