// The table of rules beside its recorded list, so that a change of one rule
// that changes others is seen.
#include <fstream>
#include <set>
#include <string>

#include <gtest/gtest.h>
#include <tessera/rules/rule_table.h>

namespace tessera {
namespace {

TEST(GoldenRules, AreThoseOfTheTable) {
  std::multiset<std::string> recorded;
  std::ifstream file(TESSERA_GOLDEN_RULES);
  for (std::string line; std::getline(file, line);) {
    recorded.insert(line);
  }
  std::multiset<std::string> listed;
  for (const RuleInfo& info : rules().list()) {
    listed.insert(to_string(info));
  }
  constexpr const char* kAdvice =
      "; add or change the line in tests/golden/rules.txt, or write it anew: "
      "build/bin/tessera ops --rules > tests/golden/rules.txt";
  for (const std::string& line : listed) {
    EXPECT_TRUE(recorded.contains(line)) << "not recorded: " << line << kAdvice;
  }
  for (const std::string& line : recorded) {
    EXPECT_TRUE(listed.contains(line))
        << "not in the table: " << line << kAdvice;
  }
  EXPECT_EQ(recorded.size(), listed.size()) << kAdvice;
}

TEST(RuleInfo, PrintsNameFormAndText) {
  EXPECT_EQ(
      to_string(RuleInfo{"my::mm", "factors", "mk,kn->mn"}),
      "my::mm factors mk,kn->mn");
  EXPECT_EQ(to_string(RuleInfo{"my::f", "view", ""}), "my::f view");
}

}  // namespace
}  // namespace tessera
