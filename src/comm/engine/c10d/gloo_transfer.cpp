#include "comm/engine/c10d/gloo_transfer.h"

#include <stdexcept>
#include <utility>

#include <ATen/ops/from_blob.h>

namespace tessera::detail::inline comm_layer {
namespace {

class SharedGlooTransfer final : public Transfer {
 public:
  explicit SharedGlooTransfer(std::shared_ptr<const GlooTransfer> transfer)
      : transfer_(std::move(transfer)) {}
  bool done() override { return transfer_->progress.done(); }

 private:
  std::shared_ptr<const GlooTransfer> transfer_;
};

class SharedGlooMessage final : public Transfer {
 public:
  explicit SharedGlooMessage(std::shared_ptr<const Message> message)
      : message_(std::move(message)) {}
  bool done() override { return message_->progress().done(); }

 private:
  std::shared_ptr<const Message> message_;
};

}  // namespace

WorkPtr Leg::start(::c10d::Backend& group, int tag) const {
  std::vector<at::Tensor> tensors = {at::from_blob(data, {size}, at::kByte)};
  return sends ? group.send(tensors, static_cast<int>(group_rank), tag)
               : group.recv(tensors, static_cast<int>(group_rank), tag);
}

bool Progress::done() const {
  if (state_ == State::kFailed) {
    throw std::runtime_error(error_);
  }
  return state_ == State::kDone;
}

void Progress::fail(const std::string& error) {
  if (state_ == State::kOpen) {
    error_ = error;
    state_ = State::kFailed;
  }
}

void Message::start(::c10d::Backend& group) {
  try {
    work_ = leg_.start(group, tag_);
    waiter_ = std::thread([this] { wait(); });
  } catch (const std::exception& error) {
    progress_.fail(error.what());
  }
}

void Message::wait() noexcept {
  try {
    work_->wait(kWaitTimeout) ? progress_.succeed() : progress_.fail(kClosed);
  } catch (const std::exception& error) {
    progress_.fail(error.what());
  }
}

void Message::abort() noexcept {
  if (work_) {
    work_->abort();
  } else {
    progress_.fail(kClosed);
  }
}

void Message::end() noexcept {
  abort();
  if (waiter_.joinable()) {
    waiter_.join();
  }
  work_.reset();
}

TransferPtr transfer_of(std::shared_ptr<const GlooTransfer> transfer) {
  return std::make_unique<SharedGlooTransfer>(std::move(transfer));
}
TransferPtr transfer_of(std::shared_ptr<const Message> message) {
  return std::make_unique<SharedGlooMessage>(std::move(message));
}

}  // namespace tessera::detail::inline comm_layer
