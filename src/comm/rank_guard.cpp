#include <tessera/comm/world.h>

#include <optional>
#include <utility>

#include <base/hash.h>
#include <c10/util/Exception.h>

#include "comm/engine/engine.h"
#include "comm/engine/guarded_rank.h"
#include "comm/engine/inherited_modes.h"
#include "comm/engine/rank_modes.h"
#include "comm/engine/simulated/simulated_world.h"
#include "comm/engine/threads/threads.h"

namespace tessera {
namespace {

// The rank that this thread is by itself, or null.
std::shared_ptr<detail::WorldImpl> rank_by_birth() {
  if (const auto& rank = detail::current_thread_rank()) {
    return rank;
  }
  return detail::current_simulated_thread();
}

void check_is_free(const detail::WorldImpl& wanted) {
  std::shared_ptr<detail::WorldImpl> mine = rank_by_birth();
  mine = mine == nullptr ? detail::guarded().rank : mine;
  TORCH_CHECK_VALUE(
      mine == nullptr || mine.get() == &wanted, "RankGuard of rank ",
      wanted.rank(), " of ", wanted.size(),
      ": this thread is part of another rank; it is rank ", mine->rank(),
      " of ", mine->size(), "; make the guard on a thread of its own");
}

// Tells whether the ranks of this world are threads, with modes of their own.
bool has_rank_modes(const std::shared_ptr<detail::WorldImpl>& rank) {
  return rank != detail::lone_rank() &&
         (rank->engine() == "threads" || rank->engine() == "simulated");
}

}  // namespace

struct RankGuard::State {
  detail::ModeValue before;
  std::optional<detail::RankModes> modes;
};

RankGuard::RankGuard(const World& world, const std::string& name) {
  const std::shared_ptr<detail::WorldImpl>& rank = world.impl_;
  check_is_free(*rank);
  TORCH_CHECK_VALUE(
      !name.empty(), "RankGuard of rank ", rank->rank(), " of ", rank->size(),
      ": the name must tell this thread from the rank's own; got an empty one");
  if (rank_by_birth() != nullptr) {
    return;  // the rank's own thread
  }
  state_ = std::make_unique<State>();
  if (has_rank_modes(rank)) {
    state_->modes.emplace();
  }
  state_->before = detail::exchange_mode(
      detail::Mode::kRank,
      std::make_shared<const detail::Guarded>(
          detail::Guarded{rank, base::hash_bytes(name) | 1}));  // never 0
}

RankGuard::~RankGuard() {
  if (state_ != nullptr) {
    detail::exchange_mode(detail::Mode::kRank, std::move(state_->before));
  }
}

}  // namespace tessera
