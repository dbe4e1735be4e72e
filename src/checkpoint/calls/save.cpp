// Saving: ranks agree on what is saved, the first one begins, each writes its
// boxes, the first one commits. What fails on one rank is thrown on all.
#include <checkpoint/calls/save.h>

#include <memory>

#include <checkpoint/calls/async_saves.h>
#include <checkpoint/collective.h>
#include <checkpoint/errors.h>
#include <checkpoint/write/portions.h>
#include <io/steps.h>
#include <tessera/checkpoint/checkpoint.h>
#include <tessera/comm/world.h>

namespace tessera::detail::inline checkpoint_layer {

using checkpoint::SaveOptions;
using checkpoint::StateDict;

namespace {

std::string write_plan(
    const std::string& ticket, int64_t rank, SavePlan plan,
    ProgressReport progress) {
  const std::unique_ptr<io::RankWriter> writer =
      io::open_rank_writer(ticket, rank, std::move(plan.contents));
  for (size_t i = 0; i < plan.views.size(); ++i) {
    if (plan.views[i].defined()) {
      for_each_portion(plan.views[i], [&](const void* bytes, size_t size) {
        writer->append(i, bytes, size);
        progress.add(size);
      });
    }
  }
  return writer->finish();
}

}  // namespace

io::Format to_io(checkpoint::Format format) {
  switch (format) {
    case checkpoint::Format::kTessera:
      return io::Format::kTessera;
    case checkpoint::Format::kDcp:
      return io::Format::kDcp;
    case checkpoint::Format::kSafetensors:
      return io::Format::kSafetensors;
  }
  TORCH_INTERNAL_ASSERT(false);
}

BegunSave begin_save(
    const std::string& call, const World& world, const StateDict& state,
    const std::string& path, const SaveOptions& options) {
  finish_async_save(call, world);
  const Communicator group = world.communicator();
  const bool is_first = world.rank() == 0;
  const io::Format format = to_io(options.format);

  StateDict dict = state;  // a list of handles; leaves point into it
  BegunSave begun;
  Agreement planning = begin_checkpoint_agreement(call, group);
  planning.check(
      [&] { begun.plan = make_save_plan(call, format, is_first, dict); });
  planning.equal("path", path);
  planning.equal("format", to_string(options.format));
  planning.equal("overwrite", options.overwrite ? "true" : "false");
  planning.reach();
  require_equal_lines(
      call, group, "plain tensors and values, of which one copy is kept,",
      begun.plan.shared);

  Agreement beginning = begin_checkpoint_agreement(call, group);
  beginning.check([&] {
    if (is_first) {
      begun.saving = with_torch_errors(call, [&] {
        return std::make_unique<io::Save>(
            path, io::SaveOptions{
                      .format = format,
                      .ranks = world.size(),
                      .overwrite = options.overwrite});
      });
    }
  });
  begun.ticket =
      beginning.collect(begun.saving ? begun.saving->ticket() : "").front();
  return begun;
}

std::string agree_on_step(
    const std::string& call, const World& world, const std::string& folder,
    int64_t step, int64_t keep) {
  std::string path;
  Agreement naming = begin_checkpoint_agreement(call, world.communicator());
  naming.check([&] {
    TORCH_CHECK_VALUE(
        keep >= 0, call, ": keeps ", keep, " steps; 0 keeps all of them");
    path = folder + "/" +
           with_torch_errors(call, [&] { return io::step_name(step); });
  });
  naming.equal("keep", std::to_string(keep));
  naming.reach();
  return path;
}

void make_latest(const std::string& folder, int64_t step, int64_t keep) {
  io::set_latest(folder, step);
  if (keep > 0) {
    io::remove_old_steps(folder, keep);
  }
}

}  // namespace tessera::detail::inline checkpoint_layer

namespace tessera::checkpoint {

using namespace detail::checkpoint_layer;

void save(
    const StateDict& state, const std::string& path,
    const SaveOptions& options) {
  const World world = init();
  const Communicator group = world.communicator();
  const std::string call = "checkpoint::save(\"" + path + "\")";
  BegunSave begun = begin_save(call, world, state, path, options);

  std::string records;
  detail::Agreement writing = begin_checkpoint_agreement(call, group);
  writing.check([&] {
    records = with_torch_errors(call, [&] {
      ProgressReport progress(options.progress, begun.plan.bytes());
      return write_plan(
          begun.ticket, world.rank(), std::move(begun.plan),
          std::move(progress));
    });
  });
  writing.reach();
  const std::vector<std::string> all = gather_texts(group, records);

  detail::Agreement committing = begin_checkpoint_agreement(call, group);
  committing.check([&] {
    if (begun.saving) {
      const std::vector<std::string> leftovers =
          with_torch_errors(call, [&] { return begun.saving->commit(all); });
      for (const std::string& leftover : leftovers) {
        TORCH_WARN(call, ": ", leftover);
      }
    }
  });
  committing.reach();
}

}  // namespace tessera::checkpoint
