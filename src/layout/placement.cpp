#include <tessera/layout/placement.h>

#include <ostream>

#include <c10/util/Exception.h>
#include <c10/util/StringUtil.h>

#include "base/hash.h"
#include "base/text.h"

namespace tessera {

const char* to_string(ReduceOp op) {
  switch (op) {
    case ReduceOp::kSum:
      return "sum";
    case ReduceOp::kAvg:
      return "avg";
    case ReduceOp::kMax:
      return "max";
    case ReduceOp::kMin:
      return "min";
    case ReduceOp::kProduct:
      return "product";
  }
  TORCH_INTERNAL_ASSERT(false, "ReduceOp out of range");
}

int64_t Placement::dim() const {
  TORCH_CHECK_VALUE(
      is_shard(), "Placement::dim: only a shard cuts a tensor dim; got ",
      to_string(*this), "; test is_shard() first");
  return dim_;
}

int64_t Placement::split_factor() const {
  TORCH_CHECK_VALUE(
      is_shard(), "Placement::split_factor: only a shard has one; got ",
      to_string(*this), "; test is_shard() first");
  return split_factor_;
}

const std::vector<int64_t>& Placement::sizes() const {
  TORCH_CHECK_VALUE(
      lengths_ != nullptr,
      "Placement::sizes: only a RaggedShard has lengths; got ",
      to_string(*this), "; test kind() first");
  return lengths_->sizes;
}

const std::vector<int64_t>& Placement::begins() const {
  TORCH_CHECK_VALUE(
      lengths_ != nullptr,
      "Placement::begins: only a RaggedShard has lengths; got ",
      to_string(*this), "; test kind() first");
  return lengths_->begins;
}

ReduceOp Placement::reduce_op() const {
  TORCH_CHECK_VALUE(
      is_partial(), "Placement::reduce_op: only a Partial has one; got ",
      to_string(*this), "; test is_partial() first");
  return reduce_op_;
}

Placement Placement::with_order(int64_t order) const {
  TORCH_CHECK_VALUE(
      is_shard(), "Placement::with_order: only a shard has a turn; got ",
      to_string(*this));
  TORCH_CHECK_VALUE(
      order >= -1,
      "Placement::with_order: a turn is 0 or more, or -1 for the "
      "order of the mesh dims; got ",
      order, " for ", to_string(*this));
  Placement result = *this;
  result.order_ = order;
  return result;
}

Placement Placement::with_dim(int64_t dim) const {
  TORCH_CHECK_VALUE(
      is_shard(), "Placement::with_dim: only a shard cuts a tensor dim; got ",
      to_string(*this));
  Placement result = *this;
  result.dim_ = dim;
  return result;
}

Placement Shard(int64_t dim) {
  Placement result;
  result.kind_ = Placement::Kind::kShard;
  result.dim_ = dim;
  return result;
}

Placement Replicate() {
  return Placement();
}

Placement Partial(ReduceOp op) {
  Placement result;
  result.kind_ = Placement::Kind::kPartial;
  result.reduce_op_ = op;
  return result;
}

Placement StridedShard(int64_t dim, int64_t split_factor) {
  TORCH_CHECK_VALUE(
      split_factor >= 1, "StridedShard(", dim, ", ", split_factor,
      "): the split factor counts pieces and must be at least 1; got ",
      split_factor);
  Placement result;
  result.kind_ = Placement::Kind::kStridedShard;
  result.dim_ = dim;
  result.split_factor_ = split_factor;
  return result;
}

Placement RaggedShard(int64_t dim, std::vector<int64_t> sizes) {
  std::vector<int64_t> begins(sizes.size() + 1, 0);
  for (size_t i = 0; i < sizes.size(); ++i) {
    TORCH_CHECK_VALUE(
        sizes[i] >= 0, "RaggedShard(", dim, ", [", base::join(sizes, ","),
        "]): lengths must not be negative; got ", sizes[i], " at coordinate ",
        i);
    TORCH_CHECK_VALUE(
        !__builtin_add_overflow(begins[i], sizes[i], &begins[i + 1]),
        "RaggedShard(", dim, ", [", base::join(sizes, ","),
        "]): the sum of the lengths exceeds 64 bits");
  }
  Placement result;
  result.kind_ = Placement::Kind::kRaggedShard;
  result.dim_ = dim;
  result.lengths_ = std::make_shared<const Placement::Lengths>(
      Placement::Lengths{std::move(sizes), std::move(begins)});
  return result;
}

const char* to_string(Placement::Kind kind) {
  switch (kind) {
    case Placement::Kind::kReplicate:
      return "replicate";
    case Placement::Kind::kShard:
      return "shard";
    case Placement::Kind::kStridedShard:
      return "strided_shard";
    case Placement::Kind::kRaggedShard:
      return "ragged_shard";
    case Placement::Kind::kPartial:
      return "partial";
  }
  TORCH_INTERNAL_ASSERT(false, "Placement::Kind out of range");
}

namespace {

std::string without_order(const Placement& p) {
  switch (p.kind()) {
    case Placement::Kind::kReplicate:
      return "R";
    case Placement::Kind::kShard:
      return c10::str("S(", p.dim(), ")");
    case Placement::Kind::kStridedShard:
      return c10::str("SS(", p.dim(), ",", p.split_factor(), ")");
    case Placement::Kind::kRaggedShard:
      return c10::str("RS(", p.dim(), ",[", base::join(p.sizes(), ","), "])");
    case Placement::Kind::kPartial:
      return c10::str("P(", to_string(p.reduce_op()), ")");
  }
  TORCH_INTERNAL_ASSERT(false, "Placement::Kind out of range");
}

}  // namespace

std::string to_string(const Placement& placement) {
  std::string text = without_order(placement);
  if (placement.order() >= 0) {
    text += c10::str("[", placement.order(), "]");
  }
  return text;
}

std::string to_string(const Placements& placements) {
  return base::join(placements, " ");
}

std::ostream& operator<<(std::ostream& out, const Placement& placement) {
  return out << to_string(placement);
}

size_t hash_value(const Placement& placement) {
  size_t seed = static_cast<size_t>(placement.kind());
  seed = base::hash_combine(seed, static_cast<size_t>(placement.order()));
  if (placement.is_partial()) {
    return base::hash_combine(seed, static_cast<size_t>(placement.reduce_op()));
  }
  if (placement.is_shard()) {
    seed = base::hash_combine(seed, static_cast<size_t>(placement.dim()));
    seed =
        base::hash_combine(seed, static_cast<size_t>(placement.split_factor()));
  }
  if (!placement.fits_any_size()) {
    seed = base::hash_combine(seed, placement.sizes());
  }
  return seed;
}

}  // namespace tessera
