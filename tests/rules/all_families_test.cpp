// Properties of the whole table: what has a rule, and what rows may say.
#include <gtest/gtest.h>
#include <rules/rows_of.h>

namespace tessera {
namespace {

std::vector<const c10::FunctionSchema*> all_schemas() {
  std::vector<const c10::FunctionSchema*> schemas;
  for (const auto& name : c10::Dispatcher::singleton().getAllOpNames()) {
    const auto op = c10::Dispatcher::singleton().findSchema(name);
    if (op && name.name.rfind("aten::", 0) == 0) {
      schemas.push_back(&op->schema());
    }
  }
  return schemas;
}

// Overloads by name, so that looking for variants is not quadratic.
const detail::OverloadsFn& indexed_overloads() {
  static const auto* index = [] {
    auto* made =
        new std::map<std::string, std::vector<const c10::FunctionSchema*>>();
    for (const c10::FunctionSchema* schema : all_schemas()) {
      (*made)[schema->name()].push_back(schema);
    }
    return made;
  }();
  static const detail::OverloadsFn kFind = [](const std::string& name) {
    const auto at = index->find(name);
    return at == index->end() ? std::vector<const c10::FunctionSchema*>()
                              : at->second;
  };
  return kFind;
}

const detail::Rule* rule_of(const c10::FunctionSchema& schema) {
  return detail::find_rule(rules(), schema, indexed_overloads()).rule;
}

TEST(AllFamilies, GiveMoreThanAThousandOverloadsARule) {
  int64_t count = 0;
  for (const c10::FunctionSchema* schema : all_schemas()) {
    count += rule_of(*schema) != nullptr;
  }
  EXPECT_GT(count, 1300);
}

TEST(AllFamilies, NameOperatorsThatExist) {
  for (const RuleInfo& info : rules().list()) {
    if (info.name.rfind("aten::", 0) != 0) {
      continue;
    }
    const size_t dot = info.name.find('.');
    const bool all = dot != std::string::npos && info.name.ends_with(".*");
    const std::string base = info.name.substr(0, dot);
    const std::string overload =
        dot == std::string::npos ? "" : info.name.substr(dot + 1);
    bool found = false;
    for (const char* suffix : {"", "_"}) {
      for (const auto* schema : indexed_overloads()(base + suffix)) {
        found = found || all || schema->overload_name() == overload;
      }
    }
    EXPECT_TRUE(found) << info.name;
  }
}

// Every foreach operator applies one of the pointwise operators to each
// element, but for those that read a tensor of scalars.
TEST(AllFamilies, ForeachVariantsHoldPerElement) {
  for (const c10::FunctionSchema* schema : all_schemas()) {
    if (schema->name().rfind("aten::_foreach_", 0) != 0) {
      continue;
    }
    const bool reads_scalars =
        schema->overload_name().rfind("Tensor", 0) == 0 &&
        schema->name().find("addc") != std::string::npos;
    const auto found = detail::find_rule(rules(), *schema, indexed_overloads());
    if (found.rule != nullptr) {
      EXPECT_EQ(found.per_element, !reads_scalars) << *schema;
    }
  }
}

}  // namespace
}  // namespace tessera
