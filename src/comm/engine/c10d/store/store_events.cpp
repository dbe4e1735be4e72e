#include "comm/engine/c10d/store/store_events.h"

#include <signal.h>
#include <unistd.h>

#include <cerrno>
#include <fstream>
#include <string>
#include <utility>

namespace tessera::detail {
namespace {

using Clock = std::chrono::steady_clock;

// How often a waiting rank asks the store, and looks at other processes.
constexpr auto kNewsPollInterval = std::chrono::milliseconds(20);

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

StoreNews::StoreNews(StorePtr store, int64_t rank, int64_t size)
    : store_(std::move(store)), rank_(rank), size_(size) {
  store_->set(numbered("host", rank), as_value(id_space()));
  store_->set(numbered("process", rank), as_value(std::to_string(getpid())));
}

// Each rank counts its own. To look writes nothing: a rank that is killed while
// it writes could leave half an entry to the others.
void StoreNews::tell(const News& news) noexcept {
  try {
    store_->set(numbered("news", rank_, ++told_), as_value(to_bytes(news)));
  } catch (...) {
    static_cast<void>(0);  // the store is gone, and with it the job
  }
}

std::vector<News> StoreNews::news(uint64_t world) {
  if (Clock::now() >= next_look_) {
    look();
    next_look_ = Clock::now() + kNewsPollInterval;
  }
  std::vector<News> all = std::exchange(heard_[world], {});
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

void StoreNews::say_gone() noexcept {
  try {
    store_->set(numbered("gone", rank_), as_value("1"));
  } catch (...) {
    static_cast<void>(0);  // so is the store
  }
}

bool StoreNews::others_are_gone() {
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
void StoreNews::look() {
  try {
    read_news();
    look_at_processes();
  } catch (const std::exception&) {
    bury_known_processes();
    if (dead_.empty()) {
      throw;
    }
  }
}

void StoreNews::read_news() {
  for (int64_t r = 0; r < size_; ++r) {
    while (r != rank_ && store_->check({numbered("news", r, read_[r] + 1)})) {
      const News news =
          news_from(as_text(store_->get(numbered("news", r, ++read_[r]))));
      heard_[news.world].push_back(news);
      ended_[r] = ended_[r] || (news.world == 0 && news.group == 0);
    }
  }
}

// See Note [Who is alive].
void StoreNews::look_at_processes() {
  for (int64_t r = 0; r < size_; ++r) {
    if (r == rank_ || ended_[r] || is_alive(r)) {
      continue;
    }
    read_news();  // it may have said so meanwhile
    if (!ended_[r]) {
      ended_[r] = true;
      dead_.insert(r);
    }
  }
}

void StoreNews::bury_known_processes() {
  for (const auto& [r, process] : processes_) {
    if (process > 0 && !ended_[r] && !exists(process)) {
      ended_[r] = true;
      dead_.insert(r);
    }
  }
}

bool StoreNews::is_alive(int64_t rank) {
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

}  // namespace tessera::detail
