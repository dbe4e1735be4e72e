// fully_shard: a module of which each rank keeps a part of every parameter,
// gradient and optimizer state.
//
// Parameters are cut along a mesh dim and gathered, a group at a time, when a
// call uses them. Autograd's graph is that of the whole parameters; each group
// adds up its gradients over the ranks, in one reduction, when its backward is
// complete. Modules stay as they are: any function may use their parameters.
#pragma once

#include <cstdint>
#include <functional>
#include <iosfwd>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include <ATen/core/Tensor.h>
#include <tessera/comm/device_mesh.h>
#include <tessera/export.h>
#include <tessera/layout/placement.h>

namespace torch::nn {
class Module;
}

namespace tessera {

namespace detail::inline parallel_layer {
class ShardedModel;
}

/// The dtypes of a fully sharded module; parameters keep their own.
struct MixedPrecisionPolicy {
  /// Of gathered parameters, so of computation and of what is gathered.
  std::optional<c10::ScalarType> param_dtype = {};
  /// In which gradients are summed; without it param_dtype.
  std::optional<c10::ScalarType> reduce_dtype = {};
};

struct FullyShardOptions {
  /// The mesh dim that parameters are cut along: by default "dp" where the mesh
  /// has a dim of that name, else its first one.
  std::string mesh_dim = {};
  /// A mesh dim along which shards are copied: each part of the mesh has a
  /// whole model (HSDP).
  std::string replicate_dim = {};
  /// Paths of modules, with globs. Each module that matches is a group; what
  /// lies in none belongs to the root group.
  std::vector<std::string> groups = {};
  /// Whether gathered parameters are given back when the forward of their group
  /// ends. By default true, and false for the root group.
  std::optional<bool> reshard_after_forward = {};
  MixedPrecisionPolicy mp_policy = {};
  /// Groups that are gathered ahead, in the order of the last step.
  int64_t prefetch = 1;
  /// Reductions under way while the next group is reduced.
  int64_t max_reductions = 1;
  /// Parameters of a group that have no gradient count as zeros, on all ranks.
  bool fill_unused = false;
  /// Paths of parameters that stay as they are.
  std::vector<std::string> ignored_params = {};
  /// What a plain tensor in a call with a parameter is on a mesh of one dim:
  /// this rank's part. Refused where it is not set.
  std::optional<Placement> plain_input = Shard(0);
  /// How a parameter is cut; Shard(0) where it is not set.
  std::function<Placement(const std::string& name, const at::Tensor&)>
      placement = {};
};

/// What fully_shard() made, and what the last step did.
struct FullyShardReport {
  struct Group {
    std::string path;  // "" is the root group
    std::vector<std::string> members;
    int64_t shard_bytes = 0;      // of this rank
    int64_t unsharded_bytes = 0;  // gathered
    bool is_gathered = false;
    /// Gathered memory that a plain tensor of the program keeps.
    int64_t handed_out_bytes = 0;
    /// Gradients wait for the pass that ends an Accumulate.
    bool is_accumulating = false;
  };
  std::vector<Group> groups;
  /// Paths in the order in which the last step first used them, and in which
  /// its backward gathered them.
  std::vector<std::string> forward_order;
  std::vector<std::string> backward_order;
  /// Of the last step.
  int64_t gathers = 0;
  int64_t reductions = 0;
  int64_t gathered_bytes = 0;
  int64_t peak_gathered_bytes = 0;
};
TESSERA_API std::string to_string(const FullyShardReport& report);
TESSERA_API std::ostream& operator<<(
    std::ostream& out, const FullyShardReport& report);

/// A handle to what fully_shard() made, which lives with the parameters.
class TESSERA_API FullyShard {
 public:
  explicit FullyShard(std::weak_ptr<detail::ShardedModel> model)
      : model_(std::move(model)) {}

  /// Begins to gather the groups at and below a path, to be used soon.
  void unshard(const std::string& path = "");
  /// Gives gathered parameters at and below a path back.
  void reshard(const std::string& path = "");
  FullyShardReport report() const;

  /// While it lives, backward passes accumulate: the micro-batches of a step,
  /// all but the last. Gradients are there after the last one.
  class Accumulate {
   public:
    enum class Keep : uint8_t {
      kShards,              // gradients are reduced in each pass
      kUnreduced,           // whole gradients are kept, and reduced once
      kUnreducedAndWeights  // gathered parameters stay, too
    };
    explicit Accumulate(FullyShard& sharded, Keep keep = Keep::kShards);
    ~Accumulate();
    Accumulate(const Accumulate&) = delete;
    Accumulate& operator=(const Accumulate&) = delete;

   private:
    std::shared_ptr<detail::ShardedModel> model_;
  };

 private:
  std::weak_ptr<detail::ShardedModel> model_;
};

/// Cuts the parameters of a module along a mesh dim, in place. Parameters are
/// plain and equal on all ranks, deferred, or on `mesh` by parallelize_module()
/// before. Collective; nothing is communicated. Example:
///   auto sharded = fully_shard(*model, mesh, {.groups = {"blocks.*"}});
///   torch::optim::AdamW optimizer(model->parameters());
///   loss_of(model(inputs)).backward();
///   optimizer.step();
TESSERA_API FullyShard fully_shard(
    torch::nn::Module& module, const DeviceMesh& mesh,
    const FullyShardOptions& options = {});

}  // namespace tessera
