// The declarative forms: what each makes of a call.
#include <algorithm>
#include <cctype>
#include <map>

#include <c10/util/Exception.h>
#include <rules/rule_entry.h>

namespace tessera::detail::inline rules_layer {

namespace {

Cells replicated(size_t count) {
  return Cells(count, Cell());
}

// "mk,kn->mn" taken apart: letters per tensor.
struct Letters {
  std::vector<std::string> operands;
  std::vector<std::string> outputs;
};

std::vector<std::string> split(std::string_view text) {
  std::vector<std::string> parts(1);
  for (const char c : text) {
    if (c == ',') {
      parts.emplace_back();
    } else if (c != ' ') {
      parts.back() += c;
    }
  }
  return parts;
}

// Letters and dots, no letter twice: that would be a diagonal, of which a cut
// has no part.
void check_letters(const std::string& letters, std::string_view text) {
  const auto is_letter = [](char c) {
    return std::isalpha(static_cast<unsigned char>(c)) != 0;
  };
  TORCH_CHECK_VALUE(
      std::all_of(
          letters.begin(), letters.end(),
          [&](char c) { return c == '.' || is_letter(c); }),
      "rules().factors: the text must look like 'mk,kn->mn'; got '", text, "'");
  for (size_t i = 0; i < letters.size(); ++i) {
    TORCH_CHECK_VALUE(
        !is_letter(letters[i]) ||
            letters.find(letters[i], i + 1) == letters.npos,
        "rules().factors: a letter may stand once in a tensor; got '", text,
        "'");
  }
}

Letters parse_letters(std::string_view text) {
  const size_t arrow = text.find("->");
  TORCH_CHECK_VALUE(
      arrow != std::string_view::npos,
      "rules().factors: the text must look like 'mk,kn->mn'; got '", text, "'");
  Letters letters{split(text.substr(0, arrow)), split(text.substr(arrow + 2))};
  for (const auto* side : {&letters.operands, &letters.outputs}) {
    for (const std::string& tensor : *side) {
      check_letters(tensor, text);
    }
  }
  return letters;
}

// The place of a letter in the dims of a tensor whose letters are aligned from
// the right, or -1.
int64_t dim_of(const std::string& letters, char letter, int64_t ndim) {
  const size_t at = letters.find(letter);
  if (at == std::string::npos) {
    return -1;
  }
  return static_cast<int64_t>(at) - static_cast<int64_t>(letters.size()) + ndim;
}

std::string all_letters(const Letters& letters) {
  std::string all;
  for (const auto* side : {&letters.operands, &letters.outputs}) {
    for (const std::string& text : *side) {
      for (const char c : text) {
        if (c != '.' && all.find(c) == std::string::npos) {
          all += c;
        }
      }
    }
  }
  return all;
}

int64_t size_of(const Letters& letters, const RuleCall& call, char letter) {
  int64_t size = 1;
  for (size_t i = 0; i < letters.operands.size(); ++i) {
    const Operand& operand = call.operand(i);
    const int64_t d = dim_of(letters.operands[i], letter, operand.ndim());
    // A size of 0 wins over 1.
    if (operand.defined && d >= 0 &&
        operand.shape[static_cast<size_t>(d)] != 1) {
      size = operand.shape[static_cast<size_t>(d)];
    }
  }
  return size;
}

// Found before anything moves; what is added may broadcast.
void check_sizes(
    const Letters& letters, const std::optional<size_t>& bias,
    const RuleCall& call, char letter) {
  const int64_t size = size_of(letters, call, letter);
  for (size_t i = 0; i < letters.operands.size(); ++i) {
    const Operand& operand = call.operand(i);
    const int64_t d = dim_of(letters.operands[i], letter, operand.ndim());
    if (!operand.defined || d < 0) {
      continue;
    }
    const int64_t here = operand.shape[static_cast<size_t>(d)];
    TORCH_CHECK_VALUE(
        here == size || (bias == i && here == 1), "dims '", letter,
        "' of the operands must match; got ", here, " and ", size);
  }
}

void add_factor_row(
    const Letters& letters, const std::optional<size_t>& bias,
    const RuleCall& call, char letter, Rows& rows) {
  Cells outputs, operands;
  bool reduced = true;
  for (const std::string& text : letters.outputs) {
    const size_t at = text.find(letter);
    reduced = reduced && at == std::string::npos;
    outputs.push_back(
        at == std::string::npos ? Cell::partial(ReduceOp::kSum)
                                : Cell::shard(static_cast<int64_t>(at)));
  }
  const int64_t size = size_of(letters, call, letter);
  bool sharded = false;
  for (size_t i = 0; i < call.operands().size(); ++i) {
    const Operand& operand = call.operand(i);
    const int64_t d = dim_of(letters.operands[i], letter, operand.ndim());
    const bool has = operand.defined && d >= 0 &&
                     operand.shape[static_cast<size_t>(d)] == size;
    if (bias == i && reduced) {
      operands.push_back(Cell::partial(ReduceOp::kSum));
    } else {
      operands.push_back(has ? Cell::shard(d) : Cell());
      sharded = sharded || has;
    }
  }
  if (sharded) {
    rows.add(std::move(outputs), std::move(operands));
  }
}

// The broadcast shape of all operands with dims, aligned from the right.
c10::SmallVector<int64_t, 6> broadcast_shape(const RuleCall& call) {
  int64_t ndim = 0;
  for (const Operand& operand : call.operands()) {
    ndim = std::max(ndim, operand.ndim());
  }
  c10::SmallVector<int64_t, 6> shape(static_cast<size_t>(ndim), 1);
  for (const Operand& operand : call.operands()) {
    const size_t shift = shape.size() - operand.shape.size();
    for (size_t d = 0; d < operand.shape.size(); ++d) {
      // A size of 0 wins over 1.
      if (operand.shape[d] != 1) {
        TORCH_CHECK_VALUE(
            shape[shift + d] == 1 || shape[shift + d] == operand.shape[d],
            "the shapes of the operands must broadcast; got sizes ",
            shape[shift + d], " and ", operand.shape[d], " of dim ", shift + d);
        shape[shift + d] = operand.shape[d];
      }
    }
  }
  return shape;
}

// One row that cuts dim d of every operand with `ndim` dims; others replicated.
void add_aligned_row(
    const RuleCall& call, int64_t ndim, int64_t d, Cell output, Rows& rows) {
  Cells operands;
  for (const Operand& operand : call.operands()) {
    operands.push_back(
        operand.defined && operand.ndim() == ndim ? Cell::shard(d) : Cell());
  }
  rows.add(Cells(call.output_count(), output), std::move(operands));
}

}  // namespace

std::vector<bool> named_dims(const RuleCall& call, int64_t ndim) {
  std::vector<bool> named(static_cast<size_t>(std::max<int64_t>(ndim, 1)));
  std::vector<int64_t> dims;
  bool given = false;
  for (const char* name : {"dim", "dims", "axis"}) {
    if (call.has_argument(name) && !call.is_none(name)) {
      dims = call.integers(name);
      given = !dims.empty() || call.argument(name).isInt();
    }
  }
  if (!given) {
    named.assign(named.size(), true);
  }
  for (const int64_t dim : dims) {
    named[static_cast<size_t>(wrap_dim(dim, ndim))] = true;
  }
  return named;
}

RowsFn factor_rows(std::string_view text, const std::optional<size_t>& bias) {
  const Letters letters = parse_letters(text);
  return [letters, bias, all = all_letters(letters)](
             const RuleCall& call, Rows& rows) {
    TORCH_CHECK_VALUE(
        letters.operands.size() == call.operands().size(), call.schema().name(),
        ": its rule lists ", letters.operands.size(), " operands; got ",
        call.operands().size());
    for (const char letter : all) {
      check_sizes(letters, bias, call, letter);
      add_factor_row(letters, bias, call, letter, rows);
    }
  };
}

void pointwise_rows(const RuleCall& call, Rows& rows) {
  const auto shape = broadcast_shape(call);
  const size_t outputs = call.output_count();
  for (size_t d = 0; d < shape.size(); ++d) {
    Cells operands;
    bool sharded = false;
    for (const Operand& operand : call.operands()) {
      const size_t shift = shape.size() - operand.shape.size();
      const bool has = d >= shift && operand.defined &&
                       (operand.shape[d - shift] != 1 || shape[d] == 1);
      operands.push_back(
          has ? Cell::shard(static_cast<int64_t>(d - shift)) : Cell());
      sharded = sharded || has;
    }
    if (sharded) {
      rows.add(
          Cells(outputs, Cell::shard(static_cast<int64_t>(d))),
          std::move(operands));
    }
  }
}

RowsFn reduction_rows(std::optional<ReduceOp> op) {
  return [op](const RuleCall& call, Rows& rows) {
    const int64_t ndim = call.self().ndim();
    const std::vector<bool> reduced = named_dims(call, ndim);
    const bool keeps = call.boolean("keepdim");
    int64_t shift = 0;
    for (int64_t d = 0; d < ndim; ++d) {
      if (!reduced[static_cast<size_t>(d)]) {
        add_aligned_row(call, ndim, d, Cell::shard(d - shift), rows);
        continue;
      }
      shift += keeps ? 0 : 1;
      if (op) {
        add_aligned_row(call, ndim, d, Cell::partial(*op), rows);
      }
    }
  };
}

void along_rows(const RuleCall& call, Rows& rows) {
  const int64_t ndim = call.self().ndim();
  const std::vector<bool> worked = named_dims(call, ndim);
  for (int64_t d = 0; d < ndim; ++d) {
    if (!worked[static_cast<size_t>(d)]) {
      add_aligned_row(call, ndim, d, Cell::shard(d), rows);
    }
  }
}

RowsFn leading_rows(int64_t trailing) {
  return [trailing](const RuleCall& call, Rows& rows) {
    const int64_t ndim = call.self().ndim();
    for (int64_t d = 0; d < ndim - trailing; ++d) {
      Cells operands;
      for (const Operand& operand : call.operands()) {
        const bool has = operand.defined && d < operand.ndim() - trailing;
        operands.push_back(has ? Cell::shard(d) : Cell());
      }
      rows.add(Cells(call.output_count(), Cell::shard(d)), std::move(operands));
    }
  };
}

namespace {

constexpr std::string_view kOfFloats = " of floats";

// Whether the text is letters of a kind, at least one.
bool consists_of(const std::string& text, std::string_view letters) {
  return !text.empty() && text.find_first_not_of(letters) == text.npos;
}

}  // namespace

PartialRow parse_partial_row(std::string_view text) {
  const size_t colon = text.find(':');
  const size_t arrow = text.find("->");
  TORCH_CHECK_VALUE(
      colon != std::string_view::npos && arrow != std::string_view::npos &&
          colon < arrow,
      "RuleGroup::also: the text must look like 'sum,avg: PR->P'; got '", text,
      "'");
  PartialRow row;
  std::string_view ops = text.substr(0, colon);
  if (ops.ends_with(kOfFloats)) {
    row.of_floats = true;
    ops.remove_suffix(kOfFloats.size());
  }
  for (const std::string& name : split(ops)) {
    static const std::map<std::string, ReduceOp> kOps = {
        {"sum", ReduceOp::kSum},
        {"avg", ReduceOp::kAvg},
        {"max", ReduceOp::kMax},
        {"min", ReduceOp::kMin},
        {"product", ReduceOp::kProduct}};
    const auto op = kOps.find(name);
    TORCH_CHECK_VALUE(
        op != kOps.end(),
        "RuleGroup::also: reduce ops are sum, avg, max, min, product; got '",
        name, "'");
    row.ops.push_back(op->second);
  }
  row.operands = split(text.substr(colon + 1, arrow - colon - 1))[0];
  const std::string output = split(text.substr(arrow + 2))[0];
  TORCH_CHECK_VALUE(
      consists_of(row.operands, "PQR") && consists_of(output, "PQR") &&
          output.size() == 1,
      "RuleGroup::also: the text must look like 'sum,avg: PR->P'; got '", text,
      "'");
  row.output = output[0];
  const bool negates = (row.operands + output).find('Q') != std::string::npos;
  for (const ReduceOp op : row.ops) {
    TORCH_CHECK_VALUE(
        !negates || op == ReduceOp::kMax || op == ReduceOp::kMin,
        "RuleGroup::also: 'Q' is for max and min; got '", text, "'");
  }
  return row;
}

namespace {

Cell cell_of(char letter, ReduceOp op) {
  if (letter == 'R') {
    return {};
  }
  if (letter == 'Q') {
    op = op == ReduceOp::kMax ? ReduceOp::kMin : ReduceOp::kMax;
  }
  return Cell::partial(op);
}

bool are_floating(c10::ArrayRef<Operand> operands) {
  return std::all_of(operands.begin(), operands.end(), [](const Operand& o) {
    return !o.defined || c10::isFloatingType(o.dtype);
  });
}

void add_partial_rows(const PartialRow& row, const RuleCall& call, Rows& rows) {
  if (row.operands.size() != call.operands().size() ||
      (row.of_floats && !are_floating(call.operands()))) {
    return;
  }
  for (const ReduceOp op : row.ops) {
    Cells operands;
    for (const char letter : row.operands) {
      operands.push_back(cell_of(letter, op));
    }
    rows.add(
        Cells(call.output_count(), cell_of(row.output, op)),
        std::move(operands));
  }
}

}  // namespace

void add_rows(const Rule& rule, const RuleCall& call, Rows& rows) {
  rows.add(replicated(call.output_count()), replicated(call.operands().size()));
  if (rule.rows) {
    rule.rows(call, rows);
  }
  for (const PartialRow& row : rule.partial_rows) {
    add_partial_rows(row, call, rows);
  }
}

namespace {

bool suits_element(const RuleCall& call, const Row& row) {
  for (size_t i = 0; i < row.operands.size(); ++i) {
    const auto& argument =
        call.schema()
            .arguments()[static_cast<size_t>(call.operand(i).argument)];
    if (argument.type()->kind() != c10::TypeKind::ListType &&
        !row.operands[i].is_replicate()) {
      return false;
    }
  }
  return row.local == RunBy::kOperator;
}

}  // namespace

Rule rule_of_element(const Rule& rule) {
  Rule own = rule;
  own.partial_rows.clear();
  own.rows = [&rule](const RuleCall& call, Rows& rows) {
    Rows all;
    add_rows(rule, call, all);
    for (const Row& row : all.rows()) {
      if (rule.local == RunBy::kOperator && suits_element(call, row)) {
        rows.add(row.outputs, row.operands);
      }
    }
  };
  return own;
}

}  // namespace tessera::detail::inline rules_layer
