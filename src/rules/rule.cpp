#include <tessera/rules/rule.h>

#include <array>

#include <c10/util/Exception.h>

namespace tessera {

namespace {
using detail::Cell;
using detail::Cells;
using detail::Row;
}  // namespace

Cell::Cell(const Placement& placement) {
  TORCH_CHECK_VALUE(
      !placement.is_shard() || placement.is_plain_shard(),
      "rule: a row names plain shards, which stand for every cut; got ",
      to_string(placement));
  if (placement.is_shard()) {
    *this = shard(placement.dim());
  } else if (placement.is_partial()) {
    *this = partial(placement.reduce_op());
  }
}

Cell Cell::shard(int64_t dim) {
  Cell cell;
  cell.kind_ = Kind::kShard;
  cell.dim_ = static_cast<int16_t>(dim);
  return cell;
}

Cell Cell::partial(ReduceOp op) {
  Cell cell;
  cell.kind_ = Kind::kPartial;
  cell.op_ = op;
  return cell;
}

Placement Cell::placement() const {
  switch (kind_) {
    case Kind::kShard:
      return Shard(dim_);
    case Kind::kPartial:
      return Partial(op_);
    case Kind::kReplicate:
      break;
  }
  return Replicate();
}

std::string to_string(const Cell& cell) {
  return to_string(cell.placement());
}

std::string to_string(const Row& row) {
  std::string text;
  for (const Cell& cell : row.operands) {
    text += (text.empty() ? "" : ", ") + to_string(cell);
  }
  text += " ->";
  const char* separator = " ";
  for (const Cell& cell : row.outputs) {
    text += separator + to_string(cell);
    separator = ", ";
  }
  constexpr std::array kBy = {
      "",           " by mean",        " by identity", " by lookup",
      " by bags",   " by convolution", " by squeeze",  " by scaled_product",
      " by select", " by split",       " by triangle", " by trace",
      " by unbind"};
  return text + kBy[static_cast<size_t>(row.local)];
}

size_t RuleCall::output_count() const {
  size_t count = 0;
  if (schema_.returns().empty()) {
    for (const auto& argument : schema_.arguments()) {
      count +=
          argument.alias_info() != nullptr && argument.alias_info()->isWrite();
    }
    return count;
  }
  for (const auto& result : schema_.returns()) {
    const c10::TypeKind kind = result.type()->kind();
    count += kind == c10::TypeKind::TensorType ||
             kind == c10::TypeKind::ListType ||
             kind == c10::TypeKind::OptionalType;
  }
  return count;
}

bool RuleCall::has_argument(std::string_view name) const {
  return schema_.argumentIndexWithName(name).has_value();
}

const c10::IValue& RuleCall::argument(std::string_view name) const {
  const auto index = schema_.argumentIndexWithName(name);
  TORCH_CHECK_VALUE(
      index, schema_.name(), ": a rule asks for the argument '", name,
      "', and there is none; there are: ", schema_);
  return arguments_[static_cast<size_t>(*index)];
}

int64_t RuleCall::integer(std::string_view name) const {
  return argument(name).toInt();
}

bool RuleCall::boolean(std::string_view name, bool otherwise) const {
  if (!has_argument(name)) {
    return otherwise;
  }
  const c10::IValue& value = argument(name);
  return value.isNone() ? otherwise : value.toBool();
}

std::vector<int64_t> RuleCall::integers(std::string_view name) const {
  const c10::IValue& value = argument(name);
  if (value.isNone()) {
    return {};
  }
  return value.isInt() ? std::vector<int64_t>{value.toInt()}
                       : value.toIntVector();
}

bool RuleCall::is_none(std::string_view name) const {
  return !has_argument(name) || argument(name).isNone();
}

int64_t wrap_dim(int64_t dim, int64_t ndim) {
  const int64_t range = ndim > 0 ? ndim : 1;
  TORCH_CHECK_INDEX(
      dim >= -range && dim < range, "dim must be in [", -range, ", ", range - 1,
      "]; got ", dim);
  return dim < 0 ? dim + range : dim;
}

void Rows::add(Cells outputs, Cells operands, RunBy local) {
  rows_.push_back(Row{std::move(outputs), std::move(operands), local});
}

}  // namespace tessera
