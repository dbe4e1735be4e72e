// Note [What travels over a program's group]
// Where the group has a store, nothing does: the network opens Gloo groups of
// its own through the store. So calls cannot come between the program's own
// calls on the group, and a failure, which leaves some ranks' calls without
// their counterparts, closes our connections and not the program's.
// Two cases remain for a BackendChannel. A backend for devices only that can be
// split (NCCL) is faster than Gloo: a part of it, which a failure aborts, moves
// the calls of all ranks. Without a store there is only the backend itself.
// Smaller groups and messages are Gloo's in any case: splitting a backend needs
// all its ranks, and a group is joined by its own ranks only.
#include "comm/engine/c10d/c10d_transport.h"

#include <algorithm>
#include <numeric>
#include <optional>
#include <thread>
#include <utility>

#include <c10/util/Exception.h>
#include <torch/csrc/distributed/c10d/PrefixStore.hpp>
#include <torch/csrc/distributed/c10d/ProcessGroup.hpp>
#include <torch/csrc/distributed/c10d/ProcessGroupGloo.hpp>

#include "comm/engine/c10d/backend_channel.h"
#include "comm/engine/c10d/gloo_channel.h"
#include "comm/engine/c10d/store/job_store.h"
#include "comm/engine/c10d/store/store_events.h"

namespace tessera::detail::inline comm_layer {
namespace {

using BackendPtr = c10::intrusive_ptr<::c10d::Backend>;
using GroupPtr = c10::intrusive_ptr<::c10d::ProcessGroup>;

/// What moves the calls of a whole group, where Gloo does not.
struct ReadyGroup {
  BackendPtr backend;
  c10::Device device;
  BackendOwner owner;
};

struct TransportParts {
  std::string name;
  int64_t rank;
  int64_t size;
  StorePtr store;         // may be missing beside a ReadyGroup
  GlooDevices devices;    // of Gloo groups; empty: those of `interface`
  std::string interface;  // "": loopback
  std::optional<ReadyGroup> ready;
  // How long this process, which serves the store, stays for the others.
  std::chrono::milliseconds stays = std::chrono::milliseconds(0);
};

constexpr auto kJoinPollInterval = std::chrono::milliseconds(5);

class C10dTransport final : public Transport {
 public:
  explicit C10dTransport(TransportParts parts) : parts_(std::move(parts)) {
    if (parts_.store) {
      events_.emplace(parts_.store, parts_.rank, parts_.size);
    }
  }

  ~C10dTransport() override {
    if (events_) {
      events_->mark_dead();
      stay();
    }
  }

  int64_t rank() const override { return parts_.rank; }
  int64_t size() const override { return parts_.size; }
  std::string name() const override { return parts_.name; }

  std::unique_ptr<Channel> join(
      const std::vector<int64_t>& ranks, const std::string& key) override {
    const bool all = std::is_sorted(ranks.begin(), ranks.end()) &&
                     static_cast<int64_t>(ranks.size()) == parts_.size;
    if (all && parts_.ready) {
      return make_backend_channel(
          parts_.ready->backend, parts_.ready->device, parts_.ready->owner,
          parts_.store ? gloo_channel(ranks, key) : nullptr);
    }
    TORCH_CHECK_NOT_IMPLEMENTED(
        parts_.store, key, ", rank ", parts_.rank,
        ": a smaller group, or one in another order, is made through the "
        "process group's store, but it has none; use the whole group, or a "
        "process group that was made with a store");
    return gloo_channel(ranks, key);
  }

  void notify(
      const std::vector<int64_t>& /*ranks*/,
      const PeerEvent& event) noexcept override {
    if (events_) {
      events_->notify(event);
    }
  }
  std::vector<PeerEvent> poll_events(uint64_t world) override {
    return events_ ? events_->poll_events(world) : std::vector<PeerEvent>();
  }

 private:
  // Ranks that end later hear of each other through the store.
  void stay() noexcept {
    const auto limit = std::chrono::steady_clock::now() + parts_.stays;
    try {
      while (std::chrono::steady_clock::now() < limit &&
             !events_->others_are_dead()) {
        std::this_thread::sleep_for(kJoinPollInterval);
      }
    } catch (...) {
      static_cast<void>(0);  // the store is gone already
    }
  }

  std::unique_ptr<Channel> gloo_channel(
      const std::vector<int64_t>& ranks, const std::string& key) {
    if (parts_.devices.empty()) {
      parts_.devices = gloo_devices(parts_.interface);
    }
    const auto group_rank = std::find(ranks.begin(), ranks.end(), parts_.rank);
    return make_gloo_channel(
        c10::make_intrusive<::c10d::PrefixStore>(key, parts_.store),
        parts_.devices, group_rank - ranks.begin(),
        static_cast<int64_t>(ranks.size()));
  }

