// MPI as a network: messages between pairs on two communicators of its own, one
// for data and one for events.
//
// Note [Messages instead of MPI's collectives]
// A group has a tag instead of a communicator of its own. MPI_Comm_create_group
// blocks until all its ranks call it: it would ignore deadlines, and ranks that
// start calls of two groups in different orders, as asynchronous calls may,
// would wait for each other forever. Reductions need a fixed order, which MPI's
// own do not promise. Between ranks of one host a round of messages is as fast
// as MPI's collectives (tessera bench comm).
//
// Note [Tags that meet]
// A tag is a hash of the group, or of the group and a message's tag, so two may
// be equal. Messages of one pair and tag arrive in the order they were sent, so
// they can be mistaken only while a rank sends on both. That rank refuses to
// start the second transfer (ActiveTags). A rank that receives on one while the
// other sends on the other finds a foreign group in the record that begins
// every call (ProcessCall::check_fingerprints). So equal tags are an error,
// with 2^31 tags a rare one, and never wrong data.
#include <mpi.h>

#include <algorithm>
#include <cstdlib>
#include <cstring>
#include <deque>
#include <map>
#include <memory>
#include <stdexcept>
#include <utility>

#include <base/copy_bytes.h>
#include <base/hash.h>

#include "comm/engine/mpi/failed_ranks.h"
#include "comm/engine/process/transport.h"

namespace tessera::detail::inline comm_layer {
namespace {

// Counts of MPI are 31-bit: longer messages go in several.
constexpr int64_t kMaxMessage = int64_t{1} << 30;

// Lower limits, for the library's own tests.
int64_t limit(const char* name, int64_t usual) {
  const char* text = std::getenv(name);
  return text == nullptr ? usual : std::max<int64_t>(std::atoll(text), 1);
}
int64_t max_message() {
  static const int64_t bytes =
      std::min(kMaxMessage, limit("TESSERA_MPI_MESSAGE", kMaxMessage));
  return bytes;
}
constexpr int kEventTag = 1;
constexpr int kProbes = 3;

void check(int code, const char* call) {
  if (code == MPI_SUCCESS) {
    return;
  }
  char text[MPI_MAX_ERROR_STRING] = {};
  int length = 0;
  MPI_Error_string(code, text, &length);
  throw std::runtime_error(
      std::string(call) + ": " +
      std::string(text, static_cast<size_t>(length)));
}

// A tag of at least 1 from any key; MPI gives tags 0 to 2^15 - 1 at least.
int tag_of(uint64_t key, int upper_bound) {
  return 1 + static_cast<int>(key % static_cast<uint64_t>(upper_bound));
}

// The tags of transfers under way; see Note [Tags that meet].
class ActiveTags {
 public:
  void add(int tag, uint64_t key) {
    auto [entry, fresh] = uses_.try_emplace(tag, Use{key, 0});
    if (!fresh && entry->second.key != key) {
      throw std::runtime_error(
          "two transfers under way have the same MPI tag, " +
          std::to_string(tag) +
          "; finish the calls of one group, or the messages of one tag, "
          "before those of the other");
    }
    ++entry->second.count;
  }
  void remove(int tag) {
    const auto entry = uses_.find(tag);
    if (--entry->second.count == 0) {
      uses_.erase(entry);
    }
  }

 private:
  struct Use {
    uint64_t key;
    int64_t count;
  };
  std::map<int, Use> uses_;
};

// A program that started MPI itself may end it before this library's objects.
bool mpi_is_over() {
  int ended = 0;
  return MPI_Finalized(&ended) != MPI_SUCCESS || ended != 0;
}

class MpiTransfer final : public Transfer {
 public:
  MpiTransfer(
      MPI_Comm comm, std::shared_ptr<ActiveTags> tags, int tag, uint64_t key)
      : comm_(comm), tags_(std::move(tags)), tag_(tag) {
    tags_->add(tag, key);
  }
  ~MpiTransfer() override {
    tags_->remove(tag_);
    for (MPI_Request& request : requests_) {
      if (request != MPI_REQUEST_NULL && !mpi_is_over()) {
        MPI_Request_free(&request);
      }
    }
  }
  MpiTransfer(const MpiTransfer&) = delete;
  MpiTransfer& operator=(const MpiTransfer&) = delete;

