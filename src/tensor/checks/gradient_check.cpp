#include <tensor/checks/gradient_check.h>

#include <cstdlib>
#include <string_view>

#include <base/text.h>
#include <c10/core/GradMode.h>
#include <c10/util/Exception.h>
#include <comm/engine/inherited_modes.h>
#include <comm/log/call_cause.h>
#include <tensor/checks/replicas.h>
#include <tensor/impl/sharded_impl.h>
#include <tensor/move/view_copies.h>
#include <tessera/tensor/gradient_check.h>
#include <torch/csrc/autograd/functions/accumulate_grad.h>
#include <torch/csrc/autograd/variable.h>

namespace tessera {

namespace {

bool asked_by_environment() noexcept {
  static const bool asked = [] {
    const char* value = std::getenv("TESSERA_CHECK_GRADIENTS");
    return value != nullptr && *value != '\0' && std::string_view(value) != "0";
  }();
  return asked;
}

const ReplicaCheckOptions* check_options() {
  return detail::mode_value<ReplicaCheckOptions>(detail::Mode::kGradientCheck);
}

constexpr const char* kAdvice =
    "; usual cause: to_local() of a replicated tensor, used differently on "
    "each rank: give it .grad_placements = Placements{Partial()} there; else "
    "look for data or random numbers that differ between ranks";

std::string shorten(std::vector<std::string> lines) {
  constexpr size_t kShown = 8;
  const size_t hidden = lines.size() > kShown ? lines.size() - kShown : 0;
  lines.resize(lines.size() - hidden);
  if (hidden > 0) {
    lines.push_back("and " + std::to_string(hidden) + " more");
  }
  return base::join(lines, "; ");
}

void raise(const DeviceMesh& mesh, std::vector<std::string> lines) {
  TORCH_CHECK_VALUE(
      lines.empty(), "replicas on ", to_string(mesh),
      " differ between ranks: ", shorten(std::move(lines)), kAdvice);
}

// What check_replicas() compares on one mesh.
struct MeshReplicas {
  DeviceMesh mesh;
  std::vector<detail::Replica> replicas;
};

std::vector<detail::Replica>& list_of(
    std::vector<MeshReplicas>& lists, const DeviceMesh& mesh) {
  for (MeshReplicas& list : lists) {
    if (list.mesh == mesh) {
      return list.replicas;
    }
  }
  return lists.emplace_back(MeshReplicas{mesh, {}}).replicas;
}

at::Tensor gradient_of(const at::Tensor& tensor) {
  return tensor.is_leaf() || tensor.retains_grad() ? tensor.grad()
                                                   : at::Tensor();
}

void add_replicas(
    std::vector<MeshReplicas>& lists, const std::string& name,
    const at::Tensor& tensor) {
  const SpecPtr& spec = detail::meta_ready(tensor).spec;
  if (!detail::has_replicas(*spec)) {
    return;
  }
  auto& list = list_of(lists, spec->mesh());
  const std::string text = "'" + name + "' (" + to_string(*spec) + ")";
  list.push_back({text, detail::refreshed_shard(tensor).detach(), spec});
  const at::Tensor gradient = gradient_of(tensor);
  const bool sharded = detail::is_sharded(gradient) &&
                       detail::spec_of(gradient).mesh() == spec->mesh();
  list.push_back(
      {"gradient of " + text,
       sharded ? detail::refreshed_shard(gradient).detach() : at::Tensor(),
       sharded ? detail::meta_ready(gradient).spec : spec});
}

}  // namespace

void check_replicas(
    const std::vector<std::pair<std::string, at::Tensor>>& tensors,
    const ReplicaCheckOptions& options) {
  c10::NoGradGuard no_grad;
  std::vector<MeshReplicas> lists;
  for (const auto& [name, tensor] : tensors) {
    if (detail::is_sharded(tensor)) {
      add_replicas(lists, name, tensor);
    }
  }
  for (const MeshReplicas& list : lists) {
    const detail::CallCause cause("check_replicas", &list.mesh);
    raise(
        list.mesh, detail::replica_differences(
                       list.replicas, list.mesh, options.tolerance));
  }
}

void name_tensor(const at::Tensor& tensor, const std::string& name) {
  TORCH_CHECK_VALUE(tensor.defined(), "name_tensor: the tensor is undefined");
  torch::autograd::impl::set_name(tensor, name);
}

GradientCheck::GradientCheck(const ReplicaCheckOptions& options)
    : outer_(detail::exchange_mode(
          detail::Mode::kGradientCheck,
          std::make_shared<const ReplicaCheckOptions>(options))) {}
GradientCheck::~GradientCheck() {
  detail::exchange_mode(detail::Mode::kGradientCheck, std::move(outer_));
}

namespace detail::inline tensor_layer {

bool checks_gradients() {
  return check_options() != nullptr || asked_by_environment();
}

void check_gradient(const at::Tensor& gradient, const std::string& what) {
  const SpecPtr& spec = meta_ready(gradient).spec;
  if (!has_replicas(*spec)) {
    return;
  }
  c10::NoGradGuard no_grad;
  const CallCause cause("gradient check", &spec->mesh());
  raise(
      spec->mesh(),
      replica_differences(
          {{what + ", which arrived as " + to_string(spec->placements()),
            refreshed_shard(gradient).detach(), spec}},
          spec->mesh(),
          check_options() != nullptr ? check_options()->tolerance
                                     : ReplicaCheckOptions().tolerance));
}

std::string name_of(const at::Tensor& tensor) {
  const std::string text = to_string(spec_of(tensor));
  return tensor.name().empty() ? text
                               : "'" + tensor.name() + "' (" + text + ")";
}

std::string name_of_source(
    const torch::autograd::Edge& edge, const DTensorSpec& spec) {
  if (!edge.is_valid()) {
    return to_string(spec);
  }
  const auto* leaf =
      dynamic_cast<torch::autograd::AccumulateGrad*>(edge.function.get());
  if (leaf != nullptr && is_sharded(leaf->variable)) {
    return name_of(leaf->variable);
  }
  return to_string(spec) + " made by " + edge.function->name();
}

}  // namespace detail::inline tensor_layer
}  // namespace tessera
