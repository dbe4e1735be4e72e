// tessera ops: how each operator runs on sharded tensors, and the table of
// rules.
#include <unistd.h>

#include <CLI/CLI.hpp>
#include <nlohmann/json.hpp>

#include <algorithm>
#include <array>
#include <map>
#include <memory>
#include <string>
#include <vector>

#include <tessera/rules/rule_table.h>
#include <tessera/tensor/operators.h>

#include "cli/text/terminal.h"
#include "cli/text/text_table.h"
#include "command.h"

namespace tessera::cli {
namespace {

struct OpsOptions {
  std::string name, form;
  bool rules = false;
  bool json = false;
};

// Rules first, from the most to the least declarative; fallbacks last.
constexpr std::array<const char*, 14> kForms{
    "factors",    "pointwise", "reduction", "along",   "leading",
    "rows",       "function",  "view",      "kernel",  "random",
    "decomposed", "composite", "whole",     "fallback"};

void check_form(const std::string& form) {
  if (form.empty() ||
      std::find(kForms.begin(), kForms.end(), form) != kForms.end()) {
    return;
  }
  std::string known;
  for (const char* name : kForms) {
    known += (known.empty() ? "" : ", ") + std::string(name);
  }
  throw UsageError("there is no form '" + form + "'; there are: " + known);
}

std::vector<OperatorInfo> chosen(const OpsOptions& options) {
  std::vector<OperatorInfo> operators = list_operators();
  std::erase_if(operators, [&](const OperatorInfo& op) {
    return op.name.find(options.name) == std::string::npos ||
           (!options.form.empty() && op.form != options.form);
  });
  return operators;
}

nlohmann::ordered_json counts_of(const std::vector<OperatorInfo>& operators) {
  nlohmann::ordered_json counts = nlohmann::ordered_json::object();
  for (const char* form : kForms) {
    const auto count = std::count_if(
        operators.begin(), operators.end(),
        [&](const OperatorInfo& op) { return op.form == form; });
    if (count != 0) {
      counts[form] = count;
    }
  }
  return counts;
}

void print_table(const std::vector<OperatorInfo>& operators) {
  const Terminal terminal = detect_terminal(STDOUT_FILENO, false);
  TextTable table({"operator", "form", "gathers", "rule", "text"});
  for (const OperatorInfo& op : operators) {
    // The reasons are long: JSON has them.
    const std::string gathers = op.gathers.substr(0, op.gathers.find(':'));
    table.add({op.name, op.form, gathers, op.rule, op.text});
  }
  const std::string rows = operators.empty() ? "" : table.draw(terminal) + "\n";
  std::string text =
      counted(static_cast<int64_t>(operators.size()), "operator");
  const char* sign = ": ";
  const nlohmann::ordered_json counts = counts_of(operators);
  for (const auto& [form, count] : counts.items()) {
    text += sign + form + " " + with_commas(count.get<int64_t>());
    sign = ", ";
  }
  print(rows + wrapped(text + "\n", terminal));
}

void print_json(const std::vector<OperatorInfo>& operators) {
  auto list = nlohmann::ordered_json::array();
  for (const OperatorInfo& op : operators) {
    list.push_back(
        {{"name", op.name},
         {"form", op.form},
         {"gathers", op.gathers},
         {"rule", op.rule},
         {"text", op.text}});
  }
  const nlohmann::ordered_json json = {
      {"counts", counts_of(operators)}, {"operators", list}};
  print(json.dump() + "\n");
}

int list_rules(const OpsOptions& options) {
  std::string text;
  for (const RuleInfo& info : rules().list()) {
    const std::string line = to_string(info);
    if (line.find(options.name) != std::string::npos) {
      text += line + "\n";
    }
  }
  print(text);
  return 0;
}

int list_ops(const OpsOptions& options) {
  check_form(options.form);
  if (options.rules) {
    return list_rules(options);
  }
  const std::vector<OperatorInfo> operators = chosen(options);
  options.json ? print_json(operators) : print_table(operators);
  return 0;
}

void set_up_ops(CLI::App& ops, Invocation& invocation) {
  auto options = std::make_shared<OpsOptions>();
  ops.add_option("NAME", options->name, "only names that contain this");
  CLI::Option* form = ops.add_option(
      "--form", options->form, "only this form: pointwise, fallback, ...");
  CLI::Option* json = ops.add_flag("--json", options->json, "print JSON");
  ops.add_flag(
         "--rules", options->rules,
         "list the table of rules instead: a line per entry, its name, form "
         "and text")
      ->excludes(form)
      ->excludes(json);
  ops.callback(
      [options, &invocation] { invocation.exit_code = list_ops(*options); });
}

const Command kOps{"ops", &set_up_ops};

}  // namespace
}  // namespace tessera::cli
