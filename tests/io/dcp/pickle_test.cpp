#include <gtest/gtest.h>

#include <functional>
#include <limits>

#include <io/dcp/pickle_tree.h>
#include <io/dcp/pickle_value.h>
#include <io/dcp/pickle_writer.h>
#include <io/files/error.h>

namespace tessera::detail {
namespace {

using io::Value;

std::string problem_of(const std::string& pickle) {
  try {
    const PickleTree tree("file", pickle);
    value_of(tree, tree.root());
  } catch (const io::Error& error) {
    EXPECT_EQ(error.kind(), io::ErrorKind::kCorrupt);
    return error.what();
  }
  return "no error";
}

Value read(const std::string& pickle) {
  const PickleTree tree("file", pickle);
  return value_of(tree, tree.root());
}

TEST(PickleTest, ReadsBackWhatItWrites) {
  const Value value = Value::dict(
      {Value::string("a"),
       Value::list(
           {Value::integer(0), Value::integer(-1), Value::integer(INT32_MAX),
            Value::integer(INT32_MIN), Value::integer(INT64_MAX),
            Value::integer(INT64_MIN)}),
       Value::integer(3), Value::tuple({}), Value(), Value::floating(0.1),
       Value::boolean(true),
       Value::floating(-std::numeric_limits<double>::infinity()),
       Value::bytes(std::string("\0\x7f\x80\xff", 4)),
       Value::tuple(
           {Value::string("a"), Value::string("h\xc3\xa9"),
            Value::boolean(false), Value::dict({})})});
  EXPECT_EQ(read(PickleWriter().value(value).take()), value);
}

TEST(PickleTest, RemembersTextsAndGlobals) {
  std::vector<Value> items;
  for (int i = 0; i < 300; ++i) {
    items.push_back(Value::string("text " + std::to_string(i)));
    items.push_back(Value::string("the same long text, again and again"));
  }
  const std::string pickle = PickleWriter().value(Value::list(items)).take();
  EXPECT_LT(pickle.size(), 300u * 20 + 600);
  EXPECT_EQ(read(pickle), Value::list(items));
}

// What Python 3 writes for {"a": (1, 2**40, -5), "b": [2.5]} in protocol 4.
TEST(PickleTest, ReadsFramesMemosAndLongIntegers) {
  const std::string pickle(
      "\x80\x04\x95\x2a\0\0\0\0\0\0\0}\x94(\x8c\x01"
      "a\x94K\x01\x8a\x06\0\0\0\0"
      "\0\x01J\xfb\xff\xff\xff\x87\x94\x8c\x01"
      "b\x94]\x94G@\x04\0\0\0\0\0\0"
      "au.",
      53);
  EXPECT_EQ(
      read(pickle),
      Value::dict(
          {Value::string("a"),
           Value::tuple(
               {Value::integer(1), Value::integer(int64_t{1} << 40),
                Value::integer(-5)}),
           Value::string("b"), Value::list({Value::floating(2.5)})}));
}

TEST(PickleTest, RefusesPicklesThatBreakARule) {
  const auto bytes = [](std::string_view text) { return std::string(text); };
  const std::vector<std::pair<std::string, std::string>> cases = {
      {"", "ends early"},
      {"\x80", "ends early"},
      {"\x80\x01N.", "protocol 1"},
      {"\x80\x06N.", "protocol 6"},
      {".", "ends with 0 values"},
      {"NN.", "ends with 2 values"},
      {"(N.", "ends with"},
      {"N.x", "goes on after its end"},
      {"N", "ends early"},
      {"I1\n.", "the opcode 73"},             // text integers
      {"S'a'\n.", "the opcode 83"},           // text strings
      {"(ios\nsystem\n.", "the opcode 105"},  // INST
      {"\x90.", "the opcode 144"},            // sets
      {"N0.", "the opcode 48"},               // POP
      {"cos\nsystem", "ends early"},
      {"t.", "takes a mark"},
      {"\x85.", "takes a value"},
      {"(\x85.", "takes a value"},
      {"N(\x85.", "takes a value"},  // not what lies below the mark
      {"Na.", "adds to nothing"},
      {"NNa.", "no list or dict"},
      {"}NNNu.", "takes a mark"},
      {"}(Nu.", "a key without a value"},
      {"](Nu.", "a key without a value"},
      {"](NNu.", "no list or dict"},
      {"(NNu.", "adds to nothing"},
      {"NNR.", "calls what is no global"},
      {"ca\nb\nNR.", "without a tuple"},
      {"NN\x93.", "names a global by what is no text"},
      {"NNb.", "gives a state"},
      {"ca\nb\n)RNbNb.", "gives a state"},
      {"h\x05.", "recalls"},
      {"Nq\x7f.", "gaps in its memo"},
      {bytes("X\xff\xff\xff\xff"
             "a."),
       "ends early"},
      {bytes("\x8d\xff\xff\xff\xff\xff\xff\xff\xff"
             "a."),
       "ends early"},
      {bytes("\x8b\xff\xff\xff\xff"
             "a."),
       "ends early"},
      {bytes("\x95\xff\xff\xff\xff\xff\xff\xff\xffN."), "ends early"},
  };
  for (const auto& [pickle, expected] : cases) {
    const std::string found = problem_of(pickle);
    EXPECT_NE(found.find(expected), std::string::npos) << expected << found;
  }
}

TEST(PickleTest, SharedValuesAreNotUnfoldedForEver) {
  // Each list holds the one before it twice: 2^200 leaves.
  std::string pickle = "(]q";
  pickle.push_back('\0');
  for (int i = 0; i < 200; ++i) {
    const auto memo = static_cast<char>(i);
    pickle += std::string("](h") + memo + "h" + memo + "eq" +
              static_cast<char>(i + 1);
  }
  EXPECT_NE(
      problem_of(pickle + "t.").find("again and again"), std::string::npos);
  // A list in itself ends at the limit of depth.
  EXPECT_EQ(problem_of(std::string("]q\0h\0a.", 7)), "no error");
}

TEST(PickleTest, DeepNestingNeedsNoDeepStack) {
  std::string pickle;
  for (int i = 0; i < 1000000; ++i) {
    pickle += ")";
  }
  for (int i = 0; i < 999999; ++i) {
    pickle += "\x86";
  }
  const PickleTree tree("file", pickle + ".");
  EXPECT_EQ(tree.kind(tree.root()), PickleKind::kTuple);
  EXPECT_NE(value_of(tree, tree.root()), Value());
}

TEST(PickleTest, BytesThatAreNoLatin1AreRefused) {
  PickleWriter out;
  out.global("_codecs", "encode").begin_tuple().string("\xe2\x9c\x93");
  out.string("latin1").end_tuple().reduce();
  EXPECT_NE(problem_of(out.take()).find("not latin1"), std::string::npos);
}

TEST(PickleTest, TorchSizeAndOrderedDictArePlain) {
  PickleWriter out;
  out.begin_tuple().torch_size({2, 3});
  out.global("collections", "OrderedDict").empty_tuple().reduce();
  const Value value = read(out.end_tuple().take());
  EXPECT_EQ(
      value, Value::tuple(
                 {Value::tuple({Value::integer(2), Value::integer(3)}),
                  Value::dict({})}));
}

TEST(PickleTest, GlobalsAreNamesAndNothingElse) {
  PickleWriter out;
  out.global("os", "system").begin_tuple().string("false").end_tuple();
  const Value value = read(out.reduce().take());
  EXPECT_EQ(value.kind(), Value::Kind::kOpaque);
  EXPECT_EQ(value.opaque_text(), "os.system");
}

}  // namespace
}  // namespace tessera::detail
