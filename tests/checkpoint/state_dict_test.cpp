#include <gtest/gtest.h>
#include <tessera/checkpoint/state_dict.h>

#include <checkpoint/leaves.h>
#include <torch/torch.h>

namespace {

using tessera::checkpoint::Bytes;
using tessera::checkpoint::StateDict;
using tessera::checkpoint::StateValue;
using tessera::detail::Leaf;
using tessera::detail::leaves_of;
using Kind = StateValue::Kind;

std::vector<std::string> names_of(StateDict& dict) {
  std::vector<std::string> names;
  for (const Leaf& leaf : leaves_of("test", dict)) {
    names.push_back(leaf.name);
  }
  return names;
}

TEST(StateValue, HasTheKindOfWhatItWasMadeOf) {
  EXPECT_EQ(StateValue().kind(), Kind::kNone);
  EXPECT_EQ(StateValue(true).kind(), Kind::kBool);
  EXPECT_EQ(StateValue(3).kind(), Kind::kInteger);
  EXPECT_EQ(StateValue(3.5F).kind(), Kind::kFloat);
  EXPECT_EQ(StateValue("text").kind(), Kind::kString);
  EXPECT_EQ(StateValue(std::string("text")).kind(), Kind::kString);
  EXPECT_EQ(StateValue(Bytes{"\xff"}).kind(), Kind::kBytes);
  EXPECT_EQ(StateValue(torch::ones(2)).kind(), Kind::kTensor);
  EXPECT_EQ(StateValue(StateValue::List{1, "a"}).kind(), Kind::kList);
  EXPECT_EQ(StateValue(StateDict{{"a", 1}}).kind(), Kind::kDict);
}

TEST(StateValue, SaysWhatItIsWhereItIsAskedForAnotherKind) {
  try {
    StateValue("text").to_int();
    FAIL();
  } catch (const c10::TypeError& error) {
    EXPECT_NE(
        std::string(error.what())
            .find("asked for an integer, and it is a string"),
        std::string::npos)
        << error.what();
  }
  EXPECT_EQ(StateValue(3).to_double(), 3.0);
}

TEST(StateDict, KeepsTheOrderAndFindsNames) {
  StateDict dict{{"b", 1}, {"a", 2}};
  dict["c"] = 3;
  dict.set("b", 4);
  EXPECT_EQ(names_of(dict), (std::vector<std::string>{"b", "a", "c"}));
  EXPECT_EQ(dict.at("b").to_int(), 4);
  EXPECT_FALSE(dict.contains("d"));
  try {
    dict.at("d");
    FAIL();
  } catch (const c10::IndexError& error) {
    EXPECT_NE(
        std::string(error.what())
            .find("no value is called 'd'; there are 'b', "),
        std::string::npos)
        << error.what();
  }
}

TEST(StateDict, LeavesAreNamedByTheirPath) {
  StateDict dict{
      {"a",
       StateDict{{"w", torch::ones(1)}, {"betas", StateValue::List{1, 2}}}},
      {"l", StateValue::List{torch::ones(1), 3}},
      {"empty", StateDict()}};
  EXPECT_EQ(
      names_of(dict),
      (std::vector<std::string>{"a.w", "a.betas", "l.0", "l.1", "empty"}));
}

TEST(StateDict, TwoLeavesOfOneNameAreAnError) {
  StateDict dict{{"a.b", 1}, {"a", StateDict{{"b", 2}}}};
  EXPECT_THROW(names_of(dict), c10::ValueError);
  EXPECT_THROW((StateDict{{"a", 1}, {"a", 2}}), c10::ValueError);
}

}  // namespace