  void send(const void* data, int64_t bytes, int64_t rank) {
    in_pieces(bytes, [&](int64_t begin, int size) {
      check(
          MPI_Isend(
              static_cast<const char*>(data) + begin, size, MPI_BYTE,
              static_cast<int>(rank), tag_, comm_,
              &requests_.emplace_back(MPI_REQUEST_NULL)),
          "MPI_Isend");
    });
  }
  void receive(void* data, int64_t bytes, int64_t rank) {
    in_pieces(bytes, [&](int64_t begin, int size) {
      receives_.push_back(requests_.size());
      check(
          MPI_Irecv(
              static_cast<char*>(data) + begin, size, MPI_BYTE,
              static_cast<int>(rank), tag_, comm_,
              &requests_.emplace_back(MPI_REQUEST_NULL)),
          "MPI_Irecv");
    });
  }
  bool done() override {
    int flag = 0;
    check(
        MPI_Testall(
            static_cast<int>(requests_.size()), requests_.data(), &flag,
            MPI_STATUSES_IGNORE),
        "MPI_Testall");
    return flag != 0;
  }
  // After an error some requests may still be active.
  bool buffers_are_free() noexcept override {
    if (mpi_is_over()) {
      return true;
    }
    for (MPI_Request& request : requests_) {
      int flag = 0;
      MPI_Test(&request, &flag, MPI_STATUS_IGNORE);
    }
    return std::all_of(
        requests_.begin(), requests_.end(),
        [](MPI_Request request) { return request == MPI_REQUEST_NULL; });
  }
  // Sends cannot be taken back.
  void cancel() noexcept override {
    for (const size_t i : receives_) {
      if (requests_[i] != MPI_REQUEST_NULL) {
        MPI_Cancel(&requests_[i]);
      }
    }
  }

 private:
  template <class F>
  static void in_pieces(int64_t bytes, F f) {
    for (int64_t begin = 0; begin < bytes; begin += max_message()) {
      f(begin, static_cast<int>(std::min(max_message(), bytes - begin)));
    }
  }

  MPI_Comm comm_;
  std::shared_ptr<ActiveTags> tags_;
  int tag_;
  std::vector<MPI_Request> requests_;
  std::vector<size_t> receives_;  // among them
};

class MpiChannel final : public Channel {
 public:
  MpiChannel(
      MPI_Comm comm, std::shared_ptr<ActiveTags> tags,
      std::vector<int64_t> ranks, int64_t group_rank, uint64_t key,
      int tag_bound)
      : comm_(comm),
        tags_(std::move(tags)),
        ranks_(std::move(ranks)),
        group_rank_(static_cast<size_t>(group_rank)),
        key_(key),
        tag_bound_(tag_bound) {}

  TransferPtr all_gather(
      const void* input, int64_t size, void* output,
      const std::vector<int64_t>& counts) override {
    auto transfer = begin();
    const auto to = runs(static_cast<char*>(output), counts);
    for (size_t r : others()) {
      transfer->receive(to[r], counts[r], ranks_[r]);
    }
    for (size_t r : others()) {
      transfer->send(input, size, ranks_[r]);
    }
    copy(to[group_rank_], input, counts[group_rank_]);
    return transfer;
  }

  // The own run is copied while the others fetch theirs.
  TransferPtr all_to_all(
      const void* input, const std::vector<int64_t>& sent, void* output,
      const std::vector<int64_t>& received) override {
    auto transfer = begin();
    const auto from = runs(static_cast<const char*>(input), sent);
    const auto to = runs(static_cast<char*>(output), received);
    for (size_t r : others()) {
      transfer->receive(to[r], received[r], ranks_[r]);
    }
    for (size_t r : others()) {
      transfer->send(from[r], sent[r], ranks_[r]);
    }
    copy(to[group_rank_], from[group_rank_], received[group_rank_]);
    return transfer;
  }

  // Along a binary tree would need relays; direct messages keep the root busy
  // but never wait for a third rank.
  TransferPtr broadcast(void* data, int64_t bytes, int64_t root) override {
    auto transfer = begin();
    if (static_cast<size_t>(root) != group_rank_) {
      transfer->receive(data, bytes, ranks_[static_cast<size_t>(root)]);
      return transfer;
    }
    for (size_t r : others()) {
      transfer->send(data, bytes, ranks_[r]);
    }
    return transfer;
  }

  TransferPtr send(
      const void* data, int64_t bytes, int64_t group_rank,
      int64_t tag) override {
    auto transfer = begin(tag);
    transfer->send(data, bytes, ranks_[static_cast<size_t>(group_rank)]);
    return transfer;
  }
  TransferPtr receive(
      void* data, int64_t bytes, int64_t group_rank, int64_t tag) override {
    auto transfer = begin(tag);
    transfer->receive(data, bytes, ranks_[static_cast<size_t>(group_rank)]);
    return transfer;
  }
  void close() noexcept override {}

