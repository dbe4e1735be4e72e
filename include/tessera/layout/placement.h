// What one mesh dim does to a tensor: replicate it, shard it (by ceil chunks,
// strided or ragged) or hold one partial value of it.
//
// A Placement is a small closed value: compare, hash, print and parse it, never
// derive from it. Where the pieces lie is computed in layout/layout.h.
#pragma once

#include <cstdint>
#include <functional>
#include <iosfwd>
#include <memory>
#include <string>
#include <vector>

#include <tessera/export.h>

namespace tessera {

/// How the partial values of a Partial combine into the value.
enum class ReduceOp : uint8_t { kSum, kAvg, kMax, kMin, kProduct };

/// Prints the name used by the notation: "sum", "avg", "max", "min", "product".
TESSERA_API const char* to_string(ReduceOp op);

/// One mesh dim's share in a layout. Build one with the functions below.
class TESSERA_API Placement {
 public:
  enum class Kind : uint8_t {
    kReplicate,
    kShard,
    kStridedShard,
    kRaggedShard,
    kPartial
  };

  /// Makes Replicate().
  Placement() = default;

  Kind kind() const { return kind_; }
  bool is_replicate() const { return kind_ == Kind::kReplicate; }
  bool is_partial() const { return kind_ == Kind::kPartial; }
  /// Tells whether a tensor dim is cut: Shard, StridedShard or RaggedShard.
  bool is_shard() const {
    return kind_ != Kind::kReplicate && kind_ != Kind::kPartial;
  }
  /// Tells whether a tensor dim is cut, and it is `dim`.
  bool is_shard(int64_t dim) const { return is_shard() && dim_ == dim; }

  /// Tells whether a tensor dim is cut into one ceil chunk per coordinate:
  /// Shard, which rows of rules and specs of chunks can name.
  bool is_plain_shard() const { return kind_ == Kind::kShard; }
  /// Tells whether each of split_factor() pieces is cut into ceil chunks: Shard
  /// or StridedShard. Tiles of XLA can say those.
  bool is_chunked() const {
    return kind_ == Kind::kShard || kind_ == Kind::kStridedShard;
  }
  /// Tells whether each coordinate holds one run, in the order of the
  /// coordinates: Shard or RaggedShard.
  bool is_contiguous() const {
    return kind_ == Kind::kShard || kind_ == Kind::kRaggedShard;
  }
  /// Tells whether it suits a dim of any size. The lengths of a RaggedShard
  /// must add up to what it cuts.
  bool fits_any_size() const { return kind_ != Kind::kRaggedShard; }
  /// Tells whether it may no longer fit once another cut of its tensor dim is
  /// dropped: it has an order, or lengths.
  bool depends_on_others() const { return order_ >= 0 || !fits_any_size(); }

  /// Returns the tensor dim that is cut; is_shard() only.
  int64_t dim() const;
  /// Returns the number of pieces that exist before this cut; 1 unless strided.
  int64_t split_factor() const;
  /// Returns the length per coordinate; kRaggedShard only.
  const std::vector<int64_t>& sizes() const;
  /// Returns where the run of each coordinate begins, then where the last one
  /// ends; kRaggedShard only. Example: [0, 3, 3, 8] for RS(0,[3,0,5]).
  const std::vector<int64_t>& begins() const;
  /// Returns how the partial values combine; is_partial() only.
  ReduceOp reduce_op() const;
  /// Returns the order of this cut among those of its tensor dim, or -1 when
  /// cuts apply in the order of the mesh dims. See with_order().
  int64_t order() const { return order_; }

  /// Returns this cut with order `order` (0 first) among the mesh dims that cut
  /// the same tensor dim. "S(0)[1] S(0)[0]" cuts dim 0 by mesh dim 1 first.
  Placement with_order(int64_t order) const;
  /// Returns this cut on another tensor dim; negative dims stay negative.
  Placement with_dim(int64_t dim) const;
  /// Returns this placement of a tensor with `ndim` dims: a negative dim is
  /// counted from the end. It may still lie outside.
  Placement resolved(int64_t ndim) const {
    return is_shard() && dim_ < 0 ? with_dim(dim_ + ndim) : *this;
  }

  friend bool operator==(const Placement& a, const Placement& b) {
    return a.kind_ == b.kind_ && a.reduce_op_ == b.reduce_op_ &&
           a.dim_ == b.dim_ && a.split_factor_ == b.split_factor_ &&
           a.order_ == b.order_ &&
           (a.lengths_ == b.lengths_ || a.sizes() == b.sizes());
  }

 private:
  friend Placement Shard(int64_t dim);
  friend Placement Partial(ReduceOp op);
  friend Placement StridedShard(int64_t dim, int64_t split_factor);
  friend Placement RaggedShard(int64_t dim, std::vector<int64_t> sizes);

  struct Lengths {  // of a ragged shard
    std::vector<int64_t> sizes;
    std::vector<int64_t> begins;
  };

  Kind kind_ = Kind::kReplicate;
  ReduceOp reduce_op_ = ReduceOp::kSum;
  int64_t dim_ = 0;
  int64_t split_factor_ = 1;
  int64_t order_ = -1;
  std::shared_ptr<const Lengths> lengths_;
};

/// One placement per mesh dim.
using Placements = std::vector<Placement>;

/// Cuts tensor dim `dim` into ceil chunks: size 10 over 4 -> 3 3 3 1. Negative
/// dims count from the end and are resolved where the shape is known.
TESSERA_API Placement Shard(int64_t dim);

/// Holds the whole tensor on every coordinate.
TESSERA_API Placement Replicate();

/// Holds one partial value of the tensor on every coordinate; `op` combines
/// them.
TESSERA_API Placement Partial(ReduceOp op = ReduceOp::kSum);

/// Cuts `dim` into `split_factor` pieces, each piece into one part per
/// coordinate; coordinate r holds part r of every piece, in order.
/// Size 8, factor 2, over 2 -> {0 1 4 5} {2 3 6 7}.
TESSERA_API Placement StridedShard(int64_t dim, int64_t split_factor);

/// Cuts `dim` into runs of the given lengths, one per coordinate; zero is
/// allowed, and the lengths must add up to the size of the dim.
TESSERA_API Placement RaggedShard(int64_t dim, std::vector<int64_t> sizes);

/// Prints the word for a kind: "replicate", "shard", "strided_shard",
/// "ragged_shard", "partial".
TESSERA_API const char* to_string(Placement::Kind kind);
/// Prints one placement: "R", "S(0)", "SS(0,2)", "RS(0,[3,0,5])", "P(sum)".
TESSERA_API std::string to_string(const Placement& placement);
/// Prints placements separated by blanks: "S(0) R".
TESSERA_API std::string to_string(const Placements& placements);
TESSERA_API std::ostream& operator<<(
    std::ostream& out, const Placement& placement);

/// Hashes by content.
TESSERA_API size_t hash_value(const Placement& placement);

}  // namespace tessera

template <>
struct std::hash<tessera::Placement> {
  size_t operator()(const tessera::Placement& p) const {
    return tessera::hash_value(p);
  }
};
