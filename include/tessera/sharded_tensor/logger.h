// Logger: where the functions of sharded tensors report what they do.
#pragma once

#include <atomic>
#include <functional>
#include <memory>
#include <mutex>
#include <string>
#include <string_view>
#include <utility>

#include <tessera/export.h>

namespace tessera::sharded_tensor {

/// A name and one handler, which takes lines of text. All threads may use one.
class TESSERA_API Logger {
 public:
  using Handler = std::function<void(std::string_view)>;

  explicit Logger(std::string name) : name_(std::move(name)) {}
  Logger(const Logger&) = delete;
  Logger& operator=(const Logger&) = delete;

  const std::string& name() const { return name_; }
  /// Returns the number of handlers: one, be it the one that drops all lines.
  size_t handler_count() const { return 1; }
  /// Tells whether lines are dropped.
  bool is_null() const { return !is_on_.load(std::memory_order_relaxed); }
  /// Replaces the handler; an empty one drops all lines. A call of the old one
  /// that has begun on another thread may still be running.
  void set_handler(Handler handler);

  /// Hands a line to the handler. `make_text` returns it, and is called only
  /// where it is not dropped.
  /// Example: logger.debug([&] { return "shard " + to_string(spec); }).
  template <class MakeText>
  void debug(const MakeText& make_text) {
    if (!is_null()) {
      write(make_text());
    }
  }

 private:
  void write(std::string_view text);

  const std::string name_;
  std::atomic<bool> is_on_ = false;
  std::mutex mutex_;
  std::shared_ptr<const Handler> handler_;
};

/// Returns the logger "sharding-spec-HANDLER"; the first call of a name makes
/// it, with the handler that drops all lines. The library reports to the one
/// of "null". Example: get_or_create_logger().set_handler(print_line).
TESSERA_API Logger& get_or_create_logger(const std::string& handler = "null");

}  // namespace tessera::sharded_tensor