  TransportParts parts_;
  std::optional<StoreEvents> events_;
};

// A connection of our own to the group's store: a wait of the program in its
// one blocks that for all threads. Under a number that only this network has:
// the ranks count their networks in the store.
StorePtr store_beside(const ::c10d::ProcessGroup& group) {
  StorePtr store = group.getStore();
  // Python puts a prefix before no store at all for MPI.
  for (auto inner = store; inner;) {
    auto* prefix = dynamic_cast<::c10d::PrefixStore*>(inner.get());
    if (prefix == nullptr) {
      break;
    }
    inner = prefix->getUnderlyingStore();
    if (!inner) {
      return inner;
    }
  }
  if (!store) {
    return store;
  }
  try {
    store = store->clone();
  } catch (const std::exception&) {
    store = group.getStore();  // a store written in Python
  }
  store = c10::make_intrusive<::c10d::PrefixStore>("tessera", store);
  const int64_t number =
      store->add("networks of rank " + std::to_string(group.getRank()), 1);
  return c10::make_intrusive<::c10d::PrefixStore>(
      std::to_string(number), std::move(store));
}

c10::DeviceType device_type_of(const ::c10d::ProcessGroup& group) {
  const auto devices = group.getDeviceTypes();
  TORCH_CHECK_VALUE(
      !devices.empty(), "from_process_group, rank ", group.getRank(),
      ": the process group has no backend; call setBackend() first");
  for (const c10::Device& device : devices) {
    if (device.is_cpu()) {
      return at::kCPU;
    }
  }
  return devices[0].type();
}

// The devices of the program's Gloo: it knows what network the ranks share.
GlooDevices devices_of(::c10d::ProcessGroup& group) {
  const BackendPtr backend = group.getBackend(device_type_of(group));
  auto* gloo = dynamic_cast<::c10d::ProcessGroupGloo*>(backend.get());
  return gloo == nullptr ? GlooDevices() : gloo->getOptions()->devices;
}

// A part of a backend with all its ranks.
BackendPtr split_off(::c10d::ProcessGroup& group, c10::DeviceType type) {
  std::vector<int> ranks(static_cast<size_t>(group.getSize()));
  std::iota(ranks.begin(), ranks.end(), 0);
  return group
      .splitGroup(ranks, std::nullopt, std::nullopt, std::nullopt, "tessera")
      ->getBackend(type);
}

// See Note [What travels over a program's group].
std::optional<ReadyGroup> ready_group(
    ::c10d::ProcessGroup& group, bool has_store) {
  const c10::DeviceType type = device_type_of(group);
  const BackendPtr backend = group.getBackend(type);
  const c10::Device device =
      type == at::kCPU ? type : group.getBoundDeviceId().value_or(type);
  if (!has_store) {
    return ReadyGroup{backend, device, BackendOwner::kProgram};
  }
  if (type != at::kCPU && backend->supportsSplitting()) {
    return ReadyGroup{split_off(group, type), device, BackendOwner::kChannel};
  }
  return std::nullopt;
}

}  // namespace

std::unique_ptr<Transport> open_gloo_transport(
    const Launch& launch, std::chrono::milliseconds deadline) {
  std::string interface = gloo_interface(launch);
  const MeetingPoint point = find_meeting_point(launch);
  return std::make_unique<C10dTransport>(TransportParts{
      .name = "gloo",
      .rank = launch.rank,
      .size = launch.size,
      .store = open_job_store(point, launch, deadline),
      .devices = {},
      .interface = std::move(interface),
      .ready = {},
      .stays = point.serves ? deadline : std::chrono::milliseconds(0)});
}

std::unique_ptr<Transport> open_group_transport(const GroupPtr& group) {
  TransportParts parts{
      .name = "c10d",
      .rank = group->getRank(),
      .size = group->getSize(),
      .store = store_beside(*group),
      .devices = {},
      .interface = {},
      .ready = {}};
  for (const char* name : {"TESSERA_INTERFACE", "GLOO_SOCKET_IFNAME"}) {
    if (parts.interface.empty()) {
      parts.interface = environment(name);
    }
  }
  parts.ready = ready_group(*group, parts.store.defined());
  parts.devices = devices_of(*group);
  return std::make_unique<C10dTransport>(std::move(parts));
}

}  // namespace tessera::detail::inline comm_layer
