#include <base/json.h>

#include <gtest/gtest.h>

#include <cmath>
#include <cstring>
#include <functional>
#include <limits>
#include <random>

namespace tessera::base {
namespace {

std::string problem_of(const std::string& text, size_t depth = 64) {
  try {
    JsonReader in(text, depth);
    in.skip_value();
    in.finish();
  } catch (const JsonError& error) {
    return error.what();
  }
  return "";
}

TEST(JsonWriterTest, PrintsOneTextPerContent) {
  JsonWriter out;
  out.begin_object().key("a").integer(-3).key("b").begin_array();
  out.boolean(true).null().string("x\"\\\n\x01\x7f\xc3\xa9").end_array();
  out.key("c").begin_object().end_object();
  out.key("d").unsigned_integer(UINT64_MAX).key("e").integers({1, 2});
  EXPECT_EQ(
      out.end_object().take(),
      "{\"a\":-3,\"b\":[true,null,\"x\\\"\\\\\\n\\u0001\\u007f\xc3\xa9\"],"
      "\"c\":{},\"d\":18446744073709551615,\"e\":[1,2]}");
  EXPECT_EQ(out.integer(1).take(), "1");  // empty again
}

TEST(JsonWriterTest, DoublesReadBackBitForBit) {
  std::mt19937_64 random(7);
  for (int i = 0; i < 20000; ++i) {
    const uint64_t bits = random();
    double value = 0;
    std::memcpy(&value, &bits, sizeof(value));
    if (!std::isfinite(value)) {
      continue;
    }
    const std::string text = JsonWriter().number(value).take();
    JsonReader in(text);
    EXPECT_EQ(in.peek(), JsonKind::kNumber) << text;
    const double back = in.read_number();
    EXPECT_EQ(std::memcmp(&back, &value, sizeof(value)), 0) << text;
  }
  EXPECT_EQ(JsonWriter().number(2).take(), "2.0");
  EXPECT_EQ(JsonWriter().number(-0.0).take(), "-0.0");
  EXPECT_THROW(
      JsonWriter().number(std::numeric_limits<double>::infinity()),
      std::invalid_argument);
}

TEST(JsonReaderTest, ReadsObjectsByKey) {
  JsonReader in(" { \"a\" : [1, 2] , \"b\" : {\"c\":null}, \"d\":-1.5e3 } ");
  std::vector<std::string> keys;
  in.begin_object();
  while (in.next_key()) {
    keys.push_back(in.key());
    if (in.key() == "a") {
      EXPECT_EQ(in.read_integers(), (std::vector<int64_t>{1, 2}));
    } else if (in.key() == "d") {
      EXPECT_EQ(in.read_number(), -1500);
    } else {
      in.skip_value();
    }
  }
  in.finish();
  EXPECT_EQ(keys, (std::vector<std::string>{"a", "b", "d"}));
}

TEST(JsonReaderTest, ReadsEscapesAsUtf8) {
  JsonReader in(R"("\u0041\u00e9\u2713\ud83d\ude00\b\f\n\r\t\/\"\\")");
  EXPECT_EQ(
      in.read_string(), "A\xc3\xa9\xe2\x9c\x93\xf0\x9f\x98\x80\b\f\n\r\t/\"\\");
}

TEST(JsonReaderTest, TakesWhatTheGrammarHas) {
  for (const char* text :
       {"0", "-0", "1.5", "1e5", "1E+5", "1e-5", "true", "false", "null",
        "\"\"", "[]", "{}", "[[],{}]", "[1 , 2]", "{\"a\":1,\"b\":[{}]}",
        "\t1\r\n", "123456789012345678901234567890"}) {
    EXPECT_EQ(problem_of(text), "") << text;
  }
}

TEST(JsonReaderTest, RefusesEverythingElse) {
  const std::vector<std::pair<std::string, std::string>> cases = {
      {"", "ends early"},
      {"01", "begins with 0"},
      {"-", "expected a digit"},
      {"1.", "expected a digit"},
      {"1e", "expected a digit"},
      {".5", "expected a value"},
      {"+1", "expected a value"},
      {"NaN", "expected a value"},
      {"tru", "expected a value"},
      {"[1,]", "expected a value"},
      {"[1 2]", "expected ','"},
      {"[1", "ends early"},
      {"{\"a\":1,}", "expected '\"'"},
      {"{\"a\" 1}", "expected ':'"},
      {"{a:1}", "expected '\"'"},
      {"{\"a\":1,\"b\":2,\"a\":3}", "two equal keys"},
      {"{\"a\":1,\"\\u0061\":3}", "two equal keys"},
      {"\"abc", "does not end"},
      {"\"a\nb\"", "control character"},
      {"\"\\x41\"", "unknown escape"},
      {"\"\\u12g4\"", "four hexadecimal digits"},
      {"\"\\ud800\"", "half of a surrogate pair"},
      {"\"\\udc00\"", "half of a surrogate pair"},
      {"\"\\ud800\\u0041\"", "half of a surrogate pair"},
      {"\"\xff\"", "not UTF-8"},
      {"\"\xc0\x80\"", "not UTF-8"},          // overlong
      {"\"\xed\xa0\x80\"", "not UTF-8"},      // a surrogate
      {"\"\xf4\x90\x80\x80\"", "not UTF-8"},  // beyond U+10FFFF
      {"\"\xe2\x9c\"", "not UTF-8"},
      {"1 2", "more text"},
      {"/**/1", "expected a value"},
  };
  for (const auto& [text, problem] : cases) {
    EXPECT_NE(problem_of(text).find(problem), std::string::npos)
        << text << ": " << problem_of(text);
  }
}

TEST(JsonReaderTest, NestsAsDeepAsAllowedWithoutRecursion) {
  EXPECT_EQ(problem_of("[[[]]]", 3), "");
  EXPECT_NE(problem_of("[[[]]]", 2).find("deeper than 2"), std::string::npos);
  const std::string deep(1000000, '[');
  EXPECT_NE(problem_of(deep).find("deeper than 64"), std::string::npos);
  EXPECT_NE(problem_of(deep, 2000000).find("ends early"), std::string::npos);
}

TEST(JsonReaderTest, IntegersHave64Bits) {
  const auto integer = [](const std::string& text) {
    return JsonReader(text).read_integer();
  };
  EXPECT_EQ(integer("-9223372036854775808"), INT64_MIN);
  EXPECT_EQ(integer("9223372036854775807"), INT64_MAX);
  EXPECT_THROW(integer("9223372036854775808"), JsonError);
  EXPECT_THROW(integer("1.0"), JsonError);
  EXPECT_EQ(JsonReader("18446744073709551615").read_unsigned(), UINT64_MAX);
  EXPECT_THROW(JsonReader("-1").read_unsigned(), JsonError);
  EXPECT_THROW(JsonReader("1e999").read_number(), JsonError);
}

TEST(IsUtf8Test, AgreesWithTheTable) {
  EXPECT_TRUE(is_utf8("abc\xc3\xa9\xe2\x9c\x93\xf0\x9f\x98\x80"));
  EXPECT_FALSE(is_utf8("\x80"));
  EXPECT_FALSE(is_utf8("\xe0\x9f\xbf"));
  EXPECT_FALSE(is_utf8("\xf0\x8f\xbf\xbf"));
}

}  // namespace
}  // namespace tessera::base
