// Communicator: a group of ranks that move tensors between each other.
//
// Every call is collective over the group unless it says otherwise. A call is
// checked before anything moves: the arguments here, and the agreement between
// ranks (operation, dtype, counts, reduce op, root, sequence) by the engine. A
// disagreement, an exception on one rank or a passed deadline is an error on
// every rank that names both ranks and both calls; from then on the group is
// broken. Reductions combine in rank order, so results repeat bit for bit.
#pragma once

#include <chrono>
#include <cstdint>
#include <memory>
#include <string>
#include <vector>

#include <ATen/core/Tensor.h>
#include <tessera/export.h>
#include <tessera/layout/placement.h>

namespace tessera {

class Communicator;

namespace detail::inline comm_layer {
class CommunicatorImpl;
class WorkImpl;
CommunicatorImpl& impl_of(const Communicator& group);

class TESSERA_API Work;  // here: GCC 12 refuses it beside [[nodiscard]]

/// Communicator::Work: a communication under way. Inputs must not be written,
/// outputs not be read, before wait() returns. Dropping a Work waits for it.
class [[nodiscard]] Work {
 public:
  Work() noexcept;
  explicit Work(std::unique_ptr<WorkImpl> impl);
  Work(Work&&) noexcept;
  Work& operator=(Work&&) noexcept;
  Work(const Work&) = delete;
  Work& operator=(const Work&) = delete;
  ~Work();

  /// Blocks until this rank's part is complete; throws what went wrong. A
  /// second call returns at once.
  void wait();
  /// Tells whether wait() would return at once.
  bool done() const;

 private:
  std::unique_ptr<WorkImpl> impl_;
};
}  // namespace detail::inline comm_layer

/// A handle to a group of ranks; copies share the group.
class TESSERA_API Communicator {
 public:
  using Work = detail::Work;

  Communicator() = default;
  explicit Communicator(std::shared_ptr<detail::CommunicatorImpl> impl);

  bool defined() const { return impl_ != nullptr; }
  /// Returns this rank's place in the group.
  int64_t rank() const;
  int64_t size() const;
  /// Returns the global ranks of the group, in group order.
  const std::vector<int64_t>& ranks() const;
  /// Returns the engine's name: "threads", ...
  std::string engine() const;

  // Tensors are seen as flat runs of elements. Inputs may have any strides;
  // outputs must be contiguous and must not share memory with the input (where
  // `output` may be the input itself, the function says so). Counts are
  // elements per group rank. The plain forms want equal counts.

  /// Concatenates the inputs of all ranks, in rank order, on every rank.
  void all_gather(const at::Tensor& output, const at::Tensor& input) const;
  void all_gather_v(
      const at::Tensor& output, const at::Tensor& input,
      const std::vector<int64_t>& counts) const;
  /// Reduces over ranks; rank r receives the r-th run of the result.
  void reduce_scatter(
      const at::Tensor& output, const at::Tensor& input,
      ReduceOp op = ReduceOp::kSum) const;
  void reduce_scatter_v(
      const at::Tensor& output, const at::Tensor& input,
      const std::vector<int64_t>& counts, ReduceOp op = ReduceOp::kSum) const;
  /// Reduces over ranks, in place, on every rank.
  void all_reduce(const at::Tensor& tensor, ReduceOp op = ReduceOp::kSum) const;
  /// Reduces over ranks into `output`; the input stays as it is.
  void all_reduce(
      const at::Tensor& output, const at::Tensor& input,
      ReduceOp op = ReduceOp::kSum) const;
  /// Sends the r-th run of the input to rank r; receives in rank order.
  void all_to_all(const at::Tensor& output, const at::Tensor& input) const;
  void all_to_all_v(
      const at::Tensor& output, const at::Tensor& input,
      const std::vector<int64_t>& output_counts,
      const std::vector<int64_t>& input_counts) const;
  /// Copies the root's tensor to all ranks, in place.
  void broadcast(const at::Tensor& tensor, int64_t root) const;
  /// Sends the r-th run of the root's input to rank r. Other ranks pass an
  /// undefined input.
  void scatter(
      const at::Tensor& output, const at::Tensor& input, int64_t root) const;
  void scatter_v(
      const at::Tensor& output, const at::Tensor& input,
      const std::vector<int64_t>& counts, int64_t root) const;
  /// Concatenates the inputs on the root. Other ranks pass an undefined output.
  void gather(
      const at::Tensor& output, const at::Tensor& input, int64_t root) const;
  void gather_v(
      const at::Tensor& output, const at::Tensor& input,
      const std::vector<int64_t>& counts, int64_t root) const;
  /// Sends to one rank, which must receive the same dtype and element count
  /// under the same tag.
  void send(const at::Tensor& tensor, int64_t dst, int64_t tag = 0) const;
  void recv(const at::Tensor& tensor, int64_t src, int64_t tag = 0) const;
  /// Returns when every rank has called it.
  void barrier() const;
  /// Makes one group per color; ranks are ordered by key, then by their order
  /// here. A negative color joins no group and gives an undefined handle.
  Communicator split(int64_t color, int64_t key = 0) const;

  // The same, started but not waited for.
  Work all_gather_async(
      const at::Tensor& output, const at::Tensor& input,
      const std::vector<int64_t>& counts = {}) const;
  Work reduce_scatter_async(
      const at::Tensor& output, const at::Tensor& input,
      const std::vector<int64_t>& counts = {},
      ReduceOp op = ReduceOp::kSum) const;
  Work all_reduce_async(
      const at::Tensor& tensor, ReduceOp op = ReduceOp::kSum) const;
  Work all_reduce_async(
      const at::Tensor& output, const at::Tensor& input,
      ReduceOp op = ReduceOp::kSum) const;
  Work all_to_all_async(
      const at::Tensor& output, const at::Tensor& input,
      const std::vector<int64_t>& output_counts = {},
      const std::vector<int64_t>& input_counts = {}) const;
  Work broadcast_async(const at::Tensor& tensor, int64_t root) const;
  Work scatter_async(
      const at::Tensor& output, const at::Tensor& input,
      const std::vector<int64_t>& counts, int64_t root) const;
  Work gather_async(
      const at::Tensor& output, const at::Tensor& input,
      const std::vector<int64_t>& counts, int64_t root) const;
  Work send_async(const at::Tensor& tensor, int64_t dst, int64_t tag = 0) const;
  Work recv_async(const at::Tensor& tensor, int64_t src, int64_t tag = 0) const;

 private:
  friend detail::CommunicatorImpl& detail::impl_of(const Communicator& group);
  std::shared_ptr<detail::CommunicatorImpl> impl_;
};

}  // namespace tessera
