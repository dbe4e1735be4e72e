#include "comm/engine/c10d/gloo_mesh.h"

#include <signal.h>

#include <chrono>
#include <condition_variable>
#include <cstring>
#include <deque>
#include <mutex>
#include <stdexcept>
#include <string>
#include <thread>
#include <utility>

#include <torch/csrc/distributed/c10d/ProcessGroupGloo.hpp>

#include "comm/engine/c10d/gloo_transfer.h"
#include "comm/engine/c10d/store/joining_store.h"

namespace tessera::detail::inline comm_layer {
namespace {

using ::c10d::ProcessGroupGloo;
using BackendPtr = c10::intrusive_ptr<::c10d::Backend>;
using Clock = std::chrono::steady_clock;

// For ranks that are there: an address that is in the store answers at once.
constexpr auto kConnectTimeout = std::chrono::seconds(10);
// How often an engine's question who is absent reaches the store.
constexpr auto kConnectPollInterval = std::chrono::milliseconds(20);
// Transfers travel under this tag, messages under those below.
constexpr int kTransferTag = 0x3fffffff;

// Its thread shares it: one that is in the middle of connecting, which nothing
// can end, is left to itself.
class GlooMesh final : public Channel,
                       public std::enable_shared_from_this<GlooMesh> {
 public:
  GlooMesh(
      StorePtr store, GlooDevices devices, int64_t group_rank, int64_t size)
      : store_(c10::make_intrusive<JoiningStore>(std::move(store))),
        devices_(std::move(devices)),
        group_rank_(group_rank),
        size_(size) {}

  void begin() {
    thread_ = std::thread([self = shared_from_this()] { self->run(); });
  }

  TransferPtr all_gather(
      const void* input, int64_t size, void* output,
      const std::vector<int64_t>& counts) override {
    const std::vector<int64_t> sent(counts.size(), size);
    return exchange(
        [input](int64_t /*before*/) { return input; }, sent, output, counts);
  }

  TransferPtr all_to_all(
      const void* input, const std::vector<int64_t>& sent, void* output,
      const std::vector<int64_t>& received) override {
    const auto at = [input](int64_t before) -> const void* {
      return static_cast<const char*>(input) + before;
    };
    return exchange(at, sent, output, received);
  }

  // A binomial tree: place v, counted from the root, gets the data from the
  // place without v's lowest bit. 6 places: 0 -> 4 2 1, 2 -> 3, 4 -> 5.
  TransferPtr broadcast(void* data, int64_t bytes, int64_t root) override {
    const int64_t v = (group_rank_ - root + size_) % size_;
    const auto group_rank_of = [&](int64_t from_root) {
      return (from_root + root) % size_;
    };
    std::vector<Leg> from;
    std::vector<Leg> to;
    int64_t bit = 1;
    for (; bit < size_ && (v & bit) == 0; bit <<= 1) {
    }
    if (v != 0) {
      from.push_back({false, data, bytes, group_rank_of(v - bit)});
    }
    for (bit >>= 1; bit > 0; bit >>= 1) {
      if (v + bit < size_) {
        to.push_back({true, data, bytes, group_rank_of(v + bit)});
      }
    }
    return begin({std::move(from), std::move(to)}, bytes);
  }

  TransferPtr send(
      const void* data, int64_t bytes, int64_t group_rank,
      int64_t tag) override {
    return begin({true, const_cast<void*>(data), bytes, group_rank}, tag);
  }
  TransferPtr receive(
      void* data, int64_t bytes, int64_t group_rank, int64_t tag) override {
    return begin({false, data, bytes, group_rank}, tag);
  }

  std::vector<int64_t> absent() override {
    {
      const Lock lock(mutex_);
      if (group_ || closed_) {
        return {};
      }
    }
    if (Clock::now() >= next_poll_) {
      absent_ = store_->absent(size_);
      std::erase(absent_, group_rank_);
      next_poll_ = Clock::now() + kConnectPollInterval;
    }
    return absent_;
  }

  // Dropping the group closes its connections, which ends what others wait for.
  void close() noexcept override {
    bool connected = false;
    {
      const Lock lock(mutex_);
      closed_ = true;
      connected = group_ != nullptr;
      for (const WorkPtr& work : under_way_) {
        work->abort();
      }
      for (const auto& message : messages_) {
        message->abort();
      }
      for (const auto& transfer : std::exchange(queue_, {})) {
        transfer->progress.fail(kClosed);
      }
    }
    store_->stop();
    changed_.notify_all();
    // Before it is connected, the thread has touched no buffer.
    if (thread_.joinable()) {
      connected ? thread_.join() : thread_.detach();
    }
    std::vector<std::shared_ptr<Message>> messages;
    {
      // A thread that is left to itself may fail them just now.
      const Lock lock(mutex_);
      messages.swap(messages_);
    }
    for (const auto& message : messages) {
      message->end();
    }
    group_.reset();
  }

 private:
  using Lock = std::unique_lock<std::mutex>;

  static size_t index(int64_t group_rank) {
    return static_cast<size_t>(group_rank);
  }

  // `run_at` gives the run to a place from the bytes that lie before it.
  template <typename RunAt>
  TransferPtr exchange(
      const RunAt& run_at, const std::vector<int64_t>& sent, void* output,
      const std::vector<int64_t>& received) {
    std::vector<Leg> legs;
    int64_t out = 0;
    int64_t in = 0;
    for (int64_t group_rank = 0; group_rank < size_; ++group_rank) {
      void* run = const_cast<void*>(run_at(in));
      void* target = static_cast<char*>(output) + out;
      if (group_rank != group_rank_) {
        legs.push_back({true, run, sent[index(group_rank)], group_rank});
        legs.push_back(
            {false, target, received[index(group_rank)], group_rank});
      } else if (received[index(group_rank)] > 0) {
        std::memmove(
            target, run, static_cast<size_t>(received[index(group_rank)]));
      }
      in += sent[index(group_rank)];
      out += received[index(group_rank)];
    }
    std::erase_if(legs, [](const Leg& leg) { return leg.size == 0; });
    return begin({std::move(legs)}, /*bytes=*/1);
  }

  TransferPtr begin(std::vector<std::vector<Leg>> phases, int64_t bytes) {
    auto transfer = std::make_shared<GlooTransfer>();
    if (bytes > 0) {
      transfer->phases = std::move(phases);
    }
    const Lock lock(mutex_);
    if (closed_) {
      throw std::runtime_error(kClosed);
    }
    queue_.push_back(transfer);
    changed_.notify_all();
    return transfer_of(std::move(transfer));
  }

  TransferPtr begin(Leg leg, int64_t tag) {
    const auto short_tag = static_cast<int>(
        static_cast<uint64_t>(tag) % static_cast<uint64_t>(kTransferTag));
    auto message = std::make_shared<Message>(leg, short_tag);
    const Lock lock(mutex_);
    if (closed_) {
      throw std::runtime_error(kClosed);
    }
    std::erase_if(
        messages_, [](const auto& known) { return known.use_count() == 1; });
    messages_.push_back(message);
    if (group_) {
      message->start(*group_);
    } else if (!error_.empty()) {
      message->fail(error_);
    }
    return transfer_of(std::move(message));
  }

  // What the thread does.
  void run() noexcept {
    try {
      connect();
    } catch (const std::exception& what) {
      const Lock lock(mutex_);
      error_ = what.what();
      for (const auto& message : messages_) {
        message->fail(error_);
      }
    }
    for (;;) {
      std::shared_ptr<GlooTransfer> transfer;
      {
        Lock lock(mutex_);
        changed_.wait(lock, [&] { return closed_ || !queue_.empty(); });
        if (closed_) {
          return;
        }
        transfer = queue_.front();
        queue_.pop_front();
      }
      error_.empty() ? carry_out(*transfer) : transfer->progress.fail(error_);
    }
  }

  void connect() {
    // All are there before one connects: a rank that waits for a late one would
    // keep the others waiting for its connections.
    store_->announce(group_rank_);
    store_->wait_for_all(size_);
    auto options = ProcessGroupGloo::Options::create(kConnectTimeout);
    options->devices = devices_;
    options->threads = 1;
    BackendPtr group = open_group(options);
    const Lock lock(mutex_);
    if (!closed_) {
      group_ = std::move(group);
      for (const auto& message : messages_) {
        message->start(*group_);
      }
    }
  }

  BackendPtr open_group(
      const c10::intrusive_ptr<ProcessGroupGloo::Options>& options) {
    try {
      return c10::make_intrusive<ProcessGroupGloo>(
          store_, static_cast<int>(group_rank_), static_cast<int>(size_),
          options);
    } catch (const std::exception& error) {
      throw std::runtime_error(
          std::string("Gloo cannot connect the ranks: ") + error.what() +
          "; where they are on several hosts, set TESSERA_INTERFACE to the "
          "interface between these");
    }
  }

  void carry_out(GlooTransfer& transfer) noexcept {
    try {
      for (const auto& legs : transfer.phases) {
        for (const WorkPtr& work : start(legs)) {
          if (!work->wait(kWaitTimeout)) {
            throw std::runtime_error(kClosed);
          }
        }
      }
      transfer.progress.succeed();
    } catch (const std::exception& error) {
      transfer.progress.fail(error.what());
    }
    const Lock lock(mutex_);
    under_way_.clear();
  }

  std::vector<WorkPtr> start(const std::vector<Leg>& legs) {
    const Lock lock(mutex_);
    under_way_.clear();
    for (const Leg& leg : legs) {
      if (closed_) {
        throw std::runtime_error(kClosed);
      }
      under_way_.push_back(leg.start(*group_, kTransferTag));
    }
    return under_way_;
  }

  const c10::intrusive_ptr<JoiningStore> store_;
  const GlooDevices devices_;
  const int64_t group_rank_;
  const int64_t size_;
  std::mutex mutex_;  // guards what follows
  std::condition_variable changed_;
  BackendPtr group_;   // none before all are connected
  std::string error_;  // why it cannot connect
  bool closed_ = false;
  std::deque<std::shared_ptr<GlooTransfer>> queue_;
  std::vector<WorkPtr> under_way_;  // of the transfer at hand
  std::vector<std::shared_ptr<Message>> messages_;
  std::vector<int64_t> absent_;  // these two: for the thread that asks
  Clock::time_point next_poll_ = {};
  std::thread thread_;  // ends, or is left to itself, in close()
};

// Gloo writes to connections that their other end may have closed: that must be
// an error here, not the end of the process. A program's own choice stays.
void ignore_broken_pipes() {
  struct sigaction now {};
  sigaction(SIGPIPE, nullptr, &now);
  if ((now.sa_flags & SA_SIGINFO) == 0 && now.sa_handler == SIG_DFL) {
    now.sa_handler = SIG_IGN;
    sigaction(SIGPIPE, &now, nullptr);
  }
}

}  // namespace

GlooDevices gloo_devices(const std::string& interface) {
  return {
      interface.empty()
          ? ProcessGroupGloo::createDeviceForHostname("127.0.0.1")
          : ProcessGroupGloo::createDeviceForInterface(interface)};
}

std::shared_ptr<Channel> make_gloo_mesh(
    StorePtr store, GlooDevices devices, int64_t group_rank, int64_t size) {
  ignore_broken_pipes();
  auto mesh = std::make_shared<GlooMesh>(
      std::move(store), std::move(devices), group_rank, size);
  mesh->begin();
  return mesh;
}

}  // namespace tessera::detail::inline comm_layer
