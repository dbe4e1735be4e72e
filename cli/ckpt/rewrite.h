// Writing the contents of a checkpoint anew: in another format, in other parts.
#pragma once

#include <optional>
#include <string>
#include <vector>

#include "ckpt.h"

namespace tessera::cli {

struct RewriteOptions {
  std::string path, to;
  std::string format;
  bool overwrite = false;
  bool drop_values = false;
  bool json = false;
  bool follow_links = false;
  bool progress = false;
};

/// Adds PATH, TO and what all of them have.
void add_rewrite_options(CLI::App& command, RewriteOptions& options);

/// Which rank of the new checkpoint writes which parts; values are the first
/// rank's.
using Parts = std::vector<std::vector<io::TensorChunk>>;

/// Returns a part of a tensor that is written.
io::TensorChunk chunk_of(const io::Entry& tensor, const io::Box& box);

/// Writes the new checkpoint and says what it is; `title` is for the progress.
/// A value or dtype that the format cannot hold is a UsageError, unless values
/// may be dropped. Memory: a few MiB, and one for each of 32 ranks at a time.
int rewrite_checkpoint(
    const io::Reader& reader, const RewriteOptions& options, io::Format format,
    const Parts& parts, const std::string& title);

}  // namespace tessera::cli
