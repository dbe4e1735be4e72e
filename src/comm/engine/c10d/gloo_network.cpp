// Gloo, as LibTorch has it, as a network of processes: it needs nothing but
// stock LibTorch and a store through which processes find each other.
//
// Note [Who is alive]
// Gloo tells the two neighbours of a process that died, and nobody else. So
// each process writes its id into the store when it starts; while a rank waits,
// it looks whether the processes of its host still exist. What ranks have to
// say about their end goes through the store too. Nothing listens but Gloo's
// own sockets, on the loopback device unless TESSERA_INTERFACE names another.
#include <signal.h>
#include <unistd.h>

#include <algorithm>
#include <cstring>
#include <fstream>
#include <future>
#include <map>
#include <stdexcept>
#include <utility>

#include <ATen/ops/from_blob.h>
#include <torch/csrc/distributed/c10d/FileStore.hpp>
#include <torch/csrc/distributed/c10d/PrefixStore.hpp>
#include <torch/csrc/distributed/c10d/ProcessGroupGloo.hpp>
#include <torch/csrc/distributed/c10d/TCPStore.hpp>

#include "comm/engine/process/wire.h"
#include "comm/launch.h"

namespace tessera::detail {
namespace {

using Clock = std::chrono::steady_clock;
using BackendPtr = c10::intrusive_ptr<::c10d::Backend>;
using StorePtr = c10::intrusive_ptr<::c10d::Store>;
using WorkPtr = c10::intrusive_ptr<::c10d::Work>;

// How often a waiting rank asks the store, and looks at other processes.
constexpr auto kBetweenLooks = std::chrono::milliseconds(20);
// Longer than any deadline of ours: the engine ends waits.
constexpr auto kGlooTimeout = std::chrono::hours(24);

at::Tensor bytes(const void* data, int64_t size) {
  return at::from_blob(const_cast<void*>(data), {size}, at::kByte);
}

std::vector<uint8_t> as_value(const std::string& text) {
  return {text.begin(), text.end()};
}
std::string as_text(const std::vector<uint8_t>& value) {
  return {value.begin(), value.end()};
}

// Works that Gloo's threads carry out.
class Works final : public Transit {
 public:
  explicit Works(std::vector<WorkPtr> works) : works_(std::move(works)) {}
  bool done() override {
    for (const WorkPtr& work : works_) {
      if (!work->isCompleted()) {
        return false;
      }
    }
    for (const WorkPtr& work : std::exchange(works_, {})) {
      work->wait();  // throws its error
    }
    return true;
  }

 private:
  std::vector<WorkPtr> works_;
};

// A message: its work completes only inside wait(), so a thread waits there.
class Message final : public Transit {
 public:
  explicit Message(WorkPtr work)
      : waiting_(std::async(
            std::launch::async, [work = std::move(work)] { work->wait(); })) {}
  bool done() override {
    if (waiting_.valid() && waiting_.wait_for(std::chrono::seconds(0)) !=
                                std::future_status::ready) {
      return false;
    }
    if (waiting_.valid()) {
      waiting_.get();
    }
    return true;
  }

 private:
  std::future<void> waiting_;
};

// A group of Gloo's own. Its connections are made by a thread, since ranks may
// join groups in different orders.
class GlooWire final : public Wire {
 public:
  GlooWire(StorePtr store, int64_t place, int64_t size)
      : place_(place),
        size_(size),
        joining_(std::async(
            std::launch::async, [store = std::move(store), place, size] {
              return connect(store, place, size);
            })) {}

  TransitPtr all_gather(
      const void* input, void* output,
      const std::vector<int64_t>& counts) override {
    const bool even = std::all_of(
        counts.begin(), counts.end(),
        [&](int64_t count) { return count == counts[0]; });
    at::Tensor mine = bytes(input, counts[static_cast<size_t>(place_)]);
    std::vector<WorkPtr> works;
    if (even) {
      at::Tensor all = bytes(output, counts[0] * size_);
      works.push_back(backend()._allgather_base(all, mine));
      return std::make_unique<Works>(std::move(works));
    }
    int64_t at = 0;
    for (int64_t r = 0; r < size_; ++r) {
      const int64_t count = counts[static_cast<size_t>(r)];
      std::vector<at::Tensor> run = {
          bytes(static_cast<char*>(output) + at, count)};
      if (r == place_ && count > 0) {
        std::memcpy(
            run[0].mutable_data_ptr(), input, static_cast<size_t>(count));
      }
      if (count > 0) {
        works.push_back(backend().broadcast(run, {.rootRank = r}));
      }
      at += count;
    }
    return std::make_unique<Works>(std::move(works));
  }

