#include <tessera/rules/rule_table.h>

#include <atomic>
#include <map>
#include <mutex>

#include <base/text.h>
#include <c10/util/Exception.h>
#include <rules/all_rules.h>
#include <rules/rule_entry.h>

namespace tessera {

namespace {
using detail::Cells;
}  // namespace

using detail::Rule;

/// Entries by name. Rules that were removed stay, since ranks that are threads
/// may be running one.
struct RuleTable::State {
  mutable std::mutex mutex;
  std::map<std::string, std::shared_ptr<Rule>, std::less<>> entries;
  std::vector<std::shared_ptr<Rule>> removed;
};

namespace {

void changed() {
  detail::rules_generation.fetch_add(1, std::memory_order_release);
}

Rule of_form(const char* form, std::string_view text) {
  Rule rule;
  rule.form = form;
  rule.text = std::string(text);
  return rule;
}

std::string text_of(const std::vector<std::vector<Placement>>& rows) {
  std::string text;
  for (const auto& row : rows) {
    text += (text.empty() ? "" : "; ") + base::join(row, ", ");
  }
  return text;
}

}  // namespace

std::string to_string(const RuleInfo& info) {
  return info.name + " " + info.form +
         (info.text.empty() ? "" : " " + info.text);
}

RuleTable::RuleTable() : state_(std::make_unique<State>()) {}
RuleTable::~RuleTable() = default;

RuleGroup RuleTable::add(
    const std::vector<std::string>& names, const Rule& like) {
  RuleGroup group;
  const std::lock_guard<std::mutex> lock(state_->mutex);
  for (const std::string& name : names) {
    TORCH_CHECK_VALUE(
        name.find("::") != std::string::npos, "rules().", like.form,
        ": a name must have a namespace, as in 'aten::mm'; got '", name, "'");
    const auto at = state_->entries.find(name);
    TORCH_CHECK_VALUE(
        at == state_->entries.end(), "rules().", like.form, ": '", name,
        "' has a rule already: ", at->second->form, " ", at->second->text,
        "; remove() it first");
  }
  for (const std::string& name : names) {
    auto& entry = state_->entries[name];
    entry = std::make_shared<Rule>(like);
    entry->name = name;
    group.rules_.push_back(entry.get());
  }
  changed();
  return group;
}

RuleGroup RuleTable::factors(std::string_view name, std::string_view text) {
  Rule rule = of_form("factors", text);
  rule.rows = detail::factor_rows(text, std::nullopt);
  rule.ignores_arguments = true;
  return add({std::string(name)}, rule);
}

RuleGroup RuleTable::pointwise(std::vector<std::string> names) {
  Rule rule = of_form("pointwise", "");
  rule.rows = detail::pointwise_rows;
  rule.ignores_arguments = true;
  rule.is_pointwise = true;
  rule.strides = detail::ResultStrides::kLikeOperands;
  return add(names, rule);
}

RuleGroup RuleTable::reduction(std::vector<std::string> names, ReduceOp op) {
  Rule rule = of_form("reduction", to_string(op));
  rule.rows = detail::reduction_rows(op);
  return add(names, rule);
}

RuleGroup RuleTable::reduction(std::vector<std::string> names) {
  Rule rule = of_form("reduction", "");
  rule.rows = detail::reduction_rows(std::nullopt);
  return add(names, rule);
}

RuleGroup RuleTable::along(std::vector<std::string> names) {
  Rule rule = of_form("along", "");
  rule.rows = detail::along_rows;
  return add(names, rule);
}

RuleGroup RuleTable::leading(std::vector<std::string> names, int64_t trailing) {
  Rule rule = of_form("leading", std::to_string(trailing));
  rule.rows = detail::leading_rows(trailing);
  return add(names, rule);
}

RuleGroup RuleTable::rows(
    std::string_view name, std::vector<std::vector<Placement>> rows) {
  Rule rule = of_form("rows", text_of(rows));
  rule.ignores_arguments = true;
  rule.rows = [rows = std::move(rows)](const RuleCall& call, Rows& out) {
    const auto outputs = static_cast<std::ptrdiff_t>(call.output_count());
    for (const auto& row : rows) {
      TORCH_CHECK_VALUE(
          row.size() == call.output_count() + call.operands().size(),
          call.schema().name(), ": a row of its rule must list ",
          call.output_count(), " outputs and ", call.operands().size(),
          " operands; got ", base::join(row, ", "));
      out.add(
          Cells(row.begin(), row.begin() + outputs),
          Cells(row.begin() + outputs, row.end()));
    }
  };
  return add({std::string(name)}, rule);
}

RuleGroup RuleTable::rows(std::vector<std::string> names, RowsFn rows) {
  Rule rule = of_form("function", "");
  rule.rows = std::move(rows);
  return add(names, rule);
}

RuleGroup RuleTable::rows(std::string_view name, RowsFn fn) {
  return rows(std::vector<std::string>{std::string(name)}, std::move(fn));
}

RuleGroup RuleTable::view(std::vector<std::string> names, ViewFn layout) {
  Rule rule = of_form("view", "");
  rule.view = std::move(layout);
  return add(names, rule);
}

RuleGroup RuleTable::whole(std::vector<std::string> names) {
  Rule rule = of_form("whole", "");
  rule.rows = [](const RuleCall&, Rows&) {};
  rule.ignores_arguments = true;
  return add(names, rule);
}

void RuleTable::remove(std::string_view name) {
  const std::lock_guard<std::mutex> lock(state_->mutex);
  const auto at = state_->entries.find(name);
  if (at != state_->entries.end()) {
    state_->removed.push_back(std::move(at->second));
    state_->entries.erase(at);
    changed();
  }
}

std::vector<RuleInfo> RuleTable::list() const {
  const std::lock_guard<std::mutex> lock(state_->mutex);
  std::vector<RuleInfo> infos;
  for (const auto& [name, rule] : state_->entries) {
    infos.push_back({name, rule->form, rule->text});
  }
  return infos;
}

RuleGroup& RuleGroup::also(std::string_view text) {
  const detail::PartialRow row = detail::parse_partial_row(text);
  for (Rule* rule : rules_) {
    rule->partial_rows.push_back(row);
    rule->text += (rule->text.empty() ? "" : "; ") + std::string(text);
  }
  changed();
  return *this;
}

RuleGroup& RuleGroup::also(RowsFn more) {
  for (Rule* rule : rules_) {
    rule->rows = [first = std::move(rule->rows), more](
                     const RuleCall& call, Rows& rows) {
      first(call, rows);
      more(call, rows);
    };
    rule->ignores_arguments = false;
  }
  changed();
  return *this;
}

RuleGroup& RuleGroup::instead(RowsFn fn) {
  for (Rule* rule : rules_) {
    rule->rows = fn;
    rule->ignores_arguments = false;
  }
  changed();
  return *this;
}

RuleGroup& RuleGroup::bias(size_t operand) {
  for (Rule* rule : rules_) {
    TORCH_CHECK_VALUE(
        rule->form == "factors", "RuleGroup::bias: only factors have one; ",
        rule->name, " is of form ", rule->form);
    rule->bias = operand;
    rule->rows = detail::factor_rows(rule->text, rule->bias);
  }
  changed();
  return *this;
}

RuleGroup& RuleGroup::shape_argument(std::string_view name) {
  for (Rule* rule : rules_) {
    rule->shape_argument = std::string(name);
    rule->ignores_arguments = false;
  }
  changed();
  return *this;
}

RuleGroup& RuleGroup::size_argument(
    std::string_view name, size_t operand, int64_t dim) {
  for (Rule* rule : rules_) {
    rule->size_arguments.push_back({std::string(name), operand, dim});
    rule->ignores_arguments = false;
  }
  changed();
  return *this;
}

RuleGroup& RuleGroup::not_empty() {
  for (Rule* rule : rules_) {
    rule->not_empty = true;
  }
  changed();
  return *this;
}

RuleGroup& RuleGroup::channels_last() {
  return set_strides(detail::ResultStrides::kChannelsLast);
}

RuleGroup& RuleGroup::like_operands() {
  return set_strides(detail::ResultStrides::kLikeOperands);
}

RuleGroup& RuleGroup::contiguous() {
  return set_strides(detail::ResultStrides::kContiguous);
}

RuleGroup& RuleGroup::set_strides(detail::ResultStrides strides) {
  for (Rule* rule : rules_) {
    rule->strides = strides;
  }
  changed();
  return *this;
}

RuleGroup& RuleGroup::local(detail::RunBy kernel) {
  for (Rule* rule : rules_) {
    rule->local = kernel;
  }
  changed();
  return *this;
}

RuleTable& rules() {
  static auto* table = [] {
    auto* made = new RuleTable();  // for threads that outlive main()
    detail::add_all_rules(*made);
    return made;
  }();
  return *table;
}

namespace detail::inline rules_layer {

const Rule* lookup_rule(const RuleTable& table, std::string_view name) {
  const RuleTable::State& state = table.state();
  const std::lock_guard<std::mutex> lock(state.mutex);
  const auto at = state.entries.find(name);
  return at == state.entries.end() ? nullptr : at->second.get();
}

std::atomic<uint64_t> rules_generation{1};

}  // namespace detail::inline rules_layer
}  // namespace tessera
