#include "comm/engine/c10d/store/store_events.h"

#include <signal.h>
#include <unistd.h>

#include <cerrno>
#include <fstream>
#include <string>
#include <utility>

namespace tessera::detail::inline comm_layer {
namespace {

using Clock = std::chrono::steady_clock;

// How often a waiting rank asks the store, and looks at other processes.
constexpr auto kEventPollInterval = std::chrono::milliseconds(20);

std::vector<uint8_t> as_value(const std::string& text) {
  return {text.begin(), text.end()};
}
std::string as_text(const std::vector<uint8_t>& value) {
  return {value.begin(), value.end()};
}
std::string numbered(const char* name, int64_t number) {
  return std::string(name) + " " + std::to_string(number);
}
std::string numbered(const char* name, int64_t rank, int64_t number) {
  return numbered(name, rank) + " " + std::to_string(number);
}

// Where a process id means the same process: a host, and in it a container.
std::string id_space() {
  char host[256] = {};
  gethostname(host, sizeof(host) - 1);
  char space[64] = {};
  const auto length = readlink("/proc/self/ns/pid", space, sizeof(space) - 1);
  return std::string(host) + " " + (length > 0 ? space : "");
}

bool exists(pid_t process) {
  if (kill(process, 0) != 0 && errno == ESRCH) {
    return false;
  }
  // A process that has ended stays in the table until its parent has asked.
  std::ifstream status("/proc/" + std::to_string(process) + "/stat");
  std::string text;
  std::getline(status, text);
  const size_t end = text.rfind(')');
  return end == std::string::npos || end + 2 >= text.size() ||
         text[end + 2] != 'Z';
}

}  // namespace

StoreEvents::StoreEvents(StorePtr store, int64_t rank, int64_t size)
    : store_(std::move(store)), rank_(rank), size_(size) {
  store_->set(numbered("host", rank), as_value(id_space()));
  store_->set(numbered("process", rank), as_value(std::to_string(getpid())));
}

// Each rank counts its own. To look writes nothing: a rank that is killed while
// it writes could leave half an entry to the others.
void StoreEvents::notify(const PeerEvent& event) noexcept {
  try {
    store_->set(numbered("news", rank_, ++told_), as_value(to_bytes(event)));
  } catch (...) {
    static_cast<void>(0);  // the store is gone, and with it the job
  }
}

std::vector<PeerEvent> StoreEvents::poll_events(uint64_t world) {
  if (Clock::now() >= next_poll_) {
    poll();
    next_poll_ = Clock::now() + kEventPollInterval;
  }
  std::vector<PeerEvent> all = std::exchange(heard_[world], {});
  for (const int64_t rank : dead_) {
    if (mourned_[world].insert(rank).second) {
      all.push_back(
          {.rank = rank,
           .world = world,
           .text = "its process has ended without a word"});
    }
  }
  return all;
}

void StoreEvents::mark_dead() noexcept {
  try {
    store_->set(numbered("gone", rank_), as_value("1"));
  } catch (...) {
    static_cast<void>(0);  // so is the store
  }
}

bool StoreEvents::others_are_dead() {
  for (int64_t r = 0; r < size_; ++r) {
    const bool uses_it = r != rank_ &&
                         store_->check({numbered("process", r)}) &&
                         !store_->check({numbered("gone", r)}) && is_alive(r);
    if (uses_it) {
      return false;
    }
  }
  return true;
}

// Where the store has died with its rank, the dead rank is what counts.
void StoreEvents::poll() {
  try {
    read_events();
    poll_processes();
  } catch (const std::exception&) {
    mark_known_processes_dead();
    if (dead_.empty()) {
      throw;
    }
  }
}

void StoreEvents::read_events() {
  for (int64_t r = 0; r < size_; ++r) {
    while (r != rank_ && store_->check({numbered("news", r, read_[r] + 1)})) {
      const PeerEvent event =
          event_from(as_text(store_->get(numbered("news", r, ++read_[r]))));
      heard_[event.world].push_back(event);
      ended_[r] = ended_[r] || (event.world == 0 && event.group == 0);
    }
  }
}

// See Note [Who is alive].
void StoreEvents::poll_processes() {
  for (int64_t r = 0; r < size_; ++r) {
    if (r == rank_ || ended_[r] || is_alive(r)) {
      continue;
    }
    read_events();  // it may have said so meanwhile
    if (!ended_[r]) {
      ended_[r] = true;
      dead_.insert(r);
    }
  }
}

void StoreEvents::mark_known_processes_dead() {
  for (const auto& [r, process] : processes_) {
    if (process > 0 && !ended_[r] && !exists(process)) {
      ended_[r] = true;
      dead_.insert(r);
    }
  }
}

bool StoreEvents::is_alive(int64_t rank) {
  pid_t& process = processes_[rank];
  if (process == 0) {
    if (!store_->check({numbered("process", rank)})) {
      return true;  // not started yet
    }
    const bool here =
        as_text(store_->get(numbered("host", rank))) == id_space();
    process =
        here ? std::stoi(as_text(store_->get(numbered("process", rank)))) : -1;
  }
  return process < 0 || exists(process);  // elsewhere: Gloo will tell
}

}  // namespace tessera::detail::inline comm_layer
