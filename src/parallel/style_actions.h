// What a parallel plan does to each parameter, found out and checked before any
// of them is touched.
#pragma once

#include <functional>
#include <map>
#include <memory>
#include <string>
#include <vector>

#include <ATen/core/Tensor.h>
#include <tensor/uses/parameter_use.h>
#include <tessera/parallel/parallel_style.h>

namespace tessera::detail::inline parallel_layer {

/// A parameter, its placements and its use.
struct StyleAction {
  std::string path;  // of the parameter
  at::Tensor parameter;
  Placements placements;
  std::shared_ptr<ParameterUse> use = nullptr;
  bool is_lookup = false;  // of an embedding
};

/// Collects what the styles of a plan say; every parameter comes once. Throws
/// where a style does not fit the module or the mesh dim.
class StyleActions {
 public:
  StyleActions(
      torch::nn::Module& root, const DeviceMesh& mesh, int64_t mesh_dim);

  /// Applies a style to all that a path names.
  void add(const std::string& path, const ParallelStyle& style);
  std::vector<StyleAction> take() { return std::move(actions_); }

  const DeviceMesh& mesh() const { return mesh_; }
  int64_t mesh_dim() const { return mesh_dim_; }
  std::string where(const StyleTarget& target) const;
  std::shared_ptr<ParameterUse> make_use(const StyleTarget& target) const;
  /// Places a parameter; without a use the calls that use it are left alone.
  void place(
      const StyleTarget& target, const std::string& path,
      const at::Tensor& parameter, const Placement& placement,
      std::shared_ptr<ParameterUse> use, bool is_lookup);
  /// Calls f(use) for every parameter of a module and below; those that no
  /// style has placed yet are replicated.
  void for_each_use(
      const StyledModule& target, const std::function<void(ParameterUse&)>& f);

 private:
  bool joins_other_use(
      const at::Tensor& parameter, const Placement& placement,
      const std::shared_ptr<ParameterUse>& use, bool is_lookup);

  torch::nn::Module& root_;
  const DeviceMesh mesh_;
  const int64_t mesh_dim_;
  std::vector<StyleAction> actions_;
  std::map<const c10::TensorImpl*, size_t> placed_;
};

}  // namespace tessera::detail::inline parallel_layer
