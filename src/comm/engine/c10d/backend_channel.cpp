#include "comm/engine/c10d/backend_channel.h"

#include <algorithm>
#include <numeric>
#include <stdexcept>
#include <utility>

#include <ATen/ops/empty.h>
#include <ATen/ops/from_blob.h>
#include <c10/core/GradMode.h>
#include <c10/util/Exception.h>

namespace tessera::detail::inline comm_layer {
namespace {

using BackendPtr = c10::intrusive_ptr<::c10d::Backend>;
using WorkPtr = c10::intrusive_ptr<::c10d::Work>;

at::Tensor host_bytes(const void* data, int64_t size) {
  return at::from_blob(const_cast<void*>(data), {size}, at::kByte);
}

/// Works of a backend, the tensors that they use, and where results go.
struct Staging {
  std::vector<WorkPtr> works;
  std::vector<at::Tensor> tensors;
  struct Result {
    at::Tensor from;
    void* to;
  };
  std::vector<Result> results;

  bool complete() const {
    return std::all_of(works.begin(), works.end(), [](const WorkPtr& work) {
      return work->isCompleted();
    });
  }
  // Throws what went wrong; on an accelerator, wait() is in stream order, and
  // so are the copies.
  void finish() const {
    const c10::NoGradGuard no_grad;
    for (const WorkPtr& work : works) {
      work->wait();
    }
    for (const Result& result : results) {
      host_bytes(result.to, result.from.numel()).copy_(result.from);
    }
  }
};
using StagingPtr = std::shared_ptr<Staging>;

// A work that was given up may still write its tensors: they live on.
void keep_for_ever(std::vector<StagingPtr> stagings) {
  static auto& kept = *new std::vector<StagingPtr>();
  kept.insert(kept.end(), stagings.begin(), stagings.end());
}

class StagedTransfer final : public Transfer {
 public:
  StagedTransfer(StagingPtr staging, std::shared_ptr<const bool> closed)
      : staging_(std::move(staging)), closed_(std::move(closed)) {}
  bool done() override {
    if (staging_ == nullptr) {
      return true;
    }
    if (*closed_) {
      throw std::runtime_error("the group is closed");
    }
    if (!staging_->complete()) {
      return false;
    }
    std::exchange(staging_, nullptr)->finish();
    return true;
  }

 private:
  StagingPtr staging_;
  std::shared_ptr<const bool> closed_;
};

class BackendChannel final : public Channel {
 public:
  BackendChannel(
      BackendPtr backend, c10::Device device, BackendOwner owner,
      std::unique_ptr<Channel> messages)
      : backend_(std::move(backend)),
        device_(device),
        owner_(owner),
        messages_(std::move(messages)) {}
  ~BackendChannel() override { close(); }

  TransferPtr all_gather(
      const void* input, int64_t size, void* output,
      const std::vector<int64_t>& received) override {
    const StagingPtr staging = begin();
    const auto me = static_cast<size_t>(backend_->getRank());
    std::vector<int64_t> counts = received;
    counts[me] = size;
    const int64_t all = std::accumulate(counts.begin(), counts.end(), 0LL);
    at::Tensor to = staged(*staging, all);
    take_results(*staging, to, counts, output, received[me] == 0);
    at::Tensor from = copied(*staging, input, size);
    if (all == size * backend_->getSize() &&
        std::all_of(counts.begin(), counts.end(), [&](int64_t count) {
          return count == size;
        })) {
      staging->works.push_back(backend_->_allgather_base(to, from));
      return started(staging);
    }
    // Uneven: every rank's run by a broadcast, since backends want equal ones.
    int64_t at = 0;
    for (int64_t r = 0; r < backend_->getSize(); ++r) {
      const int64_t count = counts[static_cast<size_t>(r)];
      std::vector<at::Tensor> run = {to.narrow(0, at, count)};
      if (r == backend_->getRank()) {
        run[0].copy_(from);
      }
      if (count > 0) {
        staging->works.push_back(backend_->broadcast(run, root_of(r)));
      }
      at += count;
    }
    return started(staging);
  }

