// Asking about checkpoints, and folders of them by step.
#include <tessera/checkpoint/checkpoint.h>

#include <checkpoint/dtype.h>
#include <checkpoint/leaves.h>
#include <checkpoint/save.h>
#include <comm/agreement.h>
#include <io/open_checkpoint.h>
#include <io/steps.h>
#include <tessera/comm/world.h>

namespace tessera::checkpoint {

namespace {

Entry entry_of(const io::Reader& reader, const io::Entry& stored) {
  Entry entry;
  entry.name = stored.name;
  if (!stored.is_tensor()) {
    const io::Value value = reader.read_value(stored);
    entry.value = detail::text_of(value);
    return entry;
  }
  entry.dtype = detail::from_io(*stored.dtype);
  entry.shape = stored.shape;
  entry.chunks = static_cast<int64_t>(stored.chunks.size());
  entry.bytes = io::byte_count(stored.shape, *stored.dtype).value_or(0);
  return entry;
}

}  // namespace

std::string to_string(Format format) {
  return std::string(io::name_of(detail::to_io(format)));
}

std::vector<Entry> list(const std::string& path, bool follow_links) {
  return detail::with_torch_errors("checkpoint::list", [&] {
    const auto reader =
        io::open_checkpoint(path, {.follow_links = follow_links});
    std::vector<Entry> entries;
    for (const io::Entry& stored : reader->entries()) {
      entries.push_back(entry_of(*reader, stored));
    }
    return entries;
  });
}

std::vector<std::string> verify(const std::string& path, bool follow_links) {
  return detail::with_torch_errors("checkpoint::verify", [&] {
    const auto reader =
        io::open_checkpoint(path, {.follow_links = follow_links});
    reader->verify();
    std::vector<std::string> unchecked;
    if (reader->format() == io::Format::kSafetensors) {
      unchecked.emplace_back(
          "safetensors has no checksums: a changed element is not seen");
    } else if (reader->format() == io::Format::kDcp) {
      unchecked.emplace_back(
          ".metadata has no checksum; elements have that of their zip");
    }
    return unchecked;
  });
}

std::optional<std::string> latest(const std::string& folder) {
  return detail::with_torch_errors(
      "checkpoint::latest", [&]() -> std::optional<std::string> {
        const std::optional<int64_t> step = io::find_latest(folder);
        return step ? std::optional(folder + "/" + io::step_name(*step))
                    : std::nullopt;
      });
}

std::string save_step(
    const StateDict& state, const std::string& folder, int64_t step,
    int64_t keep, const SaveOptions& options) {
  const World world = init();
  const std::string path = folder + "/" + io::step_name(step);
  save(state, path, options);
  detail::Agreement agreement("checkpoint::save_step", world.communicator());
  agreement.check([&] {
    if (world.rank() == 0) {
      detail::with_torch_errors("checkpoint::save_step", [&] {
        io::set_latest(folder, step);
        if (keep > 0) {
          io::remove_old_steps(folder, keep);
        }
      });
    }
  });
  agreement.reach();
  return path;
}

}  // namespace tessera::checkpoint