  TransitPtr all_to_all(
      const void* input, const std::vector<int64_t>& sent, void* output,
      const std::vector<int64_t>& received) override {
    const auto total = [](const std::vector<int64_t>& counts) {
      int64_t sum = 0;
      for (const int64_t count : counts) {
        sum += count;
      }
      return sum;
    };
    at::Tensor from = bytes(input, total(sent));
    at::Tensor to = bytes(output, total(received));
    std::vector<int64_t> out = received;
    std::vector<int64_t> in = sent;
    return std::make_unique<Works>(
        std::vector<WorkPtr>{backend().alltoall_base(to, from, out, in)});
  }

  TransitPtr broadcast(void* data, int64_t size, int64_t root) override {
    std::vector<at::Tensor> tensors = {bytes(data, size)};
    return std::make_unique<Works>(
        std::vector<WorkPtr>{backend().broadcast(tensors, {.rootRank = root})});
  }

  TransitPtr send(
      const void* data, int64_t size, int64_t place, int64_t tag) override {
    std::vector<at::Tensor> tensors = {bytes(data, size)};
    return std::make_unique<Message>(
        backend().send(tensors, static_cast<int>(place), tag_of(tag)));
  }
  TransitPtr receive(
      void* data, int64_t size, int64_t place, int64_t tag) override {
    std::vector<at::Tensor> tensors = {bytes(data, size)};
    return std::make_unique<Message>(
        backend().recv(tensors, static_cast<int>(place), tag_of(tag)));
  }

  // Dropping the group closes its connections, which ends what others wait for.
  void close() noexcept override {
    try {
      if (joining_.valid() && joining_.wait_for(std::chrono::seconds(0)) ==
                                  std::future_status::ready) {
        group_ = joining_.get();
      }
      if (group_) {
        group_->abort();
        group_.reset();
      }
    } catch (...) {
      static_cast<void>(0);  // it is closed either way
    }
  }

 private:
  static BackendPtr connect(
      const StorePtr& store, int64_t place, int64_t size) {
    using ::c10d::ProcessGroupGloo;
    auto options = ProcessGroupGloo::Options::create(
        std::chrono::duration_cast<std::chrono::milliseconds>(kGlooTimeout));
    const std::string interface = environment("TESSERA_INTERFACE");
    options->devices.push_back(
        interface.empty()
            ? ProcessGroupGloo::createDeviceForHostname("127.0.0.1")
            : ProcessGroupGloo::createDeviceForInterface(interface));
    return c10::make_intrusive<ProcessGroupGloo>(
        store, static_cast<int>(place), static_cast<int>(size), options);
  }
  ::c10d::Backend& backend() {
    if (!group_) {
      group_ = joining_.get();
    }
    return *group_;
  }
  static int tag_of(int64_t tag) {
    return static_cast<int>(static_cast<uint64_t>(tag) % 0x3fffffff);
  }

  int64_t place_;
  int64_t size_;
  std::future<BackendPtr> joining_;
  BackendPtr group_;
};

class GlooNetwork final : public Network {
 public:
  GlooNetwork(StorePtr store, int64_t rank, int64_t size)
      : store_(std::move(store)), rank_(rank), size_(size) {
    store_->set("host " + std::to_string(rank), as_value(host()));
    store_->set(
        "process " + std::to_string(rank), as_value(std::to_string(getpid())));
  }

