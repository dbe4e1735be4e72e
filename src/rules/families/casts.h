// Which Partial passes a change of dtype.
#pragma once

#include <c10/core/ScalarType.h>
#include <rules/all_rules.h>

namespace tessera::detail::inline rules_layer {

/// Tells whether casting parts and then adding them is casting their sum: among
/// floating dtypes that lose nothing. 0.6 + 0.6 as integers would be 0, and
/// 1e5 - 1e5 in half precision is NaN.
inline bool keeps_sums(c10::ScalarType from, c10::ScalarType to) {
  const auto is_inexact = [](c10::ScalarType t) {
    return c10::isFloatingType(t) || c10::isComplexType(t);
  };
  return from == to || (is_inexact(from) && is_inexact(to) &&
                        c10::promoteTypes(from, to) == to);
}

/// Tells whether a cast never turns the order around: integers that are cut off
/// do, and so does everything that becomes complex.
inline bool keeps_order(c10::ScalarType from, c10::ScalarType to) {
  if (c10::isComplexType(from) || c10::isComplexType(to) ||
      to == c10::ScalarType::Bool) {
    return from == to && !c10::isComplexType(to);
  }
  return c10::isFloatingType(from) || c10::isFloatingType(to) ||
         c10::promoteTypes(from, to) == to;
}

/// Returns the dtype that argument "dtype" asks for, that of `operand` where it
/// asks for none.
inline c10::ScalarType asked_dtype(
    const RuleCall& call, const Operand& operand) {
  return call.is_none("dtype") ? operand.dtype
                               : call.argument("dtype").toScalarType();
}

/// Adds P(op) -> P(op) for the only operand.
inline void add_same_partial(Rows& rows, std::initializer_list<ReduceOp> ops) {
  for (const ReduceOp op : ops) {
    rows.add({Cell::partial(op)}, {Cell::partial(op)});
  }
}

/// Adds linear rows for the only operand where argument "dtype" allows them.
inline void add_linear_if_cast_allows(const RuleCall& call, Rows& rows) {
  if (keeps_sums(call.self().dtype, asked_dtype(call, call.self()))) {
    add_same_partial(rows, {ReduceOp::kSum, ReduceOp::kAvg});
  }
}

}  // namespace tessera::detail::inline rules_layer
