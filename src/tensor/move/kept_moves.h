// Results of moves that are kept for a forward that runs again.
//
// Note [Kept moves]
// A part of a program that runs twice, forward and again in the backward pass,
// makes the same moves in the same order both times. So the first run keeps the
// results of those that communicate, and the second takes them one by one
// instead of moving: all ranks alike, since what is kept follows from calls
// alone. A result is kept as a copy, because operators may overwrite what was
// moved for them. Copies behind views (view_copies.h) are not kept: whether one
// is still fresh differs between the two runs.
#pragma once

#include <memory>
#include <vector>

#include <tensor/move/execute.h>

namespace tessera::detail::inline tensor_layer {

/// The kept moves of one part of a program.
class KeptMoves {
 public:
  KeptMoves() = default;
  KeptMoves(const KeptMoves&) = delete;
  KeptMoves& operator=(const KeptMoves&) = delete;

  class Keep;
  class Take;
  class Suspend;

  /// Carries a plan out as detail::start() does, or takes what it came to in
  /// the first run.
  static MovingShard start(
      const std::shared_ptr<const PreparedPlan>& plan, const at::Tensor& shard);

 private:
  struct One {
    std::shared_ptr<const PreparedPlan> plan;
    at::Tensor result;  // undefined until it arrives, and after it was taken
  };
  std::vector<std::shared_ptr<One>> all_;
};

/// While it lives, this thread's moves are kept in `moves`, and by the Keeps
/// around it.
class KeptMoves::Keep {
 public:
  explicit Keep(KeptMoves& moves);
  ~Keep();
  Keep(const Keep&) = delete;
  Keep& operator=(const Keep&) = delete;

 private:
  friend class KeptMoves;
  KeptMoves& moves_;
  Keep* outer_;
};

/// While it lives, this thread's moves take the results in `moves`, from the
/// first one on; nullptr keeps none. `once`: no third run will ask for them.
class KeptMoves::Take {
 public:
  Take(const KeptMoves* moves, bool once);
  ~Take();
  Take(const Take&) = delete;
  Take& operator=(const Take&) = delete;

 private:
  friend class KeptMoves;
  at::Tensor next(const PreparedPlan& plan);
  const KeptMoves* moves_;
  bool once_;
  size_t taken_ = 0;
  Keep* outer_keep_;
  Take* outer_take_;
};

/// While it lives, this thread's moves are neither kept nor taken.
class KeptMoves::Suspend {
 public:
  Suspend();
  ~Suspend();
  Suspend(const Suspend&) = delete;
  Suspend& operator=(const Suspend&) = delete;

 private:
  Keep* keep_;
  Take* take_;
};

}  // namespace tessera::detail::inline tensor_layer
