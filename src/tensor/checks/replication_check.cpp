#include <tensor/checks/replication_check.h>

#include <cstdlib>
#include <string_view>

#include <base/text.h>
#include <c10/core/GradMode.h>
#include <c10/util/Exception.h>
#include <comm/engine/inherited_modes.h>
#include <comm/log/call_cause.h>
#include <tensor/call/observer.h>
#include <tensor/checks/replicas.h>
#include <tensor/impl/sharded_impl.h>
#include <tensor/state/plain_is_replicated.h>
#include <tessera/tensor/replication_check.h>

namespace tessera {

namespace {

bool asked_by_environment() noexcept {
  static const bool asked = [] {
    const char* value = std::getenv("TESSERA_CHECK_REPLICATION");
    return value != nullptr && *value != '\0' && std::string_view(value) != "0";
  }();
  return asked;
}

}  // namespace

ReplicationCheck::ReplicationCheck()
    : outer_(detail::exchange_mode(
          detail::Mode::kReplicationCheck,
          std::make_shared<const bool>(true))) {}
ReplicationCheck::~ReplicationCheck() {
  detail::exchange_mode(detail::Mode::kReplicationCheck, std::move(outer_));
}

namespace detail::inline tensor_layer {

namespace {

bool is_plain(const at::Tensor& t) {
  return t.defined() && !is_sharded(t) &&
         !t.unsafeGetTensorImpl()->is_wrapped_number();
}

Replica replica_of(const NamedPlain& plain, const DeviceMesh& mesh) {
  const Placements unsharded(static_cast<size_t>(mesh.ndim()), Replicate());
  const at::Tensor value = plain.tensor.detach().resolve_conj().resolve_neg();
  return {
      plain.name, value.to(c10::Device(mesh.device_type())),
      DTensorSpec::make(
          mesh, unsharded, value.sizes().vec(), value.scalar_type())};
}

}  // namespace

bool checks_replication() {
  return mode_value<bool>(Mode::kReplicationCheck) != nullptr ||
         asked_by_environment();
}

void check_replication(
    const std::string& call, const std::vector<NamedPlain>& tensors,
    const DeviceMesh& mesh) {
  if (!mesh.coordinate() || mesh.size() == 1) {
    return;
  }
  std::vector<Replica> replicas;
  for (const NamedPlain& plain : tensors) {
    if (!plain.tensor.is_meta()) {
      replicas.push_back(replica_of(plain, mesh));
    }
  }
  if (replicas.empty()) {
    return;
  }
  const c10::NoGradGuard no_grad;
  const CallCause cause("replication check", &mesh);
  const std::vector<std::string> lines =
      replica_differences(replicas, mesh, /*tolerance=*/0);
  TORCH_CHECK_VALUE(
      lines.empty(), call, ", rank ", mesh.world().rank(),
      ": a plain tensor is taken to be equal on all ranks, and it is not: ",
      base::join(lines, "; "),
      "; broadcast it first, or say with from_local() what each rank's part "
      "of it is");
}

void check_replication(const OpCall& call) {
  std::vector<NamedPlain> tensors;
  bool any_sharded = false;
  for (size_t i = 0; i < call.size(); ++i) {
    for_each_tensor(call.argument(i), [&](const at::Tensor& t) {
      any_sharded = any_sharded || is_sharded(t);
      if (is_plain(t)) {
        const std::string& name = call.schema().arguments()[i].name();
        tensors.push_back({"argument '" + name + "'", t});
      }
    });
  }
  if (any_sharded && !tensors.empty()) {
    const std::string text = full_name(call.op().operator_name());
    check_replication(
        text + " on " + to_string(*call.mesh()), tensors, *call.mesh());
  }
}

void check_plain(const OpCall& call, bool may_mix) {
  if (!may_mix) {
    call.check_no_mix();
  }
  if (checks_replication() && !PlainIsReplicated::by_construction() &&
      CallObserver::current() == nullptr) {
    check_replication(call);
  }
}

}  // namespace detail::inline tensor_layer
}  // namespace tessera
