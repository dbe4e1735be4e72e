// ShardingPlan: how a module is sharded, before it is.
#pragma once

#include <concepts>
#include <functional>
#include <map>
#include <memory>
#include <string>
#include <type_traits>
#include <utility>
#include <variant>
#include <vector>

#include <tessera/export.h>
#include <tessera/sharded_tensor/sharding_spec.h>

namespace torch::nn {
class AnyModule;
class Module;
}  // namespace torch::nn

namespace tessera::detail::inline sharded_tensor_layer {

// Tells which forward() LibTorch's AnyModule can call.
template <class F>
inline constexpr bool is_boxable = false;
template <class Result, class Class, class... Arguments>
inline constexpr bool is_boxable<Result (Class::*)(Arguments...)> =
    !std::is_void_v<Result> &&
    ((!std::is_lvalue_reference_v<Arguments> ||
      std::is_const_v<std::remove_reference_t<Arguments>>)&&...);

}  // namespace tessera::detail::inline sharded_tensor_layer

namespace tessera::sharded_tensor {

/// A module that takes another's place, made of a shared_ptr or a holder. What
/// goes into a torch::nn::Sequential must come as its own type, since
/// Sequential calls forward() by it.
class Replacement {
 public:
  template <class Impl, class Any = torch::nn::AnyModule>
  requires std::derived_from<Impl, torch::nn::Module> Replacement(
      std::shared_ptr<Impl> module)
      : module_(module) {
    if constexpr (requires { &Impl::forward; }) {
      if constexpr (detail::is_boxable<decltype(&Impl::forward)>) {
        box_ = [module](torch::nn::AnyModule& slot) {
          static_cast<Any&>(slot) = Any(module);
        };
      }
    }
  }
  template <class Holder>
  requires requires(const Holder& holder) { holder.ptr(); }
  Replacement(const Holder& holder) : Replacement(holder.ptr()) {}

  const std::shared_ptr<torch::nn::Module>& module() const { return module_; }
  /// Puts the module into a slot of a Sequential; empty where its type is not
  /// known or has no forward() that Sequential could call.
  const std::function<void(torch::nn::AnyModule&)>& box() const { return box_; }

 private:
  std::shared_ptr<torch::nn::Module> module_;
  std::function<void(torch::nn::AnyModule&)> box_;
};

/// Shards a whole sub-module in a way of its own.
class TESSERA_API Sharder {
 public:
  virtual ~Sharder() = default;
  /// Returns what takes the module's place: another module, or the same one.
  ///
  /// The registry of the parent gets it, and so do the calls of Sequential,
  /// ModuleList and ModuleDict. A typed member of the parent (`Linear fc1`)
  /// keeps the module that it had: there, shard in place and return the same
  /// module, or let the parent fetch it by name.
  virtual Replacement shard(
      const std::shared_ptr<torch::nn::Module>& module) = 0;
};

/// What a plan says about a name: how a parameter is cut, or who shards a
/// module.
class TESSERA_API PlanEntry {
 public:
  /// Says nothing, and is refused; for plan["encoder.weight"] = spec.
  PlanEntry() = default;
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
  /// Modules whose output becomes this rank's shard, as a plain tensor; after
  /// the output plan.
  std::vector<std::string> return_local_tensor = {};
};

/// Makes plans for modules; users derive their own.
class TESSERA_API ShardingPlanner {
 public:
  virtual ~ShardingPlanner() = default;
  virtual ShardingPlan build_plan(const torch::nn::Module& module) = 0;
};

}  // namespace tessera::sharded_tensor
