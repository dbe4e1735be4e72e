// Agreement: ranks find out together, before data move, whether all of them can
// go on. Without it an error on one rank leaves the others waiting.
#pragma once

#include <cstdint>
#include <exception>
#include <string>
#include <utility>
#include <vector>

#include <tessera/sharded_tensor/process_group.h>

namespace tessera::detail::inline sharded_tensor_layer {

/// One agreement of a group about one call. Example:
///   Agreement agreement("gather", group);
///   agreement.check([&] { check_output(out); });
///   agreement.equal("dst", std::to_string(dst));
///   agreement.reach();  // throws on all ranks or on none
class Agreement {
 public:
  Agreement(std::string call, sharded_tensor::ProcessGroup group);

  /// Runs checks of this rank; what they throw is kept for reach(). After an
  /// error the rest is left out. An error that all ranks of this group have
  /// agreed on, in a call among the checks, is thrown at once.
  template <class F>
  void check(F f) {
    if (failed()) {
      return;
    }
    try {
      f();
    } catch (...) {
      keep(std::current_exception());
    }
  }
  /// Says a value that must be equal on all ranks.
  void equal(const std::string& what, const std::string& value);
  bool failed() const { return kind_ != 0; }

  /// Throws on every rank the error that the first failing rank kept, or a
  /// ValueError where calls or values differ. Collective: one gather of a few
  /// bytes, and the texts only where there is something to say.
  void reach();
  /// The same, and returns what each rank of the group passed, in group order.
  std::vector<std::string> collect(const std::string& mine);

 private:
  struct Vote {
    int64_t kind;  // of error; 0: none
    uint64_t values;
    int64_t length;
    char call[40];  // cut off
  };
  std::vector<Vote> vote(int64_t length) const;
  void conclude(const std::vector<Vote>& votes) const;
  void compare(const std::vector<Vote>& votes) const;
  void keep(const std::exception_ptr& error);
  std::vector<std::string> gather(
      const std::string& mine, const std::vector<int64_t>& lengths) const;

  std::string call_;
  sharded_tensor::ProcessGroup group_;
  int64_t kind_ = 0;
  std::string error_;
  std::vector<std::pair<std::string, std::string>> values_;
};

}  // namespace tessera::detail::inline sharded_tensor_layer
