#include <checkpoint/write/writing_thread.h>

#include <unistd.h>

#include <utility>

#include <checkpoint/write/portions.h>

namespace tessera::detail::inline checkpoint_layer {

namespace {

int64_t sum_of(const std::vector<Snapshot::Bytes>& chunks) {
  int64_t bytes = 0;
  for (const Snapshot::Bytes& chunk : chunks) {
    bytes += static_cast<int64_t>(chunk.size);
  }
  return bytes;
}

}  // namespace

WritingThread::WritingThread(Work work)
    : process_(::getpid()),
      total_(sum_of(work.chunks)),
      work_(std::move(work)),
      thread_([this] { run(); }) {}

WritingThread::~WritingThread() {
  if (is_forked_copy()) {
    static_cast<void>(new Work(std::move(work_)));
  }
  State expected = State::kWaits;
  state_.compare_exchange_strong(expected, State::kEnds);
  state_.notify_all();
  join();
}

bool WritingThread::is_forked_copy() const {
  return ::getpid() != process_;
}

void WritingThread::start() {
  state_.store(State::kWrites);
  state_.notify_all();
}

checkpoint::Progress WritingThread::progress() const {
  return {written_.load(std::memory_order_relaxed), total_};
}

bool WritingThread::done() const {
  return is_over_.load() && (!work_.part || work_.part->is_save_over());
}

void WritingThread::wait_written() const {
  if (!is_forked_copy()) {
    is_written_.wait(false);
  }
}

void WritingThread::join() {
  const std::lock_guard lock(joining_);
  if (thread_.joinable()) {
    is_forked_copy() ? thread_.detach() : thread_.join();
  }
}

void WritingThread::run() {
  state_.wait(State::kWaits);
  if (state_.load() == State::kWrites) {
    std::string records;
    try {
      records = write();
    } catch (...) {
      writing_error_ = std::current_exception();
    }
    work_.writer.reset();
    if (work_.part) {
      work_.part->give_up();  // where it has left no records
    }
    is_written_.store(true);
    is_written_.notify_all();
    if (work_.saving) {
      commit(std::move(records));
    }
  }
  work_.saving.reset();  // what is not committed is removed
  is_over_.store(true);
}

std::string WritingThread::write() {
  ProgressReport report(std::move(work_.report), total_);
  for (size_t i = 0; i < work_.chunks.size(); ++i) {
    const Snapshot::Bytes& chunk = work_.chunks[i];
    for_each_portion(
        chunk.memory, chunk.size, [&](const void* bytes, size_t size) {
          work_.writer->append(i, bytes, size);
          written_.fetch_add(
              static_cast<int64_t>(size), std::memory_order_relaxed);
          report.add(size);
        });
  }
  std::string records = work_.writer->finish();
  if (work_.part) {
    work_.part->leave(records);
  }
  return records;
}

// Also after an error of its own the first rank waits for the others, so that
// nobody writes into a folder that is being removed.
void WritingThread::commit(std::string records) {
  try {
    const std::vector<std::string> all =
        work_.saving->wait_for_parts(std::move(records), stops_waiting_);
    if (writing_error_ == nullptr) {
      leftovers_ = work_.saving->commit(all);
      if (work_.after_commit) {
        work_.after_commit();
      }
    }
  } catch (...) {
    committing_error_ = std::current_exception();
  }
}

}  // namespace tessera::detail::inline checkpoint_layer
