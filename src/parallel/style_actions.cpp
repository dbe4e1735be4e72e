#include <parallel/style_actions.h>

#include <map>

#include <c10/util/Exception.h>
#include <modules/module_path.h>
#include <parallel/layer_kinds.h>
#include <tessera/layout/notation.h>
#include <tessera/tensor/dtensor.h>
#include <torch/nn/modules/activation.h>

namespace tessera::detail::inline parallel_layer {

namespace {

using torch::nn::Module;

constexpr const char* kCall = "parallelize_module";

const char* name_of(const ParallelStyle& style) {
  constexpr const char* kNames[] = {"ColwiseParallel",     "RowwiseParallel",
                                    "SequenceParallel",    "PrepareModuleInput",
                                    "PrepareModuleOutput", "ParameterParallel"};
  return kNames[style.index()];
}

class Planner {
 public:
  Planner(Module& root, const DeviceMesh& mesh, int64_t mesh_dim)
      : root_(root),
        mesh_(mesh),
        mesh_dim_(mesh_dim),
        ranks_(mesh.size(mesh_dim)) {}

  void add(const std::string& path, const ParallelStyle& style) {
    if (const auto* own = std::get_if<ParameterParallel>(&style)) {
      for (const NamedParameter& named :
           find_parameters(kCall, name_of(style), root_, path)) {
        begin(named.path, style);
        auto use = make_use();
        add_step(use->input, own->input_layouts);
        add_step(use->output, own->output_layouts);
        shard(named.path, named.tensor, own->placement, std::move(use));
      }
      return;
    }
    for (const NamedModule& named : find_modules(kCall, root_, path)) {
      begin(named.path, style);
      std::visit([&](const auto& one) { apply(named, one); }, style);
    }
  }

  std::vector<StyleAction> take() { return std::move(actions_); }

 private:
  void begin(const std::string& path, const ParallelStyle& style) {
    path_ = path;
    style_ = name_of(style);
  }

  // "parallelize_module, ColwiseParallel of "layers.0.q" on tp of mesh(...)",
  // "parallelize_module, ColwiseParallel of the root module (Net) on ..."
  std::string where() const {
    const std::string dim =
        mesh_.dim_names().empty()
            ? "dim " + std::to_string(mesh_dim_)
            : mesh_.dim_names()[static_cast<size_t>(mesh_dim_)];
    return std::string("parallelize_module, ") + style_ + " of " +
           module_name(path_, root_.name(), '"') + " on " + dim + " of " +
           to_string(mesh_);
  }

  std::string name_in_module(const std::string& parameter) const {
    return path_.empty() ? parameter : path_ + "." + parameter;
  }

  std::shared_ptr<ParameterUse> make_use() const {
    auto use = std::make_shared<ParameterUse>();
    use->name =
        (path_.empty() ? module_name(path_, root_.name(), '"') : path_) + ", " +
        style_;
    use->mesh_dim = mesh_dim_;
    return use;
  }
  static void add_step(
      std::vector<UseStep>& steps, const std::optional<Placement>& to) {
    if (to) {
      steps.push_back({.to = *to});
    }
  }

  // One tensor may be the weight of an embedding and of a projection.
  bool joins_other_use(
      const at::Tensor& parameter, const Placement& placement,
      const std::shared_ptr<ParameterUse>& use, bool is_lookup) {
    const auto known = placed_.find(parameter.unsafeGetTensorImpl());
    if (known == placed_.end() || !use) {
      return false;
    }
    StyleAction& action = actions_[known->second];
    if (!action.use || action.use->lookup || action.is_lookup == is_lookup ||
        action.placements[static_cast<size_t>(mesh_dim_)] != placement) {
      return false;
    }
    const auto both = is_lookup ? action.use : use;
    both->lookup = is_lookup ? use : action.use;
    action.use = both;
    return true;
  }

