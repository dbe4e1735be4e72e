// One call of a random operator: its arguments by name, its numbers, and where
// its values go.
#pragma once

#include <optional>
#include <string_view>

#include <tensor/call/op_call.h>
#include <tensor/random/fill/fill.h>
#include <tensor/random/ops/plain_draws.h>
#include <tensor/random/philox/philox_blocks.h>

namespace tessera::detail::inline tensor_layer {

/// Names the draw of a call, which is the next of its generator or of the rank.
/// Every rank takes one for every call, whether it has data or not.
RandomOffset next_offset(const OpCall& call);

class RandomCall {
 public:
  /// Takes the call's draw.
  explicit RandomCall(const OpCall& call);

  const OpCall& op_call() const { return call_; }
  PhiloxKey key() const { return key_; }
  /// Returns the operator's name without namespace and trailing underscore:
  /// "normal" for aten::normal_.
  std::string_view base_name() const { return base_name_; }

  /// Returns an argument that is there and not None, or nullptr.
  const c10::IValue* find(std::string_view name) const;
  bool has_tensor(std::string_view name) const;
  at::Tensor tensor(std::string_view name) const;
  double number(std::string_view name, double otherwise) const;
  /// Returns an integer, also where it comes as a tensor of one element.
  std::optional<int64_t> integer(std::string_view name) const;

  /// Returns the tensor that the call fills: self of an in-place form, the out
  /// argument, or a new one like self.
  at::Tensor target() const;
  /// Ends the call with new values, written where the form of the call says.
  void finish(const at::Tensor& values) const;
  /// Throws "call, mesh, rank: rule; ..." unless `ok`.
  template <class... Text>
  void check(bool ok, const Text&... text) const {
    TORCH_CHECK_VALUE(ok, call_.describe(), ": ", text...);
  }

 private:
  at::Tensor out() const;
  const OpCall& call_;
  PhiloxKey key_;
  std::string_view base_name_;
  bool in_place_;
};

/// Returns a spec's placements, Replicate where they are Partial.
Placements summed_placements(const DTensorSpec& spec);

/// Returns values of a tensor's global shape in its placements, Replicate where
/// it is Partial; plain for a plain tensor.
at::Tensor draw_like(
    const at::Tensor& like, at::ScalarType dtype,
    const Distribution& distribution, PhiloxKey key, uint32_t part = 0);

/// Writes values into a tensor, which takes over their shape where its own
/// differs.
void write_values(const at::Tensor& to, const at::Tensor& values);

/// While it lives, a composite operator's draws are a sequence of their own,
/// which one draw of the rank names: however many there are, the rank's counter
/// moves by one. Plain tensors take part.
class RandomOperation {
 public:
  /// A call that does not `count`, in a dry run, leaves the counters alone.
  explicit RandomOperation(const OpCall& call, bool counts = true);
  ~RandomOperation();
  RandomOperation(const RandomOperation&) = delete;
  RandomOperation& operator=(const RandomOperation&) = delete;

 private:
  std::shared_ptr<RandomCounters> counters_;
  UnshardedRandom unsharded_;
};

}  // namespace tessera::detail::inline tensor_layer
