#include "comm/engine/process/self_messages.h"

#include <deque>
#include <map>
#include <utility>
#include <vector>

#include <base/copy_bytes.h>

namespace tessera::detail::inline comm_layer {
namespace {

using Letter = std::vector<char>;

// What was sent and who waits for it, in order; one of the two is empty.
struct Mailbox {
  struct Reader {
    void* data;
    bool done = false;
  };
  std::deque<Letter> letters;
  std::deque<std::shared_ptr<Reader>> readers;

  void deliver() {
    while (!letters.empty() && !readers.empty()) {
      const Letter letter = std::exchange(letters.front(), {});
      letters.pop_front();
      base::copy_bytes(readers.front()->data, letter.data(), letter.size());
      readers.front()->done = true;
      readers.pop_front();
    }
  }
};

class Delivery final : public Transfer {
 public:
  explicit Delivery(std::shared_ptr<const Mailbox::Reader> reader)
      : reader_(std::move(reader)) {}
  bool done() override { return reader_ == nullptr || reader_->done; }

 private:
  std::shared_ptr<const Mailbox::Reader> reader_;  // null: sent
};

class SelfMessages final : public Channel {
 public:
  SelfMessages(std::unique_ptr<Channel> channel, int64_t group_rank)
      : channel_(std::move(channel)), group_rank_(group_rank) {}

  TransferPtr all_gather(
      const void* input, int64_t size, void* output,
      const std::vector<int64_t>& counts) override {
    return channel_->all_gather(input, size, output, counts);
  }
  TransferPtr all_to_all(
      const void* input, const std::vector<int64_t>& sent, void* output,
      const std::vector<int64_t>& received) override {
    return channel_->all_to_all(input, sent, output, received);
  }
  TransferPtr broadcast(void* data, int64_t bytes, int64_t root) override {
    return channel_->broadcast(data, bytes, root);
  }
  TransferPtr send(
      const void* data, int64_t bytes, int64_t group_rank,
      int64_t tag) override {
    if (group_rank != group_rank_) {
      return channel_->send(data, bytes, group_rank, tag);
    }
    const char* begin = static_cast<const char*>(data);
    Mailbox& box = boxes_[tag];
    box.letters.emplace_back(begin, begin + bytes);
    box.deliver();
    return std::make_unique<Delivery>(nullptr);
  }
  TransferPtr receive(
      void* data, int64_t bytes, int64_t group_rank, int64_t tag) override {
    if (group_rank != group_rank_) {
      return channel_->receive(data, bytes, group_rank, tag);
    }
    auto reader =
        std::make_shared<Mailbox::Reader>(Mailbox::Reader{.data = data});
    Mailbox& box = boxes_[tag];
    box.readers.push_back(reader);
    box.deliver();
    return std::make_unique<Delivery>(std::move(reader));
  }
  std::vector<int64_t> absent() override { return channel_->absent(); }
  void close() noexcept override {
    for (auto& [tag, box] : boxes_) {
      for (const auto& reader : box.readers) {
        reader->done = true;  // nothing will be written any more
      }
    }
    boxes_.clear();
    channel_->close();
  }

 private:
  std::unique_ptr<Channel> channel_;
  int64_t group_rank_;
  std::map<int64_t, Mailbox> boxes_;  // by tag
};

}  // namespace

std::unique_ptr<Channel> with_self_messages(
    std::unique_ptr<Channel> channel, int64_t group_rank) {
  return std::make_unique<SelfMessages>(std::move(channel), group_rank);
}

}  // namespace tessera::detail::inline comm_layer
