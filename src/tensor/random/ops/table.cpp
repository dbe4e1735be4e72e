#include <tensor/random/ops/table.h>

#include <limits>
#include <string_view>

#include <ATen/CPUGeneratorImpl.h>
#include <ATen/ExpandUtils.h>
#include <ATen/core/enum_tag.h>
#include <ATen/ops/_scaled_dot_product_attention_math.h>
#include <ATen/ops/zeros_like.h>
#include <c10/util/Exception.h>
#include <tensor/call/decision.h>
#include <tensor/call/moves.h>
#include <tensor/impl/sharded_impl.h>
#include <tensor/random/ops/random_call.h>
#include <tensor/run/run_decision.h>
#include <tensor/run/run_off_mesh.h>
#include <tensor/state/replicated.h>

namespace tessera::detail::inline tensor_layer {

namespace {

struct Entry {
  std::string_view name;  // of all overloads that no longer entry names
  CustomKernel kernel;
};

constexpr Entry kTable[] = {
    {"aten::rand", fill_kernel},
    {"aten::randn", fill_kernel},
    {"aten::randint", fill_kernel},
    {"aten::rand_like", fill_kernel},
    {"aten::randn_like", fill_kernel},
    {"aten::randint_like", fill_kernel},
    {"aten::uniform", fill_kernel},
    {"aten::uniform_", fill_kernel},
    {"aten::normal_", fill_kernel},
    {"aten::normal_functional", fill_kernel},
    {"aten::normal.out", fill_kernel},
    {"aten::normal.float_float_out", fill_kernel},
    {"aten::normal", normal_kernel},
    {"aten::random", fill_kernel},
    {"aten::random_", fill_kernel},
    {"aten::bernoulli_.float", fill_kernel},
    {"aten::bernoulli.p", fill_kernel},
    {"aten::bernoulli.float_out", fill_kernel},
    {"aten::bernoulli", bernoulli_kernel},
    {"aten::bernoulli_", bernoulli_kernel},
    {"aten::exponential", fill_kernel},
    {"aten::exponential_", fill_kernel},
    {"aten::geometric", fill_kernel},
    {"aten::geometric_", fill_kernel},
    {"aten::log_normal", fill_kernel},
    {"aten::log_normal_", fill_kernel},
    {"aten::cauchy", fill_kernel},
    {"aten::cauchy_", fill_kernel},
    {"aten::native_dropout", dropout_kernel},
    {"aten::_fused_dropout", dropout_kernel},
    {"aten::rrelu_with_noise", rrelu_kernel},
    {"aten::rrelu_with_noise_", rrelu_kernel},
    {"aten::rrelu_with_noise_functional", rrelu_kernel},
    {"aten::_standard_gamma", gamma_kernel},
    {"aten::_sample_dirichlet", dirichlet_kernel},
    {"aten::poisson", poisson_kernel},
    {"aten::binomial", binomial_kernel},
    {"aten::multinomial", multinomial_kernel},
    {"aten::randperm", randperm_kernel},
};

CustomKernel find_entry(std::string_view name) {
  for (const Entry& entry : kTable) {
    if (entry.name == name) {
      return entry.kernel;
    }
  }
  return nullptr;
}

// Fused kernels draw only where a probability is given, and then by themselves.
double dropout_of(const OpCall& call) {
  const auto& arguments = call.schema().arguments();
  for (size_t i = 0; i < arguments.size(); ++i) {
    const std::string& name = arguments[i].name();
    if ((name == "dropout_p" || name == "dropout") &&
        call.argument(i).isDouble()) {
      return call.argument(i).toDouble();
    }
  }
  return -1;
}

bool draws(const OpCall& call) {
  return dropout_of(call) != 0;
}

bool is_attention_choice(const OpCall& call) {
  return call.op().operator_name().name == "aten::_fused_sdp_choice";
}

// Gives a call that names no generator one that is equal on all ranks.
bool give_generator(const OpCall& call, const RandomOffset& offset) {
  const auto& arguments = call.schema().arguments();
  const bool on_host = call.mesh()->device_type() == at::kCPU;
  for (size_t i = 0; i < arguments.size(); ++i) {
    const bool wants = arguments[i].type()->str() == "Generator?";
    if (wants && call.argument(i).isNone() && on_host) {
      const PhiloxKey key = key_of(offset);
      call.argument(i) =
          at::detail::createCPUGenerator((uint64_t{key.high} << 32) | key.low);
      return true;
    }
  }
  return false;
}

// On ranks outside the mesh too, so that all count alike.
void check_no_fused_dropout(const OpCall& call) {
  TORCH_CHECK_NOT_IMPLEMENTED(
      dropout_of(call) <= 0, call.describe(),
      ": the kernel draws its own dropout, which would differ between ranks; "
      "set dropout to 0 and apply at::dropout() to the result");
}

// An operator that is tagged as random and not in the table: of another
// library, or a fused kernel. It runs on whole values, and what it draws
// through ATen's operators is ours.
void unlisted_kernel(const OpCall& call) {
  const OpTraits& traits = traits_of(call.op());
  if (is_attention_choice(call) && draws(call)) {
    return call.finish(int64_t{0});  // the math form, whose dropout is ours
  }
  if (!draws(call)) {
    return run_general(call, traits);
  }
  check_no_fused_dropout(call);
  const RandomOperation random_operation(call);
  give_generator(call, call.mesh()->world().random_counters()->next());
  run_general(call, traits);
}

bool is_drawn_by(const OpCall& call, CustomKernel kernel) {
  return listed_random_kernel(call.op().operator_name()) == kernel;
}

// By rejection: parameters are read in their layout, partial values summed
// first.
bool reads_summed(const OpCall& call) {
  return is_drawn_by(call, gamma_kernel) || is_drawn_by(call, poisson_kernel) ||
         is_drawn_by(call, binomial_kernel) ||
         is_drawn_by(call, dirichlet_kernel);
}

bool reads_replicated(const OpCall& call, const at::Tensor& t) {
  if (is_drawn_by(call, dirichlet_kernel)) {
    return t.dim() > 0 && is_sharded(t) &&
           !spec_of(t).layout().cuts(t.dim() - 1).empty();
  }
  return false;
}

// A second parameter comes to the layout of the first, or whole.
void list_binomial_moves(const OpCall& call, MoveList& list) {
  const at::Tensor& count = call.argument(0).toTensor();
  const at::Tensor& p = call.argument(1).toTensor();
  const auto shape = at::infer_size(count.sizes(), p.sizes());
  const at::Tensor* like = tensor_drawn_like({&count, &p}, shape);
  for (size_t i = 0; i < 2; ++i) {
    const at::Tensor& t = call.argument(i).toTensor();
    if (!is_sharded(t)) {
      continue;
    }
    if (like != nullptr && t.sizes() == at::IntArrayRef(shape)) {
      list.shard(i, t, summed_placements(spec_of(*like)));
    } else {
      list.value(i, t);
    }
  }
}

void list_multinomial_moves(const OpCall& call, MoveList& list) {
  const at::Tensor& weights = call.argument(0).toTensor();
  const auto rows = placements_of_rows(weights);
  if (!rows) {
    return list.value(0, weights);
  }
  const DeviceMesh& mesh = spec_of(weights).mesh();
  list.shard(0, weights, *rows);
  list.shard(
      0, wrap_without_data(fault_spec(mesh, *rows), c10::Device(at::kCPU)),
      replicated(mesh));
  const std::vector<int64_t> shape{weights.size(0), call.argument(1).toInt()};
  for (const at::Tensor& out : call.written()) {
    if (out.sizes() == at::IntArrayRef(shape)) {
      list.back(call.size() - 1, out, *rows);
    }
  }
}

// The noise is returned in the layout of self, or drawn in it and written.
void list_rrelu_moves(const OpCall& call, MoveList& list) {
  const auto layout = placements_of_rrelu(call);
  const at::Tensor& noise = call.argument(1).toTensor();
  list.refreshed(0, call.argument(0).toTensor());
  list.refreshed(1, noise);
  if (!layout || !is_sharded(noise)) {
    return;
  }
  const bool training = call.argument(4).toBool();
  if (call.writes(1) && training) {
    list.back(1, noise, *layout);
  } else if (!call.writes(1) && !training) {
    list.shard(1, noise, *layout);
  }
}

void list_moves(const OpCall& call, MoveList& list) {
  if (is_attention_choice(call)) {
    return;  // by shapes
  }
  if (is_drawn_by(call, binomial_kernel)) {
    return list_binomial_moves(call, list);
  }
  if (is_drawn_by(call, multinomial_kernel)) {
    return list_multinomial_moves(call, list);
  }
  if (is_drawn_by(call, rrelu_kernel)) {
    return list_rrelu_moves(call, list);
  }
  for (size_t i = 0; i < call.size(); ++i) {
    for_each_tensor(call.argument(i), [&](const at::Tensor& t) {
      if (!is_sharded(t) || (call.writes(i) && reads_replicated(call, t))) {
        return;
      }
      if (reads_replicated(call, t)) {
        list.value(i, t);
      } else if (reads_summed(call) && !call.writes(i)) {
        list.shard(i, t, summed_placements(spec_of(t)));
      } else {
        list.refreshed(i, t);
      }
    });
  }
}

}  // namespace

bool draws_by_itself(const OpCall& call, CustomKernel kernel) {
  return kernel != unlisted_kernel ||
         (is_attention_choice(call) && draws(call));
}

std::optional<Placements> random_placements(const OpCall& call) {
  if (is_drawn_by(call, multinomial_kernel)) {
    return placements_of_rows(call.argument(0).toTensor());
  }
  if (is_drawn_by(call, rrelu_kernel)) {
    return placements_of_rrelu(call);
  }
  return std::nullopt;
}

CustomKernelMoves random_moves(const c10::OperatorHandle& op) {
  return random_kernel(op) != nullptr ? list_moves : nullptr;
}

CustomKernel listed_random_kernel(const c10::OperatorName& name) {
  if (!name.overload_name.empty()) {
    if (const CustomKernel kernel =
            find_entry(name.name + "." + name.overload_name)) {
      return kernel;
    }
  }
  return find_entry(name.name);
}

CustomKernel random_kernel(const c10::OperatorHandle& op) {
  if (!op.hasTag(at::Tag::nondeterministic_seeded) ||
      op.hasKernelForDispatchKey(c10::DispatchKey::CompositeImplicitAutograd)) {
    return nullptr;
  }
  const CustomKernel listed = listed_random_kernel(op.operator_name());
  return listed != nullptr ? listed : unlisted_kernel;
}

bool run_attention_with_dropout(const OpCall& call) {
  if (call.op().operator_name().name != "aten::scaled_dot_product_attention" ||
      dropout_of(call) == 0) {
    return false;
  }
  const auto tensor = [&](size_t i) { return call.argument(i).toTensor(); };
  std::optional<at::Tensor> mask = call.argument(3).toOptional<at::Tensor>();
  if (mask && mask->scalar_type() == at::kBool) {
    mask =
        at::zeros_like(*mask, tensor(0).options())
            .masked_fill(
                mask->logical_not(), -std::numeric_limits<double>::infinity());
  }
  call.finish(std::get<0>(at::_scaled_dot_product_attention_math(
      tensor(0), tensor(1), tensor(2), mask, dropout_of(call),
      call.argument(5).toBool(), std::nullopt,
      call.argument(6).toOptional<double>(), call.argument(7).toBool())));
  return true;
}

void skip_random(const OpCall& call) {
  const bool listed =
      listed_random_kernel(call.op().operator_name()) != nullptr;
  if (!listed && !is_attention_choice(call)) {
    check_no_fused_dropout(call);
  }
  if (listed || (draws(call) && !is_attention_choice(call))) {
    next_offset(call);
  }
}

}  // namespace tessera::detail::inline tensor_layer
