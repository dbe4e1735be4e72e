// Saves beside the program, as users see them.
#include <checkpoint/calls/async_saves.h>
#include <checkpoint/calls/save.h>
#include <checkpoint/errors.h>
#include <tessera/checkpoint/checkpoint.h>
#include <tessera/comm/world.h>

namespace tessera::detail::inline checkpoint_layer {

using checkpoint::SaveOptions;
using checkpoint::StateDict;

namespace {

// Returns when the snapshot is taken. Collective. `call` is what errors begin
// with.
std::shared_ptr<AsyncSave> save_beside(
    const std::string& call, const StateDict& state, const std::string& path,
    const SaveOptions& options, std::function<void()> after_commit = {}) {
  const World world = init();
  const Communicator group = world.communicator();
  BegunSave begun = begin_save(call, world, state, path, options);
  WritingThread::Work work;
  work.saving = std::move(begun.saving);
  work.after_commit = std::move(after_commit);
  work.report = options.progress;
  Agreement opening = begin_checkpoint_agreement(call, group);
  opening.check([&] {
    with_torch_errors(call, [&] {
      work.writer = io::open_rank_writer(
          begun.ticket, world.rank(), std::move(begun.plan.contents));
      if (world.rank() != 0) {
        work.part = std::make_unique<io::RankPart>(begun.ticket, world.rank());
      }
    });
  });
  opening.reach();

  std::shared_ptr<AsyncSave> save;
  Agreement starting = begin_checkpoint_agreement(call, group);
  starting.check([&] {
    with_torch_errors(call, [&] {
      if (world.rank() + 1 < world.size()) {
        io::check_part(begun.ticket, world.rank() + 1);
      }
      work.chunks = snapshot_of(world).take(begun.plan.views);
      save = std::make_shared<AsyncSave>(call, path, world, std::move(work));
    });
  });
  starting.reach();
  start_async_save(world, save);
  return save;
}

}  // namespace

}  // namespace tessera::detail::inline checkpoint_layer

namespace tessera::checkpoint {

using namespace detail::checkpoint_layer;

Handle::Handle(std::shared_ptr<detail::AsyncSave> save)
    : save_(std::move(save)) {}

void Handle::wait() const {
  if (save_) {
    save_->wait();
  }
}

bool Handle::done() const {
  return !save_ || save_->done();
}

Progress Handle::progress() const {
  return save_ ? save_->thread().progress() : Progress();
}

const std::string& Handle::path() const {
  static const std::string none;
  return save_ ? save_->path() : none;
}

Handle save_async(
    const StateDict& state, const std::string& path,
    const SaveOptions& options) {
  return Handle(save_beside(
      "checkpoint::save_async(\"" + path + "\")", state, path, options));
}

Handle save_step_async(
    const StateDict& state, const std::string& folder, int64_t step,
    int64_t keep, const SaveOptions& options) {
  const std::string call = "checkpoint::save_step_async(\"" + folder + "\")";
  const std::string path = agree_on_step(call, init(), folder, step, keep);
  return Handle(save_beside(call, state, path, options, [folder, step, keep] {
    make_latest(folder, step, keep);
  }));
}

}  // namespace tessera::checkpoint
