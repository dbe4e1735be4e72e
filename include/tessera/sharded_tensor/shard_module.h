// Modules with sharded parameters.
//
// Parameters are converted in place (tessera/tensor/dtensor.h, make_dtensor_),
// so a module's own forward() works on them as it stands. C++ modules have no
// hooks: what a plan says about outputs is applied by the call object that
// shard_module() returns.
#pragma once

#include <concepts>
#include <cstdint>
#include <functional>
#include <map>
#include <memory>
#include <string>
#include <utility>
#include <variant>
#include <vector>

#include <ATen/core/Tensor.h>
#include <tessera/sharded_tensor/process_group.h>
#include <tessera/sharded_tensor/sharded_tensor.h>
#include <tessera/sharded_tensor/sharding_spec.h>

namespace torch::nn {
class Module;
}

namespace tessera::sharded_tensor {

/// Shards a whole sub-module in a way of its own.
class Sharder {
 public:
  virtual ~Sharder() = default;
  /// Returns what takes the module's place: another module, or the same one.
  virtual std::shared_ptr<torch::nn::Module> shard(
      const std::shared_ptr<torch::nn::Module>& module) = 0;
};

/// What a plan says about a name: how a parameter is cut, or who shards a
/// module.
class PlanEntry {
 public:
  PlanEntry(const ShardingSpec& spec) : value_(spec.clone()) {}
  PlanEntry(ShardingSpecPtr spec) : value_(std::move(spec)) {}
  template <class S>
  requires std::derived_from<S, Sharder> PlanEntry(std::shared_ptr<S> sharder)
      : value_(std::shared_ptr<Sharder>(std::move(sharder))) {}

  /// Returns the spec, or nullptr.
  const ShardingSpec* spec() const;
  /// Returns the sharder, or nullptr.
  Sharder* sharder() const;

 private:
  std::variant<ShardingSpecPtr, std::shared_ptr<Sharder>> value_;
};

/// How a module is sharded, by paths such as "encoder.fc1.weight"; "" is the
/// module itself.
struct ShardingPlan {
  /// Parameter path -> spec, or module path -> Sharder.
  std::map<std::string, PlanEntry> plan = {};
  /// Module path -> how its output is cut.
  std::map<std::string, PlanEntry> output_plan = {};
  /// Modules whose output becomes this rank's shard, as a plain tensor.
  std::vector<std::string> return_local_tensor = {};
};

/// Makes plans for modules; users derive their own.
class ShardingPlanner {
 public:
  virtual ~ShardingPlanner() = default;
  virtual ShardingPlan build_plan(const torch::nn::Module& module) = 0;
};

}  // namespace tessera::sharded_tensor