  void shard(
      const std::string& path, const at::Tensor& parameter,
      const Placement& placement, std::shared_ptr<ParameterUse> use,
      bool is_lookup = false) {
    if (joins_other_use(parameter, placement, use, is_lookup)) {
      return;
    }
    TORCH_CHECK_VALUE(
        parameter.defined() && !is_dtensor(parameter), where(),
        ": the parameter is sharded already; got ", path,
        "; parallelize a module once");
    TORCH_CHECK_VALUE(
        !placed_.contains(parameter.unsafeGetTensorImpl()), where(),
        ": another style of the plan has placed ", path,
        "; name it once (tied parameters are one)");
    if (placement.is_shard()) {
      TORCH_CHECK_INDEX(
          placement.dim() >= 0 && placement.dim() < parameter.dim(), where(),
          ": ", path, " has no dim ", placement.dim(), "; got shape ",
          parameter.sizes());
      TORCH_CHECK_VALUE(
          parameter.size(placement.dim()) >= ranks_, where(), ": ", path,
          " has ", parameter.size(placement.dim()), " in dim ", placement.dim(),
          ", fewer than the ", ranks_,
          " ranks that it is cut for; use fewer ranks or another style");
    }
    Placements placements(static_cast<size_t>(mesh_.ndim()), Replicate());
    placements[static_cast<size_t>(mesh_dim_)] = placement;
    const Layout is_possible(
        parameter.sizes().vec(), mesh_.mesh_shape(), placements);
    placed_.emplace(parameter.unsafeGetTensorImpl(), actions_.size());
    actions_.push_back(
        {path, parameter, placements, std::move(use), is_lookup});
  }

  void shard_bias(const Layer& layer, const Placement& placement) {
    if (layer.bias.defined()) {
      shard(name_in_module("bias"), layer.bias, placement, nullptr);
    }
  }

  Layer layer_at(const NamedModule& named) const {
    const std::optional<Layer> layer = layer_of(*named.module);
    TORCH_CHECK_NOT_IMPLEMENTED(
        layer.has_value(), where(),
        ": the style serves Linear, Embedding and Conv, ColwiseParallel also "
        "MultiheadAttention; got ",
        named.module->name(),
        "; name its layers, or its parameters with ParameterParallel");
    return *layer;
  }

  void apply(const NamedModule& named, const ColwiseParallel& style) {
    if (auto* attention =
            named.module->as<torch::nn::MultiheadAttentionImpl>()) {
      return shard_heads(*attention, style);
    }
    const Layer layer = layer_at(named);
    auto use = make_use();
    use->plain_input = style.input_layouts;
    add_step(use->input, Replicate());
    add_step(
        use->output, style.output_layouts.value_or(Shard(layer.output_dim)));
    shard(
        name_in_module("weight"), layer.weight, Shard(layer.weight_out),
        std::move(use), layer.is_lookup);
    shard_bias(layer, Shard(0));
  }

  void apply(const NamedModule& named, const RowwiseParallel& style) {
    const Layer layer = layer_at(named);
    TORCH_CHECK_NOT_IMPLEMENTED(
        layer.can_be_sharded_by_inputs, where(),
        ": a convolution in groups has no weights between all inputs and "
        "outputs; use ColwiseParallel");
    const Placement needed =
        layer.is_lookup ? Replicate() : Shard(layer.input_dim);
    auto use = make_use();
    use->plain_input = style.input_layouts.value_or(needed);
    add_step(use->input, needed);
    add_step(use->output, style.output_layouts);
    shard(
        name_in_module("weight"), layer.weight, Shard(layer.weight_in),
        std::move(use), layer.is_lookup);
    shard_bias(layer, Replicate());
  }

  void apply(const NamedModule& named, const SequenceParallel& style) {
    TORCH_CHECK_NOT_IMPLEMENTED(
        !layer_of(*named.module), where(),
        ": the style keeps a layer whole and is for norms; got ",
        named.module->name(), "; use ColwiseParallel or RowwiseParallel");
    const auto parameters = named.module->named_parameters(/*recurse=*/false);
    TORCH_CHECK_VALUE(
        !parameters.is_empty(), where(),
        ": the module has no parameters of its own; got ", named.module->name(),
        "; name the norms inside of it");
    for (const auto& parameter : parameters) {
      if (parameter.value().defined()) {
        auto use = make_use();
        use->plain_input = Shard(style.sequence_dim);
        use->scales = true;
        add_step(use->input, Shard(style.sequence_dim));
        shard(
            name_in_module(parameter.key()), parameter.value(), Replicate(),
            std::move(use));
      }
    }
  }