  int64_t rank() const override { return rank_; }
  int64_t size() const override { return size_; }
  std::string name() const override { return "gloo"; }
  std::unique_ptr<Wire> join(
      const std::vector<int64_t>& ranks, const std::string& key) override {
    const auto place = std::find(ranks.begin(), ranks.end(), rank_);
    return std::make_unique<GlooWire>(
        c10::make_intrusive<::c10d::PrefixStore>(key, store_),
        place - ranks.begin(), static_cast<int64_t>(ranks.size()));
  }

  // "RANK WORLD GROUP LENGTH text" under the next number; all ranks read all.
  void tell(const std::vector<int64_t>& /*ranks*/, const News& news) noexcept
      override {
    try {
      const int64_t number = store_->add("news", 1);
      store_->set(
          "news " + std::to_string(number),
          as_value(
              std::to_string(news.rank) + " " + std::to_string(news.world) +
              " " + std::to_string(news.group) + " " + news.text));
    } catch (...) {
      static_cast<void>(0);  // the store is gone, and with it the job
    }
  }

  std::vector<News> news(uint64_t world) override {
    if (Clock::now() >= next_look_) {
      next_look_ = Clock::now() + kBetweenLooks;
      read_news();
      look_at_processes();
    }
    return std::exchange(heard_[world], {});
  }

 private:
  static std::string host() {
    char name[256] = {};
    gethostname(name, sizeof(name) - 1);
    return name;
  }

  void read_news() {
    for (const int64_t count = store_->add("news", 0); read_ < count;) {
      const std::string key = "news " + std::to_string(++read_);
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
  void look_at_processes() {
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
  bool is_alive(int64_t r) {
    pid_t& process = processes_[r];
    if (process == 0) {
      const std::string name = std::to_string(r);
      if (!store_->check({"process " + name})) {
        return true;  // not started yet
      }
      const bool here = as_text(store_->get("host " + name)) == host();
      process = here ? std::stoi(as_text(store_->get("process " + name))) : -1;
    }
    if (process < 0) {
      return true;  // on another host: Gloo will tell
    }
    if (kill(process, 0) != 0) {
      return false;
    }
    std::ifstream status("/proc/" + std::to_string(process) + "/stat");
    std::string text;
    std::getline(status, text);
    const size_t end = text.rfind(')');
    return end == std::string::npos || end + 2 >= text.size() ||
           text[end + 2] != 'Z';
  }

  StorePtr store_;
  int64_t rank_;
  int64_t size_;
  Clock::time_point next_look_ = {};
  int64_t read_ = 0;
  std::map<uint64_t, std::vector<News>> heard_;  // by world
  std::map<uint64_t, bool> worlds_;
  std::map<int64_t, bool> ended_;
  std::map<int64_t, pid_t> processes_;
};

StorePtr open_store(const Launch& launch) {
  if (const std::string file = environment("TESSERA_STORE"); !file.empty()) {
    return c10::make_intrusive<::c10d::FileStore>(
        file, static_cast<int>(launch.size));
  }
  const std::string address = environment("MASTER_ADDR");
  const std::string port = environment("MASTER_PORT");
  if (address.empty() || port.empty()) {
    throw std::runtime_error(
        "gloo needs a meeting point: MASTER_ADDR and MASTER_PORT, or the file "
        "TESSERA_STORE");
  }
  ::c10d::TCPStoreOptions options;
  options.port = static_cast<uint16_t>(std::stoi(port));
  const bool agent = environment("TORCHELASTIC_USE_AGENT_STORE") == "True";
  options.isServer = !agent && launch.rank == 0;
  options.waitWorkers = false;
  return c10::make_intrusive<::c10d::PrefixStore>(
      "tessera " + environment("TORCHELASTIC_RESTART_COUNT"),
      c10::make_intrusive<::c10d::TCPStore>(address, options));
}

}  // namespace
}  // namespace tessera::detail

/// What the library looks up when it loads this file.
extern "C" tessera::detail::Network* tessera_gloo_network() {
  using namespace tessera::detail;
  const auto launch = find_launch();
  if (!launch) {
    throw std::runtime_error("gloo: no launcher says which rank this is");
  }
  return new GlooNetwork(open_store(*launch), launch->rank, launch->size);
}
