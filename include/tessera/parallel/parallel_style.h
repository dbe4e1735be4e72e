// Parallel styles, the library's and your own.
//
// A style is a value with a function apply() that is called once for every
// module, or parameter, that its path names. There it says which parameters are
// cut and how, and in which layouts the calls that use them should be. Nothing
// is touched until all styles of a plan have said so.
#pragma once

#include <concepts>
#include <cstdint>
#include <functional>
#include <optional>
#include <string>
#include <utility>

#include <ATen/core/Tensor.h>
#include <tessera/comm/device_mesh.h>
#include <tessera/export.h>
#include <tessera/layout/placement.h>

namespace torch::nn {
class Module;
}

namespace tessera {

namespace detail::inline parallel_layer {
class StyleActions;
}

/// In which layouts the calls that use a parameter should be, along the mesh
/// dim of the plan. Negative dims count from the end.
struct CallLayouts {
  /// What a plain input is taken for.
  Placement plain_input = Replicate();
  /// What inputs become; where not set they stay as they come.
  std::optional<Placement> input = {};
  /// What results become; where not set they stay as the call makes them.
  std::optional<Placement> output = {};
  /// Products element by element count as uses: norms are often written by
  /// hand.
  bool scales = false;
};

/// What a style is being applied to.
class TESSERA_API StyleTarget {
 public:
  /// For the library.
  StyleTarget(
      detail::StyleActions& actions, std::string style, std::string path);

  /// Returns the name of the style that is applied.
  const std::string& style() const { return style_; }
  /// Returns the path: "layers.0.q", "" for the root module.
  const std::string& path() const { return path_; }
  const DeviceMesh& mesh() const;
  /// Returns the mesh dim that the plan is about, and how many ranks it has.
  int64_t mesh_dim() const;
  int64_t ranks() const;
  /// Returns what an error message of the style begins with:
  /// "parallelize_module, ColwiseParallel of "layers.0.q" on tp of mesh(tp=2)".
  std::string where() const;

 protected:
  detail::StyleActions& actions_;

 private:
  std::string style_;
  std::string path_;
};

/// A module that a path names.
class TESSERA_API StyledModule : public StyleTarget {
 public:
  /// For the library.
  StyledModule(
      detail::StyleActions& actions, std::string style, std::string path,
      torch::nn::Module& module);

  torch::nn::Module& module() const { return module_; }
  /// Tells whether the module itself has a defined parameter of that name.
  bool has(const std::string& parameter) const;
  /// Places a parameter of the module itself; without layouts the calls that
  /// use it are left alone. A parameter is placed by one style.
  void shard(
      const std::string& parameter, const Placement& placement,
      const std::optional<CallLayouts>& layouts = {});
  /// The same for the tensor that forward() uses, where a member of the module
  /// was given another than the registered one: tied weights.
  void shard(
      const std::string& parameter, const at::Tensor& tensor,
      const Placement& placement,
      const std::optional<CallLayouts>& layouts = {});
  /// For styles with apply_around(): inputs that the module's parameters, and
  /// those below, meet in layout `from` become `to` first. Parameters that no
  /// style has placed are replicated.
  void prepare_input(const Placement& from, const Placement& to);
  /// The same for results, last.
  void prepare_output(const Placement& from, const Placement& to);

 private:
  torch::nn::Module& module_;
};

/// A parameter that a path names.
class TESSERA_API StyledParameter : public StyleTarget {
 public:
  /// For the library.
  StyledParameter(
      detail::StyleActions& actions, std::string style, std::string path,
      at::Tensor tensor);

  const at::Tensor& tensor() const { return tensor_; }
  /// Places the parameter, as StyledModule::shard() does.
  void shard(
      const Placement& placement,
      const std::optional<CallLayouts>& layouts = {});

 private:
  at::Tensor tensor_;
};

/// Any style: a value with a name and one of three functions. Example:
///   struct ByRows {
///     static constexpr const char* kName = "ByRows";
///     void apply(StyledModule& m) const { m.shard("weight", Shard(0)); }
///   };
/// With apply(StyledParameter&) paths name parameters. apply_around() is called
/// after the apply() of all styles in the plan, and changes what they placed.
class ParallelStyle {
 public:
  template <class Style>
  requires(!std::same_as<Style, ParallelStyle>) && requires {
    { Style::kName } -> std::convertible_to<std::string>;
  }
  ParallelStyle(Style style)  // NOLINT(google-explicit-constructor)
      : name_(Style::kName) {
    constexpr bool kOnModules = requires(StyledModule & m, const Style& s) {
      s.apply(m);
    };
    constexpr bool kOnParameters =
        requires(StyledParameter & p, const Style& s) {
      s.apply(p);
    };
    constexpr bool kAround = requires(StyledModule & m, const Style& s) {
      s.apply_around(m);
    };
    static_assert(
        kOnModules + kOnParameters + kAround == 1,
        "a style has apply(StyledModule&) const, apply(StyledParameter&) const "
        "or apply_around(StyledModule&) const");
    if constexpr (kOnParameters) {
      on_parameter_ = [style](StyledParameter& p) { style.apply(p); };
    } else if constexpr (kAround) {
      around_ = [style](StyledModule& m) { style.apply_around(m); };
    } else {
      on_module_ = [style](StyledModule& m) { style.apply(m); };
    }
  }

  const std::string& name() const { return name_; }
  /// Tells whether its paths name parameters, not modules.
  bool is_for_parameters() const { return on_parameter_ != nullptr; }
  /// Tells whether it is applied after the others.
  bool is_around() const { return around_ != nullptr; }
  /// Applies it; for the library.
  void apply(StyledParameter& parameter) const { on_parameter_(parameter); }
  void apply(StyledModule& module) const {
    (is_around() ? around_ : on_module_)(module);
  }

 private:
  std::string name_;
  std::function<void(StyledModule&)> on_module_;
  std::function<void(StyledParameter&)> on_parameter_;
  std::function<void(StyledModule&)> around_;
};

}  // namespace tessera
