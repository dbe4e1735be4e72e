// tessera ckpt convert: the same contents in another format.
#include <CLI/CLI.hpp>

#include <algorithm>
#include <optional>

#include "rewrite.h"

namespace tessera::cli {
namespace {

struct ConvertOptions : RewriteOptions {
  std::optional<uint64_t> max_file_size;
};

/// Puts whole tensors into files of at most so many bytes of elements; a larger
/// one has a file of its own.
Parts whole_tensors(
    const io::Reader& reader, std::optional<uint64_t> max_file_size) {
  Parts parts(1);
  uint64_t bytes = 0;
  for (const io::Entry& entry : reader.entries()) {
    if (!entry.is_tensor()) {
      continue;
    }
    const uint64_t more = tensor_bytes(entry);
    if (max_file_size && !parts.back().empty() &&
        (more > *max_file_size || bytes > *max_file_size - more)) {
      parts.emplace_back();
      bytes = 0;
    }
    parts.back().push_back(chunk_of(entry, io::box_of(entry.shape)));
    bytes += more;
  }
  return parts;
}

/// Keeps the parts as they are, and which of them lie in one file.
Parts same_parts(const io::Reader& reader) {
  Parts parts(std::max<size_t>(reader.files().size(), 1));
  for (const io::Entry& entry : reader.entries()) {
    for (const io::Chunk& chunk : entry.chunks) {
      parts[chunk.stored.file].push_back(chunk_of(entry, chunk.box));
    }
    if (entry.is_tensor() && entry.chunks.empty()) {  // no elements
      parts[0].push_back(chunk_of(entry, io::box_of(entry.shape)));
    }
  }
  return parts;
}

int convert(const ConvertOptions& options) {
  const io::Format format = io::format_named(options.format);
  const bool is_safetensors = format == io::Format::kSafetensors;
  if (options.max_file_size && !is_safetensors) {
    throw UsageError("--max-file-size is for --format safetensors");
  }
  const auto reader = open_for_command(options.path, options.follow_links);
  const Parts parts = is_safetensors
                          ? whole_tensors(*reader, options.max_file_size)
                          : same_parts(*reader);
  if (parts.size() > 1 && is_safetensors &&
      options.to.ends_with(".safetensors")) {
    throw UsageError(
        options.to + ": " + std::to_string(parts.size()) +
        " files of --max-file-size need a folder: a name that does not end in "
        ".safetensors");
  }
  return rewrite_checkpoint(*reader, options, format, parts, "converting");
}

}  // namespace

void set_up_ckpt_convert(CLI::App& ckpt, Invocation& invocation) {
  auto options = std::make_shared<ConvertOptions>();
  CLI::App* command = ckpt.add_subcommand(
      "convert", "Write the same contents in another format");
  add_rewrite_options(*command, *options);
  command->add_option("--format", options->format, "tessera, dcp, safetensors")
      ->required();
  command
      ->add_option(
          "--max-file-size", options->max_file_size,
          "safetensors: several files, each of at most 5GB, 512MiB, ...")
      ->transform(CLI::AsSizeValue(true));
  command->callback([options, &invocation] {
    run_ckpt(invocation, [&] { return convert(*options); });
  });
}

}  // namespace tessera::cli
