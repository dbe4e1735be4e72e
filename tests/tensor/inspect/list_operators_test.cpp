// What list_operators() says of operators whose form is known.
#include <algorithm>
#include <map>
#include <string>

#include <gtest/gtest.h>
#include <tessera/rules/rule_table.h>
#include <tessera/tensor/operators.h>
#include <torch/library.h>

namespace tessera {
namespace {

OperatorInfo find(const std::string& name) {
  for (const OperatorInfo& info : list_operators()) {
    if (info.name == name) {
      return info;
    }
  }
  return {};
}

TEST(ListOperators, NamesTheEntryThatServes) {
  const std::map<std::string, std::pair<std::string, std::string>> expected{
      {"aten::mm", {"factors", "aten::mm.*"}},
      {"aten::mm.out", {"factors", "aten::mm.*"}},
      {"aten::add_.Tensor", {"pointwise", "aten::add.*"}},
      {"aten::_foreach_add_.List", {"pointwise", "aten::add.*"}},
      {"aten::sum.dim_IntList", {"reduction", "aten::sum.*"}},
      {"aten::view", {"view", "aten::view"}},
      {"aten::detach", {"kernel", ""}},
      {"aten::copy_", {"kernel", ""}},
      {"aten::normal_", {"random", ""}},
      {"aten::native_dropout", {"random", ""}},
      {"aten::matmul", {"composite", ""}},
      {"aten::dropout", {"composite", ""}},
      {"aten::linalg_lstsq", {"whole", "aten::linalg_lstsq"}},
      {"aten::unique_dim", {"fallback", ""}},
  };
  for (const auto& [name, form_and_rule] : expected) {
    const OperatorInfo info = find(name);
    EXPECT_EQ(info.form, form_and_rule.first) << name;
    EXPECT_EQ(info.rule, form_and_rule.second) << name;
  }
  EXPECT_EQ(find("aten::mm").text.rfind("mk,kn->mn", 0), 0U);
}

TEST(ListOperators, SaysWhereCallsMayBeMadeOfOthers) {
  const OperatorInfo softmax = find("aten::_softmax");
  EXPECT_EQ(softmax.form, "along");
  EXPECT_TRUE(softmax.text.ends_with("+ decomposed")) << softmax.text;
  EXPECT_FALSE(find("aten::mm").text.ends_with("+ decomposed"));
}

TEST(ListOperators, AreSortedAndTakeTensors) {
  const auto all = list_operators();
  EXPECT_TRUE(std::is_sorted(
      all.begin(), all.end(),
      [](const auto& a, const auto& b) { return a.name < b.name; }));
  EXPECT_EQ(find("aten::zeros").name, "");
  EXPECT_EQ(find("aten::zeros_like").name, "aten::zeros_like");
}

TEST(ListOperators, FollowTheTableAndTheLibrariesThatAreLoaded) {
  EXPECT_EQ(find("ops_list::twice").name, "");
  torch::Library library(
      torch::Library::DEF, "ops_list", std::nullopt, __FILE__, __LINE__);
  library.def("twice(Tensor self) -> Tensor");
  EXPECT_EQ(find("ops_list::twice").form, "fallback");
  rules().pointwise({"ops_list::twice"}).also("sum: P->P");
  const OperatorInfo twice = find("ops_list::twice");
  EXPECT_EQ(twice.form, "pointwise");
  EXPECT_EQ(twice.rule, "ops_list::twice");
  EXPECT_EQ(twice.text, "sum: P->P");
  rules().remove("ops_list::twice");
  rules().whole({"ops_list::twice"});
  EXPECT_EQ(find("ops_list::twice").form, "whole");
  EXPECT_FALSE(is_rule_form("whole"));
  rules().remove("ops_list::twice");
}

TEST(ListOperators, ServeAThousandOverloadsByRules) {
  std::map<std::string, int64_t> counts;
  int64_t ruled = 0;
  for (const OperatorInfo& info : list_operators()) {
    if (info.name.rfind("aten::", 0) == 0) {
      ++counts[info.form];
      ruled += is_rule_form(info.form);
    }
  }
  for (const auto& [form, count] : counts) {
    RecordProperty(form, std::to_string(count));
  }
  EXPECT_GE(ruled, 1000);
}

}  // namespace
}  // namespace tessera
