// tessera ckpt: what is in a checkpoint, is it whole, the same in another
// format or cut for another mesh, and how two differ. It stands on the io layer
// alone, so that it starts without LibTorch, and streams: memory does not grow
// with tensors.
#pragma once

#include <cstdint>
#include <functional>
#include <memory>
#include <string>
#include <string_view>
#include <vector>

#include <io/model/reader.h>
#include <io/model/writer.h>
#include <nlohmann/json.hpp>

#include "cli/command.h"
#include "cli/text/terminal.h"

namespace tessera::cli {

using Json = nlohmann::ordered_json;

/// Of a tensor at most so much is in memory.
inline constexpr int64_t kPartBytes = int64_t{1} << 20;

/// Each adds its subcommand to `ckpt`.
void set_up_ckpt_ls(CLI::App& ckpt, Invocation& invocation);
void set_up_ckpt_verify(CLI::App& ckpt, Invocation& invocation);
void set_up_ckpt_convert(CLI::App& ckpt, Invocation& invocation);
void set_up_ckpt_reshard(CLI::App& ckpt, Invocation& invocation);
void set_up_ckpt_diff(CLI::App& ckpt, Invocation& invocation);

/// Does the work of a subcommand, whose exit code it leaves. Errors of the io
/// layer get what to do; what makes no sense becomes a UsageError.
void run_ckpt(Invocation& invocation, const std::function<int()>& work);

/// Adds the option --follow-links.
void add_follow_links(CLI::App& command, bool& follow_links);
/// Opens a checkpoint; of a folder of steps says which there are.
std::unique_ptr<io::Reader> open_for_command(
    const std::string& path, bool follow_links);

/// Returns the bytes of a tensor's elements.
uint64_t tensor_bytes(const io::Entry& tensor);
/// Returns "tessera, 5 tensors, 2 values, 1.5 KiB in 4 files".
std::string summary_of(const io::Reader& reader);
/// Returns the same as JSON: path, format, tensors, values, bytes, files.
Json summary_json(const io::Reader& reader);
/// Returns a value in the form of io/model/value_json.h; what that cannot hold
/// is {"opaque":"why"}.
Json value_json(const io::Value& value);
/// Prints JSON as one line.
void print_json(const Json& json);
/// Returns the beginning of a text that is longer than so many columns.
std::string shortened(const std::string& text, int columns);

}  // namespace tessera::cli
