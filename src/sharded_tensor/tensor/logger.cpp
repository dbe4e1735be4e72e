#include <tessera/sharded_tensor/logger.h>

#include <map>

namespace tessera::sharded_tensor {

void Logger::set_handler(Handler handler) {
  const std::lock_guard<std::mutex> lock(mutex_);
  const bool is_on = handler != nullptr;
  handler_ =
      is_on ? std::make_shared<const Handler>(std::move(handler)) : nullptr;
  is_on_.store(is_on, std::memory_order_relaxed);
}

void Logger::write(std::string_view text) {
  std::shared_ptr<const Handler> handler;
  {
    const std::lock_guard<std::mutex> lock(mutex_);
    handler = handler_;
  }
  // Outside the lock: a handler may itself log or be replaced.
  if (handler) {
    (*handler)(text);
  }
}

namespace {

struct Loggers {
  std::mutex mutex;
  std::map<std::string, Logger> by_name;
};

}  // namespace

Logger& get_or_create_logger(const std::string& handler) {
  static Loggers loggers;
  const std::lock_guard<std::mutex> lock(loggers.mutex);
  return loggers.by_name.try_emplace(handler, "sharding-spec-" + handler)
      .first->second;
}

}  // namespace tessera::sharded_tensor
