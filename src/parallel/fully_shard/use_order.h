// In which order groups are used, as recorded in the last step.
#pragma once

#include <cstddef>
#include <vector>

namespace tessera::detail::inline parallel_layer {

/// The groups of one direction, forward or backward. What it says depends on
/// recorded uses alone, so all ranks say the same.
class UseOrder {
 public:
  /// Notes that a group is used.
  void note(size_t group);
  /// Returns the groups that the last step used next, at most `count`.
  std::vector<size_t> next(size_t count) const;
  /// Ends a step; one without a use changes nothing.
  void end_step();

  const std::vector<size_t>& last() const { return last_; }
  const std::vector<size_t>& current() const { return current_; }

 private:
  std::vector<size_t> last_;
  std::vector<size_t> current_;
  size_t place_ = 0;  // in last_, behind the use that was noted last
};

}  // namespace tessera::detail::inline parallel_layer
