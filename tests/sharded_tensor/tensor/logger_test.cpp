#include <tessera/sharded_tensor/logger.h>

#include <thread>
#include <vector>

#include <gtest/gtest.h>

namespace tessera::sharded_tensor {
namespace {

// Checklist case 17.
TEST(ShardingSpecLoggerTest, test_get_or_create_logger) {
  Logger& logger = get_or_create_logger();
  EXPECT_EQ(logger.name(), "sharding-spec-null");
  EXPECT_EQ(logger.handler_count(), 1u);
  EXPECT_TRUE(logger.is_null());
  EXPECT_EQ(&get_or_create_logger("null"), &logger);
  EXPECT_EQ(get_or_create_logger().handler_count(), 1u);
  EXPECT_NE(&get_or_create_logger("other"), &logger);
  EXPECT_EQ(get_or_create_logger("other").name(), "sharding-spec-other");
}

TEST(Logger, HandsLinesToItsOneHandler) {
  Logger logger("lines");
  int made = 0;
  const auto line = [&] { return "line " + std::to_string(made++); };
  logger.debug(line);
  EXPECT_EQ(made, 0) << "the null handler wants no text";
  std::vector<std::string> first;
  std::vector<std::string> second;
  logger.set_handler([&](std::string_view text) { first.emplace_back(text); });
  logger.debug(line);
  logger.set_handler([&](std::string_view text) { second.emplace_back(text); });
  logger.debug(line);
  EXPECT_EQ(first, std::vector<std::string>{"line 0"});
  EXPECT_EQ(second, std::vector<std::string>{"line 1"});
  logger.set_handler(nullptr);
  logger.debug(line);
  EXPECT_EQ(made, 2);
}

TEST(Logger, AHandlerMayLogAndReplaceItself) {
  Logger logger("nested");
  std::vector<std::string> lines;
  logger.set_handler([&](std::string_view text) {
    lines.emplace_back(text);
    logger.set_handler(
        [&](std::string_view inner) { lines.emplace_back(inner); });
    logger.debug([] { return "inner"; });
  });
  logger.debug([] { return "outer"; });
  EXPECT_EQ(lines, (std::vector<std::string>{"outer", "inner"}));
}

TEST(Logger, ThreadsShareOne) {
  std::atomic<int64_t> lines = 0;
  std::vector<std::thread> threads;
  threads.reserve(4);
  for (int i = 0; i < 4; ++i) {
    threads.emplace_back([&] {
      Logger& logger = get_or_create_logger("threads");
      logger.set_handler([&](std::string_view) { ++lines; });
      for (int j = 0; j < 1000; ++j) {
        logger.debug([] { return "line"; });
      }
    });
  }
  for (std::thread& thread : threads) {
    thread.join();
  }
  EXPECT_EQ(lines, 4000);
}

}  // namespace
}  // namespace tessera::sharded_tensor