 private:
  std::unique_ptr<MpiTransfer> begin() const { return begin_with(key_); }
  std::unique_ptr<MpiTransfer> begin(int64_t tag) const {
    return begin_with(base::hash_combine(key_, static_cast<size_t>(tag) + 1));
  }
  std::unique_ptr<MpiTransfer> begin_with(uint64_t key) const {
    return std::make_unique<MpiTransfer>(
        comm_, tags_, tag_of(key, tag_bound_), key);
  }
  // The other places, starting behind this one, so that not all ranks send to
  // the same one first.
  std::vector<size_t> others() const {
    std::vector<size_t> group_ranks;
    for (size_t i = 1; i < ranks_.size(); ++i) {
      group_ranks.push_back((group_rank_ + i) % ranks_.size());
    }
    return group_ranks;
  }
  // Where each place's run begins.
  template <class Char>
  static std::vector<Char*> runs(
      Char* first, const std::vector<int64_t>& counts) {
    std::vector<Char*> begins;
    for (const int64_t count : counts) {
      begins.push_back(first);
      first += count;
    }
    return begins;
  }
  static void copy(void* to, const void* from, int64_t bytes) {
    if (to != from) {
      base::copy_bytes(to, from, static_cast<size_t>(bytes));
    }
  }

  MPI_Comm comm_;
  std::shared_ptr<ActiveTags> tags_;
  std::vector<int64_t> ranks_;
  size_t group_rank_;
  uint64_t key_;
  int tag_bound_;
};

void check_level(int level) {
  if (level < MPI_THREAD_SERIALIZED) {
    throw std::runtime_error(
        "MPI gives less than MPI_THREAD_SERIALIZED, which this engine needs; "
        "let MPI_Init_thread ask for it");
  }
}

class MpiTransport final : public Transport {
 public:
  MpiTransport() {
    int started = 0;
    check(MPI_Initialized(&started), "MPI_Initialized");
    if (started == 0) {
      int level = 0;
      check(
          MPI_Init_thread(nullptr, nullptr, MPI_THREAD_SERIALIZED, &level),
          "MPI_Init_thread");
      check_level(level);
      finalizes_ = true;
    } else {
      int level = 0;
      check(MPI_Query_thread(&level), "MPI_Query_thread");
      check_level(level);
    }
    check(MPI_Comm_dup(MPI_COMM_WORLD, &data_), "MPI_Comm_dup");
    check(MPI_Comm_dup(MPI_COMM_WORLD, &control_), "MPI_Comm_dup");
    MPI_Comm_set_errhandler(data_, MPI_ERRORS_RETURN);
    MPI_Comm_set_errhandler(control_, MPI_ERRORS_RETURN);
    check(MPI_Comm_rank(data_, &rank_), "MPI_Comm_rank");
    check(MPI_Comm_size(data_, &size_), "MPI_Comm_size");
    void* bound = nullptr;
    int found = 0;
    check(
        MPI_Comm_get_attr(MPI_COMM_WORLD, MPI_TAG_UB, &bound, &found),
        "MPI_Comm_get_attr");
    tag_bound_ =
        found != 0 ? std::max(*static_cast<int*>(bound) - 1, 32766) : 32766;
    tag_bound_ = static_cast<int>(
        std::min<int64_t>(tag_bound_, limit("TESSERA_MPI_TAGS", tag_bound_)));
  }
  // A job in which a rank has failed cannot finalize: others may be gone.
  ~MpiTransport() override {
    if (!finalizes_ || failed_ || mpi_is_over()) {
      return;
    }
    try {
      hear_until([&] { return all_told(); });
      MPI_Request end = MPI_REQUEST_NULL;
      check(MPI_Ibarrier(control_, &end), "MPI_Ibarrier");
      hear_until([&] {
        int flag = 0;
        check(MPI_Test(&end, &flag, MPI_STATUS_IGNORE), "MPI_Test");
        return flag != 0;
      });
    } catch (const std::exception&) {
      failed_ = true;
    }
    if (!failed_) {
      MPI_Finalize();
    }
  }
  MpiTransport(const MpiTransport&) = delete;
  MpiTransport& operator=(const MpiTransport&) = delete;

