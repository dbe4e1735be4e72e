#include "comm/engine/process/self_messages.h"

#include <deque>
#include <map>
#include <utility>
#include <vector>

#include <base/copy_bytes.h>

namespace tessera::detail {
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

class Delivery final : public Transit {
 public:
  explicit Delivery(std::shared_ptr<const Mailbox::Reader> reader)
      : reader_(std::move(reader)) {}
  bool done() override { return reader_ == nullptr || reader_->done; }

 private:
  std::shared_ptr<const Mailbox::Reader> reader_;  // null: sent
};

class SelfMessages final : public Wire {
 public:
  SelfMessages(std::unique_ptr<Wire> wire, int64_t place)
      : wire_(std::move(wire)), place_(place) {}

  TransitPtr all_gather(
      const void* input, void* output,
      const std::vector<int64_t>& counts) override {
    return wire_->all_gather(input, output, counts);
  }
  TransitPtr all_to_all(
      const void* input, const std::vector<int64_t>& sent, void* output,
      const std::vector<int64_t>& received) override {
    return wire_->all_to_all(input, sent, output, received);
  }
  TransitPtr broadcast(void* data, int64_t bytes, int64_t root) override {
    return wire_->broadcast(data, bytes, root);
  }
  TransitPtr send(
      const void* data, int64_t bytes, int64_t place, int64_t tag) override {
    if (place != place_) {
      return wire_->send(data, bytes, place, tag);
    }
    const char* begin = static_cast<const char*>(data);
    Mailbox& box = boxes_[tag];
    box.letters.emplace_back(begin, begin + bytes);
    box.deliver();
    return std::make_unique<Delivery>(nullptr);
  }
  TransitPtr receive(
      void* data, int64_t bytes, int64_t place, int64_t tag) override {
    if (place != place_) {
      return wire_->receive(data, bytes, place, tag);
    }
    auto reader =
        std::make_shared<Mailbox::Reader>(Mailbox::Reader{.data = data});
    Mailbox& box = boxes_[tag];
    box.readers.push_back(reader);
    box.deliver();
    return std::make_unique<Delivery>(std::move(reader));
  }
  std::vector<int64_t> absent() override { return wire_->absent(); }
  void close() noexcept override {
    for (auto& [tag, box] : boxes_) {
      for (const auto& reader : box.readers) {
        reader->done = true;  // nothing will be written any more
      }
    }
    boxes_.clear();
    wire_->close();
  }

 private:
  std::unique_ptr<Wire> wire_;
  int64_t place_;
  std::map<int64_t, Mailbox> boxes_;  // by tag
};

}  // namespace

std::unique_ptr<Wire> with_self_messages(
    std::unique_ptr<Wire> wire, int64_t place) {
  return std::make_unique<SelfMessages>(std::move(wire), place);
}

}  // namespace tessera::detail
