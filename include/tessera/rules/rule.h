// What a rule says: for ONE mesh dim, which placements of the tensors that a
// call reads give which placements of its results.
//
// Words: operand (a tensor that the call reads or writes in place; the elements
// of a list are operands of their own), output (a tensor that it returns), cell
// (one tensor's placement in a row), row (one legal line of a rule). Rows know
// neither the mesh nor other mesh dims: rules/choose.h puts them together.
#pragma once

#include <cstdint>
#include <functional>
#include <initializer_list>
#include <string>
#include <string_view>
#include <vector>

#include <ATen/core/function_schema.h>
#include <c10/core/ScalarType.h>
#include <c10/util/ArrayRef.h>
#include <c10/util/SmallVector.h>
#include <tessera/export.h>
#include <tessera/layout/mesh_shape.h>
#include <tessera/layout/placement.h>

namespace tessera {

namespace detail::inline rules_layer {
/// Rows::Cell: one tensor's placement on one mesh dim, as a row says it. A
/// shard stands for any cut of that dim (plain, strided, ragged): all shards of
/// a row are cut alike, which is why the dims that a row shards must have one
/// size.
class TESSERA_API Cell {
 public:
  enum class Kind : uint8_t { kReplicate, kShard, kPartial };

  /// Makes Replicate().
  Cell() = default;
  /// Takes Replicate(), Shard(d) or Partial(op).
  Cell(const Placement& placement);  // NOLINT(google-explicit-constructor)
  static Cell shard(int64_t dim);
  static Cell partial(ReduceOp op);

  Kind kind() const { return kind_; }
  bool is_replicate() const { return kind_ == Kind::kReplicate; }
  bool is_shard() const { return kind_ == Kind::kShard; }
  bool is_partial() const { return kind_ == Kind::kPartial; }
  /// Returns the tensor dim; negative ones count from the end.
  int64_t dim() const { return dim_; }
  ReduceOp op() const { return op_; }
  /// Returns the placement; a shard as a plain one.
  Placement placement() const;
  friend bool operator==(const Cell&, const Cell&) = default;

 private:
  Kind kind_ = Kind::kReplicate;
  ReduceOp op_ = ReduceOp::kSum;
  int16_t dim_ = 0;
};

using Cells = c10::SmallVector<Cell, 6>;

/// Rows::RunBy, how a rank runs its part of a call: by the operator on its
/// shards, or by a kernel of the tensor layer where that would give something
/// else. A mean of a part is no part of the mean.
enum class RunBy : uint8_t {
  kOperator,
  kMean,
  kIdentity,
  kLookup,
  kBags,
  kConvolution,
  kSqueeze,
  kScaledProduct,
  kSelect,
  kSplit,
  kTriangle,
  kTrace,
  kUnbind
};

/// Rows::Row, one legal line: if the operands have these placements, so have
/// the outputs.
struct Row {
  Cells outputs;
  Cells operands;
  RunBy local = RunBy::kOperator;
};
}  // namespace detail::inline rules_layer

/// Prints "R", "S(1)", "P(sum)".
TESSERA_API std::string to_string(const detail::Cell& cell);
/// Prints "S(0), R -> S(0)", and " by mean" where a kernel runs it.
TESSERA_API std::string to_string(const detail::Row& row);

/// A tensor that a call reads, as a rule sees it.
struct Operand {
  /// The global shape; empty for a tensor that is not there (None).
  c10::IntArrayRef shape;
  c10::IntArrayRef strides;
  c10::ScalarType dtype = c10::ScalarType::Undefined;
  bool defined = false;
  /// The call writes it; its result must return to the placements it has now.
  bool written = false;
  /// Which argument of the schema, and which element of a list.
  int32_t argument = 0;
  int32_t element = 0;
  /// One per mesh dim; all Replicate for a plain tensor.
  const Placements* placements = nullptr;

  int64_t ndim() const { return static_cast<int64_t>(shape.size()); }
};

/// A call as a rule sees it: global shapes and static arguments, no data.
class TESSERA_API RuleCall {
 public:
  RuleCall(
      const c10::FunctionSchema& schema, c10::ArrayRef<c10::IValue> arguments,
      c10::ArrayRef<Operand> operands)
      : schema_(schema), arguments_(arguments), operands_(operands) {}

  const c10::FunctionSchema& schema() const { return schema_; }
  c10::ArrayRef<Operand> operands() const { return operands_; }
  const Operand& operand(size_t i) const { return operands_[i]; }
  /// Returns the first tensor; most operators have one that decides.
  const Operand& self() const { return operands_[0]; }

  /// Returns how many outputs a row must list: one per tensor or list of
  /// tensors that the schema returns, or, where it returns nothing, writes.
  size_t output_count() const;

  /// Returns a static argument by name; throws where there is none.
  const c10::IValue& argument(std::string_view name) const;
  bool has_argument(std::string_view name) const;
  int64_t integer(std::string_view name) const;
  bool boolean(std::string_view name, bool otherwise = false) const;
  /// Returns a list of integers; one integer is a list of one, None is empty.
  std::vector<int64_t> integers(std::string_view name) const;
  bool is_none(std::string_view name) const;

 private:
  const c10::FunctionSchema& schema_;
  c10::ArrayRef<c10::IValue> arguments_;
  c10::ArrayRef<Operand> operands_;
};

/// Counts a dim from the front: -1 of 3 dims -> 2. Dims of a 0-dim tensor may
/// be 0 or -1, as in ATen.
TESSERA_API int64_t wrap_dim(int64_t dim, int64_t ndim);

/// The rows that a function adds for a call. All replicated need not be added.
class TESSERA_API Rows {
 public:
  using Cell = detail::Cell;
  using Cells = detail::Cells;
  using Row = detail::Row;
  using RunBy = detail::RunBy;

  /// Adds one row; `outputs` of one cell stands for all outputs.
  void add(
      std::initializer_list<Cell> outputs, std::initializer_list<Cell> operands,
      RunBy local = RunBy::kOperator) {
    add(Cells(outputs), Cells(operands), local);
  }
  void add(Cells outputs, Cells operands, RunBy local = RunBy::kOperator);
  c10::ArrayRef<Row> rows() const { return rows_; }
  void clear() { rows_.clear(); }

 private:
  c10::SmallVector<Row, 8> rows_;
};

/// Computes the rows of a call where shapes or arguments decide.
using RowsFn = std::function<void(const RuleCall&, Rows&)>;

/// One result of a view.
struct ViewResult {
  std::vector<int64_t> shape;
  std::vector<int64_t> strides;
  Placements placements;
  /// Elements of memory between the first one of the operand and that of the
  /// result: 2 * stride for select(dim, 2).
  int64_t offset = 0;
};

/// What a view does to the layout of its first operand, over the whole mesh.
struct ViewLayout {
  /// Per mesh dim: false where the operand must be replicated on it first.
  std::vector<bool> keeps;
  /// One per result; a list of results has one per element.
  std::vector<ViewResult> results;
  /// Static arguments of the local call that differ from those of the global
  /// one, by number.
  std::vector<std::pair<size_t, c10::IValue>> local_arguments;
  /// How a rank shows its part where the operator on its shard would show
  /// something else.
  detail::RunBy local = detail::RunBy::kOperator;
};

/// Computes the layout of a view; `coordinate` is that of the rank whose local
/// arguments are wanted, or nullptr.
using ViewFn = std::function<ViewLayout(
    const RuleCall&, const MeshShape&, const std::vector<int64_t>* coordinate)>;

}  // namespace tessera
