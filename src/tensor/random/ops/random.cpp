#include <tessera/tensor/random.h>

#include <c10/util/Exception.h>
#include <comm/engine/random_counters.h>
#include <tensor/random/ops/plain_draws.h>
#include <tensor/state/late_operators.h>
#include <tensor/state/plain_is_replicated.h>
#include <tessera/comm/world.h>

namespace tessera {

namespace detail::inline tensor_layer {

class ReplicatedRandomImpl {
 public:
  ReplicatedRandomImpl() : draws_(init().random_counters()) {}

 private:
  PlainIsReplicated replicated_;
  UnshardedRandom draws_;
};

}  // namespace detail::inline tensor_layer

void manual_seed(uint64_t seed) {
  init().random_counters()->set_seed(seed);
}

RandomState random_state() {
  const auto state = init().random_counters()->state();
  return {
      .seed = state.seed,
      .operations = state.operations,
      .streams = state.streams};
}

void set_random_state(const RandomState& state) {
  init().random_counters()->set_state(
      {.seed = state.seed,
       .operations = state.operations,
       .streams = state.streams});
}

RandomStream::RandomStream(const std::string& name)
    : counters_(init().random_counters()) {
  TORCH_CHECK_VALUE(
      !name.empty(), "RandomStream, rank ", rank(),
      ": the name must not be empty");
  counters_->push_stream(name);
}

RandomStream::~RandomStream() {
  counters_->pop();
}

ReplicatedRandom::ReplicatedRandom() {
  detail::ensure_registered();
  impl_ = std::make_unique<detail::ReplicatedRandomImpl>();
}

ReplicatedRandom::~ReplicatedRandom() = default;

}  // namespace tessera
