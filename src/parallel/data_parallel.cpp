#include <tessera/parallel/data_parallel.h>

#include <algorithm>
#include <map>
#include <memory>
#include <set>
#include <string>
#include <vector>

#include <c10/core/GradMode.h>
#include <c10/util/Exception.h>
#include <comm/log/call_cause.h>
#include <parallel/mesh_dim.h>
#include <tensor/autograd/leaf_gradient.h>
#include <tensor/move/group_move.h>
#include <tensor/uses/member_use.h>
#include <tessera/tensor/dtensor.h>
#include <torch/csrc/autograd/function_hook.h>
#include <torch/csrc/autograd/variable.h>
#include <torch/nn/module.h>

namespace tessera {

namespace {

using detail::GroupItem;
using detail::GroupMoveKind;
using detail::GroupPlan;

struct Named {
  at::Tensor parameter;
  std::string name;
};

// A gradient that is on its way.
struct Started {
  at::Tensor parameter;
  at::Tensor gradient;  // as it was when the bucket began
};

// Parameters whose gradients are reduced together, and what is under way.
struct Bucket {
  std::vector<Named> parameters;
  /// Parameters that had no gradient in the last step: not waited for.
  std::set<const c10::TensorImpl*> unused;
  /// Those whose gradient came, in backward passes that do not accumulate.
  std::set<const c10::TensorImpl*> arrived;
  size_t changes = 0;   // gradients that came, in all of them
  size_t begun_at = 0;  // `changes` when it began
  std::vector<Started> started;
  std::shared_ptr<const GroupPlan> plan;  // that of the last time
  std::shared_ptr<detail::MovingGroup> moving;
};

bool is_unreduced(const at::Tensor& gradient, size_t dim) {
  return gradient.defined() && is_dtensor(gradient) &&
         spec(gradient).placements()[dim].is_partial();
}

SpecPtr reduced_spec(const DTensorSpec& unreduced, size_t dim) {
  Placements placements = unreduced.placements();
  placements[dim] = Replicate();
  return unreduced.with_placements(placements);
}

// Tells whether a plan reduces just these gradients.
bool serves(const GroupPlan& plan, const std::vector<Started>& started) {
  return std::equal(
      plan.items().begin(), plan.items().end(), started.begin(), started.end(),
      [](const GroupItem& item, const Started& one) {
        return item.from.get() == &spec(one.gradient);
      });
}

std::shared_ptr<const GroupPlan> plan_of(
    const std::vector<Started>& started, const std::string& names, size_t dim) {
  std::vector<GroupItem> items;
  for (const Started& one : started) {
    const DTensorSpec& unreduced = spec(one.gradient);
    items.push_back(
        {unreduced.shared_from_this(), reduced_spec(unreduced, dim)});
  }
  const c10::ScalarType dtype = items[0].from->dtype();
  return GroupPlan::make(
      GroupMoveKind::kAllReduce, static_cast<int64_t>(dim), std::move(items),
      dtype, names);
}

}  // namespace

// Note [Buckets in one order]
// Reductions are collective, so all ranks of the dim must begin them in one
// order: that of the buckets, last layers first, whatever order gradients
// arrive in. A bucket that is full waits for those before it. One whose
// gradients change after it began, by another backward pass of the same step,
// is reduced again at the end.
struct DataParallel::State {
  State(const DeviceMesh& on, int64_t along) : mesh(on), dim(along) {}

  DeviceMesh mesh;
  int64_t dim;
  std::vector<Bucket> buckets;
  std::map<const c10::TensorImpl*, size_t> bucket_of;
  size_t next = 0;  // the first bucket that has not begun
  int accumulating = 0;

  void arrive(const at::Tensor& parameter) {
    const auto found = bucket_of.find(parameter.unsafeGetTensorImpl());
    if (found == bucket_of.end()) {
      return;
    }
    ++buckets[found->second].changes;
    if (accumulating > 0) {
      return;
    }
    buckets[found->second].arrived.insert(found->first);
    while (next < buckets.size() && is_full(buckets[next])) {
      begin(buckets[next++]);
    }
  }

  void finish() {
    while (next < buckets.size()) {
      begin(buckets[next++]);
    }
    for (Bucket& bucket : buckets) {
      if (bucket.changes != bucket.begun_at) {
        bucket.moving.reset();
        begin(bucket);
      }
      end(bucket);
    }
    next = 0;
  }

 private:
  static bool is_full(const Bucket& bucket) {
    return std::all_of(
        bucket.parameters.begin(), bucket.parameters.end(),
        [&](const Named& named) {
          const auto* impl = named.parameter.unsafeGetTensorImpl();
          return bucket.arrived.contains(impl) || bucket.unused.contains(impl);
        });
  }

  // Gradients are copied, since the next pass may add to them on the way.
  void begin(Bucket& bucket) {
    const at::NoGradGuard no_grad;
    const auto d = static_cast<size_t>(dim);
    bucket.begun_at = bucket.changes;
    bucket.started.clear();
    std::string names;
    std::vector<at::Tensor> shards;
    for (const auto& [parameter, name] : bucket.parameters) {
      if (is_unreduced(parameter.grad(), d)) {
        bucket.started.push_back({parameter, parameter.grad()});
        shards.push_back(to_local(parameter.grad()));
        names.append(names.empty() ? "{" : ", ").append(name);
      }
    }
    if (shards.empty()) {
      return;
    }
    if (bucket.plan == nullptr || !serves(*bucket.plan, bucket.started)) {
      bucket.plan = plan_of(bucket.started, names + "}", d);
    }
    const detail::CallCause cause("DataParallel", &mesh);
    bucket.moving = start_group(
        bucket.plan, shards, /*results=*/shards, detail::Operands::kMayChange);
  }

