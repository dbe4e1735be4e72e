// tessera ckpt reshard: the same contents, cut for the ranks of another mesh.
#include <base/escape.h>
#include <c10/util/Exception.h>
#include <tessera/layout/notation.h>
#include <CLI/CLI.hpp>

#include <set>
#include <utility>

#include "rewrite.h"

namespace tessera::cli {
namespace {

struct ReshardOptions : RewriteOptions {
  std::string mesh, placements;
};

Placements wanted_placements(
    const ReshardOptions& options, const MeshShape& mesh) {
  if (options.placements.empty()) {
    return Placements(mesh.sizes().size(), Shard(0));
  }
  Placements placements = parse_placements(options.placements);
  for (const Placement& placement : placements) {
    if (placement.is_partial()) {
      throw UsageError(
          "a checkpoint has no " + to_string(placement) +
          ": terms of a sum are added up before they are saved; use R or S");
    }
  }
  return placements;
}

/// Returns the layout of a tensor. It is whole along mesh dims whose placement
/// cuts a dim that it has not.
Layout layout_of(
    const io::Entry& tensor, const MeshShape& mesh, Placements placements) {
  const auto dims = static_cast<int64_t>(tensor.shape.size());
  for (Placement& placement : placements) {
    const Placement resolved = placement.resolved(dims);
    if (resolved.is_shard() && (resolved.dim() < 0 || resolved.dim() >= dims)) {
      placement = Replicate();
    }
  }
  try {
    return Layout(tensor.shape, mesh, std::move(placements));
  } catch (const c10::Error& error) {
    throw UsageError(
        "'" + base::escape(tensor.name) +
        "': " + error.what_without_backtrace());
  }
}

/// Adds a tensor to the ranks that hold it; of copies the first rank writes.
void add_tensor(Parts& parts, const io::Entry& tensor, const Layout& layout) {
  const std::vector<int64_t> ranks = layout.mesh().ranks();
  std::set<std::vector<int64_t>> written;  // offsets
  for (size_t i = 0; i < ranks.size(); ++i) {
    const auto coordinate = layout.mesh().coordinate_of(ranks[i]);
    for (const Box& box : layout.boxes(*coordinate)) {
      if (written.insert(box.offsets).second) {
        parts[i].push_back(chunk_of(tensor, {box.offsets, box.sizes}));
      }
    }
  }
  if (written.empty()) {  // no elements
    parts[0].push_back(chunk_of(tensor, io::box_of(tensor.shape)));
  }
}

int reshard(const ReshardOptions& options) {
  const MeshShape mesh = parse_mesh(options.mesh);
  const Placements placements = wanted_placements(options, mesh);
  const auto reader = open_for_command(options.path, options.follow_links);
  const io::Format format = options.format.empty()
                                ? reader->format()
                                : io::format_named(options.format);
  Parts parts(static_cast<size_t>(mesh.size()));
  for (const io::Entry& entry : reader->entries()) {
    if (entry.is_tensor()) {
      add_tensor(parts, entry, layout_of(entry, mesh, placements));
    }
  }
  return rewrite_checkpoint(*reader, options, format, parts, "resharding");
}

}  // namespace

void set_up_ckpt_reshard(CLI::App& ckpt, Invocation& invocation) {
  auto options = std::make_shared<ReshardOptions>();
  CLI::App* command = ckpt.add_subcommand(
      "reshard", "Cut the tensors for the ranks of another mesh");
  add_rewrite_options(*command, *options);
  command->add_option("--to", options->mesh, "the mesh: 2x4, or dp=2,tp=4")
      ->required();
  command->add_option(
      "--placements", options->placements,
      "of every tensor: \"S(0) R\"; S(0) on all mesh dims unless told");
  command->add_option(
      "--format", options->format,
      "tessera, dcp, safetensors; that of PATH unless told");
  command->callback([options, &invocation] {
    run_ckpt(invocation, [&] { return reshard(*options); });
  });
}

}  // namespace tessera::cli