  void apply(const NamedModule& named, const PrepareModuleInput& style) {
    for_each_use(named, [&](ParameterUse& use) {
      if (use.plain_input.is_replicate()) {
        use.plain_input = style.input_layouts;
      }
      use.input.insert(
          use.input.begin(),
          {style.input_layouts, style.desired_input_layouts});
    });
  }

  void apply(const NamedModule& named, const PrepareModuleOutput& style) {
    for_each_use(named, [&](ParameterUse& use) {
      use.output.push_back(
          {style.output_layouts, style.desired_output_layouts});
    });
  }

  void apply(const NamedModule&, const ParameterParallel&) {}

  // Calls f(use) for every parameter below a module; those that the plan has
  // not placed yet are replicated.
  template <class F>
  void for_each_use(const NamedModule& named, F f) {
    const auto parameters = named.module->named_parameters();
    TORCH_CHECK_VALUE(
        !parameters.is_empty(), where(),
        ": the module has no parameters, and layouts are applied where a "
        "parameter is used; name a module that has some");
    for (const auto& parameter : parameters) {
      const at::Tensor& tensor = parameter.value();
      const auto known = placed_.find(tensor.unsafeGetTensorImpl());
      if (known == placed_.end()) {
        auto use = make_use();
        f(*use);
        shard(
            name_in_module(parameter.key()), tensor, Replicate(),
            std::move(use));
      } else if (const auto& use = actions_[known->second].use) {
        f(*use);
      }
    }
  }

  // Queries, keys and values lie one after the other in the packed projection,
  // so each rank takes its heads' rows of each of the three.
  void shard_heads(
      torch::nn::MultiheadAttentionImpl& attention,
      const ColwiseParallel& style) {
    const int64_t heads = attention.options.num_heads();
    TORCH_CHECK_VALUE(
        heads % ranks_ == 0, where(),
        ": the number of heads must be a "
        "multiple of the ranks; got ",
        heads, " heads and ", ranks_, " ranks; use fewer ranks");
    TORCH_CHECK_NOT_IMPLEMENTED(
        attention._qkv_same_embed_dim && !attention.bias_k.defined(), where(),
        ": only the packed projection without added keys is served; got "
        "kdim, vdim or add_bias_kv; name its projections with "
        "ParameterParallel");
    TORCH_CHECK_NOT_IMPLEMENTED(
        !style.output_layouts, where(),
        ": the packed projection's results are queries, keys and values, cut "
        "by heads; got output_layouts; give them to \"out_proj\"");
    const Placement packed = StridedShard(0, 3);
    auto use = make_use();
    use->plain_input = style.input_layouts;
    add_step(use->input, Replicate());
    shard(
        name_in_module("in_proj_weight"), attention.in_proj_weight, packed,
        use);
    if (attention.in_proj_bias.defined()) {
      shard(
          name_in_module("in_proj_bias"), attention.in_proj_bias, packed,
          nullptr);
    }
  }

  Module& root_;
  const DeviceMesh mesh_;
  const int64_t mesh_dim_;
  const int64_t ranks_;
  std::string path_;
  std::string style_;
  std::vector<StyleAction> actions_;
  std::map<const c10::TensorImpl*, size_t> placed_;
};

// Layouts around modules apply to what the other styles made of them.
bool is_around(const ParallelStyle& style) {
  return std::holds_alternative<PrepareModuleInput>(style) ||
         std::holds_alternative<PrepareModuleOutput>(style);
}

}  // namespace

std::vector<StyleAction> find_actions(
    torch::nn::Module& module, const DeviceMesh& mesh, int64_t mesh_dim,
    const ParallelPlan& plan) {
  Planner planner(module, mesh, mesh_dim);
  for (const bool around : {false, true}) {
    for (const auto& [path, style] : plan) {
      if (is_around(style) == around) {
        planner.add(path, style);
      }
    }
  }
  return planner.take();
}

}  // namespace tessera::detail::inline parallel_layer
