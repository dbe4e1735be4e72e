#include <rules/families/index_dims.h>

#include <algorithm>

#include <c10/util/Exception.h>

namespace tessera::detail::inline rules_layer {

namespace {

bool is_mask(const Operand& index) {
  return index.dtype == c10::ScalarType::Bool ||
         index.dtype == c10::ScalarType::Byte;
}

}  // namespace

IndexDims::IndexDims(const RuleCall& call, c10::ArrayRef<Operand> indices)
    : indices_(indices), indexed_(call.self().shape.size(), false) {
  size_t dim = 0;
  for (const Operand& index : indices) {
    // A mask stands for one list of numbers per dim of its own.
    const bool mask = index.defined && is_mask(index);
    const size_t used = mask ? index.shape.size() : 1;
    TORCH_CHECK_INDEX(
        dim + used <= indexed_.size(), call.schema().name(),
        ": more indices than the ", indexed_.size(), " dims of the tensor");
    if (index.defined) {
      std::fill_n(
          indexed_.begin() + static_cast<std::ptrdiff_t>(dim), used, true);
      has_mask_ = has_mask_ || mask;
      const size_t ndim = mask ? 1 : index.shape.size();
      if (ndim > shape_.size()) {
        shape_.insert(shape_.begin(), ndim - shape_.size(), 1);
      }
      for (size_t k = 0; !mask && k < ndim; ++k) {
        int64_t& size = shape_[shape_.size() - ndim + k];
        size = index.shape[k] == 1 ? size : index.shape[k];
      }
    }
    dim += used;
  }
  const auto first = std::find(indexed_.begin(), indexed_.end(), true);
  const auto after = std::find(first, indexed_.end(), false);
  const bool neighbours =
      std::find(after, indexed_.end(), true) == indexed_.end();
  insertion_ = neighbours && first != indexed_.end()
                   ? static_cast<int64_t>(first - indexed_.begin())
                   : 0;
}

int64_t IndexDims::result_dim(int64_t dim) const {
  const auto before = static_cast<int64_t>(
      std::count(indexed_.begin(), indexed_.begin() + dim, false));
  return before < insertion_ ? before : before + index_ndim();
}

int64_t IndexDims::result_ndim() const {
  return index_ndim() + static_cast<int64_t>(std::count(
                            indexed_.begin(), indexed_.end(), false));
}

void IndexDims::sharded_index(int64_t i, Cells& operands) const {
  for (size_t k = 0; k < indices_.size(); ++k) {
    const Operand& index = indices_[k];
    const int64_t d = i - (index_ndim() - index.ndim());
    if (index.defined && d >= 0 &&
        index.shape[static_cast<size_t>(d)] == index_size(i)) {
      operands[k + 1] = Cell::shard(d);
    }
  }
}

std::optional<int64_t> IndexDims::only_indexed() const {
  if (has_mask_ || std::count(indexed_.begin(), indexed_.end(), true) != 1) {
    return std::nullopt;
  }
  return std::find(indexed_.begin(), indexed_.end(), true) - indexed_.begin();
}

}  // namespace tessera::detail::inline rules_layer
