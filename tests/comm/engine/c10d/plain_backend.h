// A backend that is not Gloo by name: it passes on to one what backends have in
// common, and its works complete by themselves, as those of NCCL and MPI do.
#pragma once

#include <atomic>
#include <exception>
#include <thread>
#include <utility>
#include <vector>

#include <ATen/ops/full.h>
#include <torch/csrc/distributed/c10d/Backend.hpp>

namespace tessera::testing {

class PlainWork final : public ::c10d::Work {
 public:
  explicit PlainWork(c10::intrusive_ptr<::c10d::Work> work)
      : thread_([this, work = std::move(work)] {
          try {
            work->wait();
          } catch (...) {
            error_ = std::current_exception();
          }
          done_ = true;
        }) {}
  ~PlainWork() override { thread_.join(); }
  bool isCompleted() override { return done_; }
  bool wait(std::chrono::milliseconds /*timeout*/) override {
    while (!done_) {
      std::this_thread::yield();
    }
    if (error_) {
      std::rethrow_exception(error_);
    }
    return true;
  }

 private:
  std::atomic<bool> done_ = false;
  std::exception_ptr error_;
  std::thread thread_;
};

class PlainBackend final : public ::c10d::Backend {
 public:
  using WorkPtr = c10::intrusive_ptr<::c10d::Work>;

  explicit PlainBackend(c10::intrusive_ptr<::c10d::Backend> inner)
      : Backend(inner->getRank(), inner->getSize()), inner_(std::move(inner)) {}
  const std::string getBackendName() const override { return "plain"; }

  WorkPtr broadcast(
      std::vector<at::Tensor>& tensors,
      const ::c10d::BroadcastOptions& options) override {
    return plain(inner_->broadcast(tensors, options));
  }
  WorkPtr allreduce(
      std::vector<at::Tensor>& tensors,
      const ::c10d::AllreduceOptions& options) override {
    return plain(inner_->allreduce(tensors, options));
  }
  WorkPtr _allgather_base(
      at::Tensor& output, at::Tensor& input,
      const ::c10d::AllgatherOptions& options) override {
    return plain(inner_->_allgather_base(output, input, options));
  }
  WorkPtr alltoall_base(
      at::Tensor& output, at::Tensor& input, std::vector<int64_t>& received,
      std::vector<int64_t>& sent,
      const ::c10d::AllToAllOptions& options) override {
    return plain(inner_->alltoall_base(output, input, received, sent, options));
  }
  // Like NCCL, it knows no tags.
  WorkPtr send(std::vector<at::Tensor>& tensors, int to, int /*tag*/) override {
    return plain(inner_->send(tensors, to, 0));
  }
  WorkPtr recv(
      std::vector<at::Tensor>& tensors, int from, int /*tag*/) override {
    return plain(inner_->recv(tensors, from, 0));
  }

 private:
  static WorkPtr plain(WorkPtr work) {
    return c10::make_intrusive<PlainWork>(std::move(work));
  }
  c10::intrusive_ptr<::c10d::Backend> inner_;
};

}  // namespace tessera::testing
