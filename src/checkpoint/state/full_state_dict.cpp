// Whole tensors of a state on one rank.
#include <map>
#include <string>
#include <utility>

#include <ATen/ops/full.h>
#include <c10/core/GradMode.h>
#include <c10/util/Exception.h>
#include <c10/util/StringUtil.h>
#include <checkpoint/collective.h>
#include <checkpoint/errors.h>
#include <checkpoint/leaves.h>
#include <tessera/checkpoint/state_dict.h>
#include <tessera/comm/world.h>
#include <tessera/tensor/dtensor.h>

namespace tessera::checkpoint {

namespace {

constexpr const char* kFullStateDict = "checkpoint::full_state_dict";

void check_tensor(const detail::Leaf& leaf) {
  TORCH_CHECK_NOT_IMPLEMENTED(
      leaf.value->kind() != StateValue::Kind::kShardedTensor, kFullStateDict,
      ": '", leaf.name, "' is a ShardedTensor; use ShardedTensor::gather()");
  if (!leaf.is_tensor() || !is_dtensor(leaf.value->to_tensor())) {
    return;
  }
  const DTensorSpec& its = spec(leaf.value->to_tensor());
  TORCH_CHECK_VALUE(
      !its.layout().has_partial(), kFullStateDict, ": '", leaf.name, "' is ",
      to_string(its),
      ", and partial values mean nothing without each other; redistribute() it "
      "before");
}

// What all ranks must have in common: "w f32[4, 8] S(0) R @ mesh(2, 2)".
std::string line_of(const detail::Leaf& leaf) {
  if (!leaf.is_tensor()) {
    return leaf.name + '\n';
  }
  const at::Tensor& t = leaf.value->to_tensor();
  return c10::str(
      leaf.name, " ",
      is_dtensor(t) ? to_string(spec(t))
                    : c10::str(c10::toString(t.scalar_type()), t.sizes()),
      '\n');
}

std::string checked_lines(const StateDict& state, int64_t rank) {
  const int64_t size = init().size();
  TORCH_CHECK_INDEX(
      rank >= 0 && rank < size, kFullStateDict, ": the rank must be 0 to ",
      size - 1, "; got ", rank);
  StateDict dict = state;  // a list of handles; leaves point into it
  std::string lines;
  for (const detail::Leaf& leaf : detail::leaves_of(kFullStateDict, dict)) {
    check_tensor(leaf);
    lines += line_of(leaf);
  }
  return lines;
}

// Brings tensors to one rank, one after the other.
class UnshardedOnOneRank {
 public:
  explicit UnshardedOnOneRank(int64_t rank)
      : rank_(rank), is_there_(init().rank() == rank) {}

  StateDict dict(const StateDict& state) {
    StateDict whole;
    for (const auto& [name, value] : state) {
      if (value.absent_group() == nullptr) {
        whole.set(name, this->value(value));
      }
    }
    return is_there_ ? whole : StateDict();
  }

 private:
  StateValue value(const StateValue& value) {
    switch (value.kind()) {
      case StateValue::Kind::kTensor:
        return tensor(value.to_tensor());
      case StateValue::Kind::kDict:
        return dict(value.to_dict());
      case StateValue::Kind::kList: {
        StateValue::List list;
        for (const StateValue& item : value.to_list()) {
          list.push_back(this->value(item));
        }
        return value.is_tuple() ? StateValue::tuple(std::move(list))
                                : StateValue(std::move(list));
      }
      case StateValue::Kind::kNone:
      case StateValue::Kind::kBool:
      case StateValue::Kind::kInteger:
      case StateValue::Kind::kFloat:
      case StateValue::Kind::kString:
      case StateValue::Kind::kBytes:
      case StateValue::Kind::kShardedTensor:
        break;
    }
    return value;
  }

  // Tied weights are one tensor there, too.
  at::Tensor tensor(const at::Tensor& t) {
    if (!is_dtensor(t)) {
      return t.detach().cpu();
    }
    const auto known = brought_.find(t.unsafeGetTensorImpl());
    if (known != brought_.end()) {
      return known->second;
    }
    const DeviceMesh there(
        spec(t).mesh().device_type(), at::full({1}, rank_, at::kLong));
    const at::Tensor moved = redistribute(t.detach(), there, {Replicate()});
    const at::Tensor whole = is_there_ ? to_local(moved).cpu() : at::Tensor();
    brought_.emplace(t.unsafeGetTensorImpl(), whole);
    return whole;
  }

  int64_t rank_;
  bool is_there_;
  std::map<const void*, at::Tensor> brought_;
};

}  // namespace

StateDict full_state_dict(const StateDict& state, int64_t rank) {
  const Communicator group = init().communicator();
  std::string lines;
  detail::Agreement agreement =
      detail::begin_checkpoint_agreement(kFullStateDict, group);
  agreement.check([&] { lines = checked_lines(state, rank); });
  agreement.equal("rank", std::to_string(rank));
  agreement.reach();
  detail::require_equal_lines(
      kFullStateDict, group, "names and layouts of tensors", lines);
  const c10::AutoGradMode no_grad(false);
  return UnshardedOnOneRank(rank).dict(state);
}

}  // namespace tessera::checkpoint
