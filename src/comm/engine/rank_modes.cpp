#include "comm/engine/rank_modes.h"

#include <ATen/Parallel.h>
#include <ATen/autocast_mode.h>
#include <c10/core/AutogradState.h>

namespace tessera::detail::inline comm_layer {

RankModes::RankModes()
    : backward_elsewhere_(
          c10::AutogradState::get_tls_state().get_multithreading_enabled()),
      views_replay_(
          c10::AutogradState::get_tls_state().get_view_replay_enabled()),
      keeps_casts_(at::autocast::is_autocast_cache_enabled()) {
  c10::AutogradState& modes = c10::AutogradState::get_tls_state();
  modes.set_multithreading_enabled(false);
  modes.set_view_replay_enabled(true);
  at::autocast::set_autocast_cache_enabled(false);
}

RankModes::~RankModes() {
  c10::AutogradState& modes = c10::AutogradState::get_tls_state();
  modes.set_multithreading_enabled(backward_elsewhere_);
  modes.set_view_replay_enabled(views_replay_);
  at::autocast::set_autocast_cache_enabled(keeps_casts_);
}

void set_intra_op_threads(int count) {
  if (at::get_num_threads() != count) {
    at::set_num_threads(count);
  }
}

}  // namespace tessera::detail::inline comm_layer