  void end(Bucket& bucket) {
    const at::NoGradGuard no_grad;
    if (bucket.moving != nullptr) {
      bucket.moving->wait();
    }
    for (const auto& [parameter, unreduced] : bucket.started) {
      if (parameter.grad().is_same(unreduced)) {
        parameter.mutable_grad() = from_local(
            to_local(unreduced), mesh,
            reduced_spec(spec(unreduced), static_cast<size_t>(dim))
                ->placements(),
            {.shape = unreduced.sizes().vec(),
             .stride = unreduced.strides().vec()});
      }
    }
    bucket.started.clear();
    bucket.moving.reset();
    bucket.unused.clear();
    for (const auto& [parameter, name] : bucket.parameters) {
      if (!bucket.arrived.contains(parameter.unsafeGetTensorImpl())) {
        bucket.unused.insert(parameter.unsafeGetTensorImpl());
      }
    }
    bucket.arrived.clear();
    bucket.changes = bucket.begun_at = 0;
  }
};

namespace {

struct ArrivalHook final : torch::autograd::PostAccumulateGradHook {
  explicit ArrivalHook(std::function<void(const at::Tensor&)> call)
      : arrive(std::move(call)) {}
  void operator()(const at::Tensor& parameter) override { arrive(parameter); }
  std::function<void(const at::Tensor&)> arrive;
};

int64_t bytes_of(const at::Tensor& parameter) {
  return to_local(parameter.detach()).numel() *
         static_cast<int64_t>(parameter.element_size());
}

// Last layers first: their gradients come first.
std::vector<Bucket> fill_buckets(
    const std::vector<Named>& parameters, int64_t bucket_bytes) {
  std::vector<Bucket> buckets;
  int64_t bytes = 0;
  for (auto it = parameters.rbegin(); it != parameters.rend(); ++it) {
    const bool full = buckets.empty() ||
                      bytes + bytes_of(it->parameter) > bucket_bytes ||
                      buckets.back().parameters[0].parameter.scalar_type() !=
                          it->parameter.scalar_type();
    if (full) {
      buckets.emplace_back();
      bytes = 0;
    }
    buckets.back().parameters.push_back(*it);
    bytes += bytes_of(it->parameter);
  }
  return buckets;
}

// Returns the parameters that are replicated along the mesh dim, each once.
std::vector<Named> reduced_parameters(
    const torch::nn::Module& module, const DeviceMesh& mesh, int64_t dim) {
  std::vector<Named> parameters;
  std::set<const c10::TensorImpl*> seen;
  for (const auto& item : module.named_parameters()) {
    const at::Tensor& parameter = item.value();
    if (!parameter.defined() || !parameter.requires_grad() ||
        !seen.insert(parameter.unsafeGetTensorImpl()).second) {
      continue;
    }
    TORCH_CHECK_VALUE(
        is_dtensor(parameter) && spec(parameter).mesh() == mesh,
        "DataParallel: every parameter must be on ", to_string(mesh), "; got ",
        item.key(), is_dtensor(parameter) ? " on another mesh" : ", plain",
        "; put the module there first: parallelize_module(), "
        "distribute_module()");
    TORCH_CHECK_VALUE(
        detail::member_of(parameter) == nullptr, "DataParallel: ", item.key(),
        " is fully sharded, and its group reduces its gradient; use one of the "
        "two");
    TORCH_CHECK_VALUE(
        torch::autograd::impl::post_acc_grad_hooks(parameter) == nullptr,
        "DataParallel: ", item.key(),
        " has a hook that runs after its gradient is added up already; remove "
        "it, or the other DataParallel");
    if (placements(parameter)[static_cast<size_t>(dim)].is_replicate()) {
      parameters.push_back({parameter, item.key()});
    }
  }
  return parameters;
}

}  // namespace

DataParallel::DataParallel(
    torch::nn::Module& module, const DeviceMesh& mesh,
    const DataParallelOptions& options)
    : state_(std::make_shared<State>(
          mesh, detail::find_mesh_dim(
                    "DataParallel", mesh, options.mesh_dim, "dp", 0))) {
  TORCH_CHECK_VALUE(
      options.bucket_bytes > 0, "DataParallel: bucket_bytes must be above 0; ",
      "got ", options.bucket_bytes);
  state_->buckets = fill_buckets(
      reduced_parameters(module, mesh, state_->dim), options.bucket_bytes);
  for (size_t b = 0; b < state_->buckets.size(); ++b) {
    for (const auto& [parameter, name] : state_->buckets[b].parameters) {
      state_->bucket_of[parameter.unsafeGetTensorImpl()] = b;
      detail::keep_unreduced(parameter, state_->dim);
      torch::autograd::impl::set_post_acc_grad_hooks(
          parameter,
          std::make_unique<ArrivalHook>(
              [state = std::weak_ptr<State>(state_)](const at::Tensor& t) {
                if (const auto live = state.lock()) {
                  live->arrive(t);
                }
              }));
    }
  }
}

DataParallel::~DataParallel() {
  for (const Bucket& bucket : state_->buckets) {
    for (const auto& [parameter, name] : bucket.parameters) {
      if (is_dtensor(parameter)) {
        detail::keep_unreduced(parameter, std::nullopt);
      }
      torch::autograd::impl::set_post_acc_grad_hooks(parameter, nullptr);
    }
  }
}

void DataParallel::reduce_gradients() {
  state_->finish();
}

int64_t DataParallel::bucket_count() const {
  return static_cast<int64_t>(state_->buckets.size());
}

DataParallel::Accumulate::Accumulate(DataParallel& parallel)
    : parallel_(parallel) {
  ++parallel_.state_->accumulating;
}
DataParallel::Accumulate::~Accumulate() {
  --parallel_.state_->accumulating;
}

}  // namespace tessera
