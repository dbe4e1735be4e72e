// tessera ckpt verify: every byte is read, for its checksums and rules.
#include <base/escape.h>
#include <io/files/error.h>
#include <unistd.h>
#include <CLI/CLI.hpp>

#include "ckpt.h"
#include "cli/text/progress.h"

namespace tessera::cli {
namespace {

struct VerifyOptions {
  std::string path;
  bool json = false;
  bool follow_links = false;
  bool progress = false;
};

struct Problem {
  std::string name;  // of an entry; "" where the files are wrong
  std::string text;
};

bool has_checksums(const io::Reader& reader) {
  return reader.format() != io::Format::kSafetensors;
}

/// Adds what is wrong with the bytes; that they cannot be read at all is an
/// error of the whole command.
void check_part(
    std::vector<Problem>& problems, const std::string& name,
    const std::function<void()>& check) {
  try {
    check();
  } catch (const io::Error& error) {
    if (error.kind() == io::ErrorKind::kSystem ||
        error.kind() == io::ErrorKind::kUsage) {
      throw;
    }
    problems.push_back({name, error.what()});
  }
}

void verify_entry(
    const io::Reader& reader, const io::Entry& entry, Progress& progress) {
  if (!entry.is_tensor()) {
    reader.verify(entry);
    return;
  }
  for (size_t i = 0; i < entry.chunks.size(); ++i) {
    detail::verify_payload(*reader.open_payload(entry, i));
    progress.advance(static_cast<uint64_t>(
        *io::byte_count(entry.chunks[i].box.sizes, *entry.dtype)));
  }
}

std::vector<Problem> find_problems(const io::Reader& reader, bool progress) {
  Progress shown("verifying", summary_json(reader)["bytes"], progress);
  std::vector<Problem> problems;
  for (const io::Entry& entry : reader.entries()) {
    check_part(
        problems, entry.name, [&] { verify_entry(reader, entry, shown); });
  }
  check_part(problems, "", [&] { reader.verify_files(); });
  return problems;
}

Json verify_json(
    const io::Reader& reader, const std::vector<Problem>& problems) {
  Json json = summary_json(reader);
  json["has_checksums"] = has_checksums(reader);
  json["unchecked"] = io::unchecked_in(reader.format());
  json["ok"] = problems.empty();
  json["problems"] = Json::array();
  for (const Problem& problem : problems) {
    json["problems"].push_back(
        {{"name", problem.name}, {"problem", problem.text}});
  }
  return json;
}

std::string verdict(
    const io::Reader& reader, const std::vector<Problem>& problems) {
  if (!problems.empty()) {
    return counted(int64_t(problems.size()), "problem") +
           ": take another copy of this checkpoint, or an earlier one";
  }
  const std::string unchecked(io::unchecked_in(reader.format()));
  return unchecked.empty() ? "ok: all bytes are what was written"
                           : "ok: complete and well-formed; " + unchecked;
}

int verify_checkpoint(const VerifyOptions& options) {
  const auto reader = open_for_command(options.path, options.follow_links);
  const std::vector<Problem> problems =
      find_problems(*reader, options.progress);
  if (options.json) {
    print_json(verify_json(*reader, problems));
  } else {
    std::string text = reader->path() + ": " + summary_of(*reader) + "\n";
    for (const Problem& problem : problems) {
      const std::string name = base::escape(problem.name);
      text +=
          "damaged: " + name + (name.empty() ? "" : ": ") + problem.text + "\n";
    }
    const Terminal terminal = detect_terminal(STDOUT_FILENO, false);
    print(wrapped(text + verdict(*reader, problems) + "\n", terminal));
  }
  return problems.empty() ? 0 : kExitFailure;
}

}  // namespace

void set_up_ckpt_verify(CLI::App& ckpt, Invocation& invocation) {
  auto options = std::make_shared<VerifyOptions>();
  CLI::App* verify = ckpt.add_subcommand(
      "verify", "Read every byte and check it; exit code 1 where some are bad");
  verify->add_option("PATH", options->path, "a checkpoint of any format")
      ->required();
  verify->add_flag("--json", options->json, "print JSON");
  add_follow_links(*verify, options->follow_links);
  verify->add_flag(
      "--progress", options->progress,
      "a line for every tenth, on standard error");
  verify->callback([options, &invocation] {
    run_ckpt(invocation, [&] { return verify_checkpoint(*options); });
  });
}

}  // namespace tessera::cli