  int64_t rank() const override { return rank_; }
  int64_t size() const override { return size_; }
  std::string name() const override { return "mpi"; }
  std::unique_ptr<Channel> join(
      const std::vector<int64_t>& ranks, const std::string& key) override {
    const auto group_rank = std::find(ranks.begin(), ranks.end(), rank_);
    return std::make_unique<MpiChannel>(
        data_, tags_, ranks, group_rank - ranks.begin(), base::hash_bytes(key),
        tag_bound_);
  }

  void notify(
      const std::vector<int64_t>& ranks,
      const PeerEvent& event) noexcept override {
    if (mpi_is_over()) {
      return;
    }
    if (all_told()) {
      told_.clear();
      sending_.clear();
    }
    failed_ = failed_ || is_failure(event);
    const std::string& bytes = told_.emplace_back(to_bytes(event));
    for (const int64_t to : ranks) {
      if (to != rank_) {
        MPI_Isend(
            bytes.data(), static_cast<int>(bytes.size()), MPI_BYTE,
            static_cast<int>(to), kEventTag, control_,
            &sending_.emplace_back(MPI_REQUEST_NULL));
      }
    }
  }
  // A probe may move on what has arrived before it sees it: several tell.
  std::vector<PeerEvent> poll_events(uint64_t world) override {
    if (mpi_is_over()) {
      throw std::runtime_error("the program has ended MPI");
    }
    for (int probes = 0;;) {
      int waiting = 0;
      MPI_Status status;
      const int code =
          MPI_Iprobe(MPI_ANY_SOURCE, kEventTag, control_, &waiting, &status);
      if (code != MPI_SUCCESS) {
        if (!dead_.poll(control_)) {
          check(code, "MPI_Iprobe");
        }
        failed_ = true;
        continue;
      }
      if (waiting == 0 && ++probes < kProbes) {
        continue;
      }
      if (waiting == 0) {
        return with_deaths(world, std::exchange(heard_[world], {}));
      }
      int size = 0;
      check(MPI_Get_count(&status, MPI_BYTE, &size), "MPI_Get_count");
      std::string bytes(static_cast<size_t>(size), ' ');
      check(
          MPI_Recv(
              bytes.data(), size, MPI_BYTE, status.MPI_SOURCE, kEventTag,
              control_, MPI_STATUS_IGNORE),
          "MPI_Recv");
      PeerEvent heard = event_from(bytes);
      failed_ = failed_ || is_failure(heard);
      heard_[heard.world].push_back(std::move(heard));
    }
  }

 private:
  // The end of a rank, not of a group, keeps the job from ending as usual.
  static bool is_failure(const PeerEvent& event) {
    return event.world == 0 && event.group == 0 && !event.text.empty();
  }
  bool all_told() noexcept {
    int flag = 0;
    MPI_Testall(
        static_cast<int>(sending_.size()), sending_.data(), &flag,
        MPI_STATUSES_IGNORE);
    return flag != 0;
  }
  // A long event waits at its sender until it is received.
  template <class F>
  void hear_until(const F& condition) {
    while (!failed_ && !condition()) {
      static_cast<void>(poll_events(0));
    }
  }
  // Adds those who died since this world last asked.
  std::vector<PeerEvent> with_deaths(
      uint64_t world, std::vector<PeerEvent> events) {
    size_t& known = deaths_told_[world];
    for (; known < dead_.ranks().size(); ++known) {
      events.push_back(
          {.rank = dead_.ranks()[known],
           .world = world,
           .text = "its process has ended without a word"});
    }
    return events;
  }

  MPI_Comm data_ = MPI_COMM_NULL;
  MPI_Comm control_ = MPI_COMM_NULL;
  int rank_ = 0;
  int size_ = 1;
  std::shared_ptr<ActiveTags> tags_ = std::make_shared<ActiveTags>();
  int tag_bound_ = 32766;
  bool finalizes_ = false;
  bool failed_ = false;
  FailedRanks dead_;
  std::map<uint64_t, size_t> deaths_told_;            // by world
  std::map<uint64_t, std::vector<PeerEvent>> heard_;  // by world
  std::deque<std::string> told_;                      // under way
  std::vector<MPI_Request> sending_;
};

}  // namespace
}  // namespace tessera::detail::inline comm_layer

/// What the library looks up when it loads this file.
extern "C" __attribute__((visibility("default"))) tessera::detail::Transport*
tessera_mpi_transport() {
  return new tessera::detail::MpiTransport();
}
