#include "comm/engine/c10d/store_news.h"

#include <signal.h>
#include <unistd.h>

#include <cerrno>
#include <fstream>
#include <iterator>
#include <sstream>
#include <string>
#include <utility>

namespace tessera::detail {
namespace {

using Clock = std::chrono::steady_clock;
using News = Network::News;

// How often a waiting rank asks the store, and looks at other processes.
constexpr auto kBetweenLooks = std::chrono::milliseconds(20);

std::vector<uint8_t> as_value(const std::string& text) {
  return {text.begin(), text.end()};
}
std::string as_text(const std::vector<uint8_t>& value) {
  return {value.begin(), value.end()};
}
std::string numbered(const char* name, int64_t number) {
  return std::string(name) + " " + std::to_string(number);
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

// "RANK WORLD GROUP text" under the next number; all ranks read all.
void StoreNews::tell(const News& news) noexcept {
  try {
    const int64_t number = store_->add("news", 1);
    store_->set(
        numbered("news", number),
        as_value(
            std::to_string(news.rank) + " " + std::to_string(news.world) + " " +
            std::to_string(news.group) + " " + news.text));
  } catch (...) {
    static_cast<void>(0);  // the store is gone, and with it the job
  }
}

std::vector<News> StoreNews::news(uint64_t world) {
  if (Clock::now() >= next_look_) {
    next_look_ = Clock::now() + kBetweenLooks;
    read_news();
    look_at_processes();
  }
  return std::exchange(heard_[world], {});
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

void StoreNews::read_news() {
  for (const int64_t count = store_->add("news", 0); read_ < count;) {
    // Its rank may have taken the number and not written yet, or died there.
    const std::string key = numbered("news", read_ + 1);
    if (!store_->check({key})) {
      return;
    }
    ++read_;
    std::istringstream line(as_text(store_->get(key)));
    News news{};
    line >> news.rank >> news.world >> news.group;
    line.get();
    news.text.assign(std::istreambuf_iterator<char>(line), {});
    if (news.rank != rank_) {
      worlds_[news.world] = true;
      heard_[news.world].push_back(news);
      ended_[news.rank] =
          ended_[news.rank] || (news.world == 0 && news.group == 0);
    }
  }
}

// See Note [Who is alive].
void StoreNews::look_at_processes() {
  for (int64_t r = 0; r < size_; ++r) {
    if (r == rank_ || ended_[r] || is_alive(r)) {
      continue;
    }
    ended_[r] = true;
    const std::string text = "its process has ended without a word";
    heard_[0].push_back({.rank = r, .text = text});
    for (auto& [world, known] : worlds_) {
      if (world != 0) {
        heard_[world].push_back({.rank = r, .world = world, .text = text});
      }
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
