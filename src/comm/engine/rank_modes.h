// What LibTorch must do otherwise on a thread that is a rank.
#pragma once

namespace tessera::detail::inline comm_layer {

/// The modes of a rank's thread, while it lives: backward runs on that thread
/// itself (one thread per device could not serve ranks that wait for each
/// other), views replay, and autocast keeps no casts (it makes them under a
/// lock of the process, where a rank that had to wait for another one would
/// wait for ever).
class RankModes {
 public:
  RankModes();
  ~RankModes();
  RankModes(const RankModes&) = delete;
  RankModes& operator=(const RankModes&) = delete;

 private:
  bool backward_elsewhere_;
  bool views_replay_;
  bool keeps_casts_;
};

/// Sets how many threads LibTorch uses inside an operator of this thread.
void set_intra_op_threads(int count);

}  // namespace tessera::detail::inline comm_layer
