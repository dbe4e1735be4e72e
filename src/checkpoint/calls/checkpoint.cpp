// Asking about checkpoints, and folders of them by step.
#include <tessera/checkpoint/checkpoint.h>

#include <checkpoint/calls/save.h>
#include <checkpoint/entries.h>
#include <checkpoint/errors.h>
#include <io/open_checkpoint.h>
#include <io/steps.h>
#include <tessera/comm/world.h>

namespace tessera::checkpoint {

StateDict build_state(
    const std::string& call, const std::function<StateDict()>& make) {
  StateDict state;
  detail::Agreement building =
      detail::begin_checkpoint_agreement(call, init().communicator());
  building.check([&] { state = make(); });
  building.reach();
  return state;
}

std::string to_string(Format format) {
  return std::string(io::name_of(detail::to_io(format)));
}

std::vector<Entry> list(const std::string& path, bool follow_links) {
  return detail::with_torch_errors("checkpoint::list", [&] {
    const auto reader =
        io::open_checkpoint(path, {.follow_links = follow_links});
    std::vector<Entry> entries;
    for (const io::Entry& stored : reader->entries()) {
      entries.push_back(detail::entry_of(*reader, stored));
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
    if (const auto text = io::unchecked_in(reader->format()); !text.empty()) {
      unchecked.emplace_back(text);
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
  const std::string call = "checkpoint::save_step(\"" + folder + "\")";
  const std::string path =
      detail::agree_on_step(call, world, folder, step, keep);
  save(state, path, options);
  detail::Agreement agreement =
      detail::begin_checkpoint_agreement(call, world.communicator());
  agreement.check([&] {
    if (world.rank() == 0) {
      detail::with_torch_errors(
          call, [&] { detail::make_latest(folder, step, keep); });
    }
  });
  agreement.reach();
  return path;
}

}  // namespace tessera::checkpoint
