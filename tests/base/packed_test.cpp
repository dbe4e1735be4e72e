#include <base/packed.h>

#include <gtest/gtest.h>

#include <cstdint>
#include <functional>

namespace tessera::base {
namespace {

std::string problem_of(const std::function<void()>& call) {
  try {
    call();
  } catch (const PackedError& error) {
    return error.what();
  }
  return "";
}

TEST(PackedTest, WhatIsWrittenIsRead) {
  const std::vector<uint64_t> numbers{0,     1,          127,       128,
                                      16383, 16384,      1U << 31,  INT64_MAX,
                                      300,   UINT64_MAX, 1ULL << 63};
  const std::vector<int64_t> list{3, -1, INT64_MIN, INT64_MAX};
  PackedWriter out;
  for (const uint64_t number : numbers) {
    out.number(number);
  }
  out.text("");
  out.text(std::string("a\0b", 3));
  out.numbers(list);
  out.numbers({});
  const std::string bytes = out.take();
  PackedReader in(bytes);
  for (const uint64_t number : numbers) {
    EXPECT_EQ(in.number(), number);
  }
  EXPECT_EQ(in.text(), "");
  EXPECT_EQ(in.text(), std::string("a\0b", 3));
  EXPECT_EQ(in.numbers(), list);
  EXPECT_EQ(in.numbers(), std::vector<int64_t>());
  in.finish();
  EXPECT_EQ(out.take(), "") << "empty again";
}

TEST(PackedTest, TheExampleOfTheHeader) {
  PackedWriter out;
  out.number(300);
  out.text("w");
  EXPECT_EQ(out.take(), "\xac\x02\x01w");
}

TEST(PackedTest, OtherBytesAreRefused) {
  const auto number = [](const std::string& bytes) {
    return problem_of([&] { PackedReader(bytes).number(); });
  };
  EXPECT_EQ(number(""), "a number does not end");
  EXPECT_EQ(number("\xac"), "a number does not end");
  EXPECT_EQ(number(std::string(11, '\xff')), "a number does not end");
  EXPECT_EQ(
      problem_of([] {
        PackedReader(
            "\x03"
            "ab")
            .text();
      }),
      "a text or a list is longer than what follows");
  // 2^63 numbers: no memory is taken for them.
  EXPECT_EQ(
      problem_of(
          [] { PackedReader(std::string(9, '\x80') + "\x01").numbers(); }),
      "a text or a list is longer than what follows");
  EXPECT_EQ(
      problem_of([] { PackedReader("x").finish(); }),
      "something follows the end");
}

}  // namespace
}  // namespace tessera::base
