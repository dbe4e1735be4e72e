#include "ckpt.h"

#include <base/json.h>
#include <io/files/error.h>
#include <io/model/value_json.h>
#include <io/open_checkpoint.h>
#include <io/steps.h>
#include <CLI/CLI.hpp>

#include <cerrno>
#include <cstdio>

namespace tessera::cli {
namespace {

/// Returns what to do about an error, to be put behind it; "" where the message
/// says so itself.
std::string advice_for(const io::Error& error) {
  if (error.kind() == io::ErrorKind::kCorrupt) {
    return "; take another copy of this checkpoint, or an earlier one";
  }
  switch (error.error_number()) {
    case ENOENT:
      return "; check the path";
    case EACCES:
    case EPERM:
      return "; check who owns it and who may read and write it";
    case EROFS:
      return "; write to another place";
    case ENOSPC:
    case EDQUOT:
      return "; free some space or write to another place. What was written "
             "is removed";
    default:
      return "";
  }
}

/// Returns what to add where a folder holds checkpoints by step.
std::string steps_in(const std::string& path) {
  try {
    if (const auto latest = io::find_latest(path)) {
      return "; it holds checkpoints by step: name one of them, as " + path +
             "/" + io::step_name(*latest);
    }
  } catch (const io::Error&) {
    // What was wrong at first is said.
  }
  return "";
}

void set_up_ckpt(CLI::App& ckpt, Invocation& invocation) {
  ckpt.require_subcommand(1);
  set_up_ckpt_ls(ckpt, invocation);
  set_up_ckpt_verify(ckpt, invocation);
  set_up_ckpt_convert(ckpt, invocation);
  set_up_ckpt_reshard(ckpt, invocation);
  set_up_ckpt_diff(ckpt, invocation);
}

const Command kCkpt{"ckpt", &set_up_ckpt};

}  // namespace

void run_ckpt(Invocation& invocation, const std::function<int()>& work) {
  try {
    invocation.exit_code = work();
  } catch (const io::Error& error) {
    const std::string text = error.what() + advice_for(error);
    if (error.kind() == io::ErrorKind::kUsage) {
      throw UsageError(text);
    }
    throw std::runtime_error(text);
  }
}

void add_follow_links(CLI::App& command, bool& follow_links) {
  command.add_flag(
      "--follow-links", follow_links,
      "take files that are symbolic links, as in the cache of Hugging Face");
}

std::unique_ptr<io::Reader> open_for_command(
    const std::string& path, bool follow_links) {
  try {
    return io::open_checkpoint(path, {.follow_links = follow_links});
  } catch (const io::Error& error) {
    if (error.kind() == io::ErrorKind::kUsage) {
      throw UsageError(error.what() + steps_in(path));
    }
    throw;
  }
}

uint64_t tensor_bytes(const io::Entry& tensor) {
  return static_cast<uint64_t>(*io::byte_count(tensor.shape, *tensor.dtype));
}

Json summary_json(const io::Reader& reader) {
  uint64_t tensors = 0, values = 0, bytes = 0;
  for (const io::Entry& entry : reader.entries()) {
    ++(entry.is_tensor() ? tensors : values);
    bytes += entry.is_tensor() ? tensor_bytes(entry) : 0;
  }
  return {{"path", reader.path()}, {"format", io::name_of(reader.format())},
          {"tensors", tensors},    {"values", values},
          {"bytes", bytes},        {"files", reader.files().size()}};
}

std::string summary_of(const io::Reader& reader) {
  const Json json = summary_json(reader);
  return json["format"].get<std::string>() + ", " +
         counted(json["tensors"], "tensor") + ", " +
         counted(json["values"], "value") + ", " +
         readable_bytes(json["bytes"]) + " in " +
         counted(json["files"], "file");
}

Json value_json(const io::Value& value) {
  try {
    base::JsonWriter out;
    detail::write_value(out, value);
    return Json::parse(out.take());
  } catch (const io::Error& error) {
    const bool is_opaque = value.kind() == io::Value::Kind::kOpaque;
    return {{"opaque", is_opaque ? value.opaque_text() : error.what()}};
  }
}

void print_json(const Json& json) {
  // What comes from files may be no UTF-8.
  print(json.dump(-1, ' ', false, Json::error_handler_t::replace) + "\n");
}

std::string shortened(const std::string& text, int most) {
  if (columns(text) <= most) {
    return text;
  }
  return text.substr(0, static_cast<size_t>(std::max(most - 3, 0))) + "...";
}

}  // namespace tessera::cli