  TransferPtr all_to_all(
      const void* input, const std::vector<int64_t>& sent, void* output,
      const std::vector<int64_t>& received) override {
    const StagingPtr staging = begin();
    const auto total = [](const std::vector<int64_t>& counts) {
      return std::accumulate(counts.begin(), counts.end(), int64_t{0});
    };
    at::Tensor from = copied(*staging, input, total(sent));
    at::Tensor to = staged(*staging, total(received));
    staging->results.push_back({to, output});
    std::vector<int64_t> in = sent;
    std::vector<int64_t> out = received;
    staging->works.push_back(backend_->alltoall_base(to, from, out, in));
    return started(staging);
  }

  TransferPtr broadcast(void* data, int64_t bytes, int64_t root) override {
    const StagingPtr staging = begin();
    if (bytes == 0) {
      return started(staging);
    }
    std::vector<at::Tensor> tensors = {copied(*staging, data, bytes)};
    if (root != backend_->getRank()) {
      staging->results.push_back({tensors[0], data});
    }
    staging->works.push_back(backend_->broadcast(tensors, root_of(root)));
    return started(staging);
  }

  TransferPtr send(
      const void* data, int64_t bytes, int64_t group_rank,
      int64_t tag) override {
    return messages().send(data, bytes, group_rank, tag);
  }
  TransferPtr receive(
      void* data, int64_t bytes, int64_t group_rank, int64_t tag) override {
    return messages().receive(data, bytes, group_rank, tag);
  }
  std::vector<int64_t> absent() override {
    return messages_ == nullptr ? std::vector<int64_t>() : messages_->absent();
  }

  void close() noexcept override {
    if (std::exchange(*closed_, true)) {
      return;
    }
    if (messages_ != nullptr) {
      messages_->close();
    }
    drop_complete();
    if (owner_ == BackendOwner::kChannel && backend_) {
      try {
        backend_->abort();
      } catch (...) {
        static_cast<void>(0);  // it is closed either way
      }
      backend_.reset();
    }
    keep_for_ever(std::exchange(under_way_, {}));
  }

 private:
  // Runs of all ranks go to the output, or those of the others.
  void take_results(
      Staging& staging, const at::Tensor& from,
      const std::vector<int64_t>& counts, void* output,
      bool without_own) const {
    if (!without_own) {
      staging.results.push_back({from, output});
      return;
    }
    const auto me = counts.begin() + backend_->getRank();
    const int64_t before = std::accumulate(counts.begin(), me, int64_t{0});
    const int64_t behind = before + *me;
    staging.results.push_back({from.narrow(0, 0, before), output});
    staging.results.push_back(
        {from.narrow(0, behind, from.numel() - behind),
         static_cast<char*>(output) + before});
  }
  Channel& messages() {
    TORCH_CHECK_NOT_IMPLEMENTED(
        messages_ != nullptr,
        "messages are passed through the process group's store, but it has "
        "none; use a collective, or a process group that was made with a "
        "store");
    return *messages_;
  }
  static ::c10d::BroadcastOptions root_of(int64_t root) {
    ::c10d::BroadcastOptions options;
    options.rootRank = root;
    return options;
  }

  at::Tensor staged(Staging& staging, int64_t size) const {
    staging.tensors.push_back(
        at::empty({size}, at::TensorOptions(at::kByte).device(device_)));
    return staging.tensors.back();
  }
  at::Tensor copied(Staging& staging, const void* data, int64_t size) const {
    at::Tensor tensor = staged(staging, size);
    if (size > 0) {
      tensor.copy_(host_bytes(data, size));
    }
    return tensor;
  }

  StagingPtr begin() {
    drop_complete();
    return std::make_shared<Staging>();
  }
  TransferPtr started(const StagingPtr& staging) {
    under_way_.push_back(staging);
    return std::make_unique<StagedTransfer>(staging, closed_);
  }
  void drop_complete() noexcept {
    std::erase_if(
        under_way_, [](const StagingPtr& s) { return s->complete(); });
  }

  BackendPtr backend_;
  c10::Device device_;
  BackendOwner owner_;
  std::unique_ptr<Channel> messages_;  // null: there are none
  std::vector<StagingPtr> under_way_;
  std::shared_ptr<bool> closed_ = std::make_shared<bool>(false);
};

}  // namespace

std::unique_ptr<Channel> make_backend_channel(
    c10::intrusive_ptr<::c10d::Backend> backend, c10::Device device,
    BackendOwner owner, std::unique_ptr<Channel> messages) {
  return std::make_unique<BackendChannel>(
      std::move(backend), device, owner, std::move(messages));
}

}  // namespace tessera::detail::inline comm_layer
