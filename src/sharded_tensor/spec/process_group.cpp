#include <tessera/sharded_tensor/process_group.h>

#include <algorithm>
#include <optional>

#include <base/text.h>
#include <c10/util/Exception.h>
#include <comm/engine/inherited_modes.h>
#include <sharded_tensor/spec/placement_owner.h>
#include <tessera/comm/world.h>
#include <tessera/sharded_tensor/remote_device.h>

namespace tessera::sharded_tensor {

namespace {

using Names = std::map<std::string, int64_t>;

const ProcessGroup* innermost_group() {
  return detail::mode_value<ProcessGroup>(detail::Mode::kProcessGroup);
}
const Names* worker_names() {
  return detail::mode_value<Names>(detail::Mode::kWorkerNames);
}

}  // namespace

ProcessGroup::ProcessGroup() : ProcessGroup(current_process_group()) {}

ProcessGroup::ProcessGroup(Communicator communicator)
    : communicator_(std::move(communicator)) {
  TORCH_CHECK_VALUE(
      communicator_.defined(), "ProcessGroup, rank ", tessera::rank(),
      ": the communicator is undefined; name the ranks instead, "
      "ProcessGroup({0, 1})");
  ranks_ = communicator_.ranks();
}

ProcessGroup::ProcessGroup(std::vector<int64_t> ranks)
    : ranks_(std::move(ranks)) {
  if (contains(tessera::rank())) {
    communicator_ = init().communicator(ranks_);
    return;
  }
  TORCH_CHECK_VALUE(
      !ranks_.empty(), "ProcessGroup, rank ", tessera::rank(),
      ": a group must have a rank; got none");
  for (const int64_t rank : ranks_) {
    TORCH_CHECK_INDEX(
        rank >= 0 && rank < world_size(), "ProcessGroup({",
        base::join(ranks_, ", "), "}), rank ", tessera::rank(),
        ": ranks must be 0 to ", world_size() - 1, ", the world's; got ", rank);
  }
}

bool ProcessGroup::contains(int64_t global_rank) const {
  return std::find(ranks_.begin(), ranks_.end(), global_rank) != ranks_.end();
}

int64_t ProcessGroup::group_rank(int64_t global_rank) const {
  const auto found = std::find(ranks_.begin(), ranks_.end(), global_rank);
  TORCH_CHECK_VALUE(
      found != ranks_.end(), to_string(*this), ": rank ", global_rank,
      " is not a member");
  return found - ranks_.begin();
}

int64_t ProcessGroup::rank() const {
  return communicator_.defined() ? communicator_.rank() : -1;
}

const Communicator& ProcessGroup::communicator() const {
  TORCH_CHECK_VALUE(
      communicator_.defined(), to_string(*this), ", rank ", tessera::rank(),
      ": only members communicate in a group; call this on its ranks alone");
  return communicator_;
}

std::string to_string(const ProcessGroup& group) {
  return "group {" + base::join(group.ranks(), ", ") + "}";
}

ProcessGroup current_process_group() {
  const ProcessGroup* group = innermost_group();
  return group != nullptr ? *group : ProcessGroup(init().communicator());
}

WithProcessGroup::WithProcessGroup(ProcessGroup group)
    : group_(std::move(group)) {
  TORCH_CHECK(
      innermost_group() == nullptr, "WithProcessGroup(", to_string(group_),
      "), rank ", rank(), ": ", to_string(*innermost_group()),
      " is in effect already; end it first");
  detail::exchange_mode(
      detail::Mode::kProcessGroup,
      std::make_shared<const ProcessGroup>(group_));
}

WithProcessGroup::~WithProcessGroup() {
  detail::exchange_mode(detail::Mode::kProcessGroup, nullptr);
}

WorkerNames::WorkerNames(std::map<std::string, int64_t> ranks)
    : ranks_(std::move(ranks)) {
  TORCH_CHECK(
      worker_names() == nullptr, "WorkerNames, rank ", rank(),
      ": a table of names is in effect already; end it first");
  std::map<int64_t, std::string> names;
  for (const auto& [name, r] : ranks_) {
    TORCH_CHECK_VALUE(
        r >= 0 && r < world_size(), "WorkerNames, rank ", rank(), ": '", name,
        "' must be a rank of the world, 0 to ", world_size() - 1, "; got ", r);
    const auto [it, fresh] = names.emplace(r, name);
    TORCH_CHECK_VALUE(
        fresh, "WorkerNames, rank ", rank(), ": a rank has one name; rank ", r,
        " is '", it->second, "' and '", name, "'");
  }
  detail::exchange_mode(
      detail::Mode::kWorkerNames, std::make_shared<const Names>(ranks_));
}

WorkerNames::~WorkerNames() {
  detail::exchange_mode(detail::Mode::kWorkerNames, nullptr);
}

}  // namespace tessera::sharded_tensor

namespace tessera::detail::inline sharded_tensor_layer {

int64_t owner_of(
    const sharded_tensor::RemoteDevice& placement, const std::string& call) {
  if (placement.rank()) {
    return *placement.rank();
  }
  TORCH_CHECK_VALUE(
      placement.worker_name(), call, ", rank ", rank(), ": placement ",
      to_string(placement), " has no owner; write rank:N/",
      placement.device().str());
  const auto* names = sharded_tensor::worker_names();
  TORCH_CHECK(
      names != nullptr, call, ", rank ", rank(), ": placement ",
      to_string(placement),
      " names a worker, and no WorkerNames says which rank that is");
  const auto found = names->find(*placement.worker_name());
  TORCH_CHECK_VALUE(
      found != names->end(), call, ", rank ", rank(), ": placement ",
      to_string(placement), " names a worker that WorkerNames does not have");
  return found->second;
}

}  // namespace tessera::detail::inline sharded_tensor_layer
