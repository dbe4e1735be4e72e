#include <tensor/random/ops/table.h>

#include <limits>
#include <string_view>

#include <ATen/CPUGeneratorImpl.h>
#include <ATen/ExpandUtils.h>
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
  check_no_fused_dropout(call);
  const RandomOperation random_operation(call);
  give_generator(call, call.mesh()->world().random_counters()->next());
  run_general(call, traits);
}

void skip_unlisted(const OpCall& call) {
  check_no_fused_dropout(call);
  if (draws(call)) {
    next_offset(call);
  }
}

// Which form of attention: the math form, whose dropout is ours.
void attention_choice_kernel(const OpCall& call) {
  call.finish(int64_t{0});
}

// Runs attention with dropout in its math form, whose dropout is ours. ATen
// would choose a fused kernel on some devices.
bool run_attention_with_dropout(const OpCall& call) {
  if (!draws(call)) {
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
  for (size_t i = 0; i < call.size(); ++i) {
    for_each_tensor(call.argument(i), [&](const at::Tensor& t) {
      if (is_sharded(t)) {
        list.refreshed(i, t);
      }
    });
  }
}

// By rejection: parameters are read in their layout, partial values summed
// first; or whole, where rows of the last dim are cut and wanted.
void list_sample_moves(const OpCall& call, MoveList& list, bool gathers_rows) {
  for (size_t i = 0; i < call.size(); ++i) {
    for_each_tensor(call.argument(i), [&](const at::Tensor& t) {
      if (!is_sharded(t)) {
        return;
      }
      const bool is_gathered = gathers_rows && t.dim() > 0 &&
                               !spec_of(t).layout().cuts(t.dim() - 1).empty();
      if (call.writes(i)) {
        if (!is_gathered) {
          list.refreshed(i, t);
        }
      } else if (is_gathered) {
        list.value(i, t);
      } else {
        list.shard(i, t, summed_placements(spec_of(t)));
      }
    });
  }
}

void list_summed_moves(const OpCall& call, MoveList& list) {
  list_sample_moves(call, list, /*gathers_rows=*/false);
}

void list_dirichlet_moves(const OpCall& call, MoveList& list) {
  list_sample_moves(call, list, /*gathers_rows=*/true);
}

std::optional<Placements> multinomial_placements(const OpCall& call) {
  return placements_of_rows(call.argument(0).toTensor());
}

void count_call(const OpCall& call) {
  next_offset(call);
}

struct Entry {
  std::string_view name;
  CustomKernel kernel;
  CustomKernelMoves moves = list_moves;
  std::optional<Placements> (*placements)(const OpCall&) = nullptr;
};

constexpr Entry kTable[] = {
    {"aten::rand.*", fill_kernel},
    {"aten::randn.*", fill_kernel},
    {"aten::randint.*", fill_kernel},
    {"aten::rand_like.*", fill_kernel},
    {"aten::randn_like.*", fill_kernel},
    {"aten::randint_like.*", fill_kernel},
    {"aten::uniform.*", fill_kernel},
    {"aten::uniform_.*", fill_kernel},
    {"aten::normal_.*", fill_kernel},
    {"aten::normal_functional.*", fill_kernel},
    {"aten::normal.out", fill_kernel},
    {"aten::normal.float_float_out", fill_kernel},
    {"aten::normal.*", normal_kernel},
    {"aten::random.*", fill_kernel},
    {"aten::random_.*", fill_kernel},
    {"aten::bernoulli_.float", fill_kernel},
    {"aten::bernoulli.p", fill_kernel},
    {"aten::bernoulli.float_out", fill_kernel},
    {"aten::bernoulli.*", bernoulli_kernel},
    {"aten::bernoulli_.*", bernoulli_kernel},
    {"aten::exponential.*", fill_kernel},
    {"aten::exponential_.*", fill_kernel},
    {"aten::geometric.*", fill_kernel},
    {"aten::geometric_.*", fill_kernel},
    {"aten::log_normal.*", fill_kernel},
    {"aten::log_normal_.*", fill_kernel},
    {"aten::cauchy.*", fill_kernel},
    {"aten::cauchy_.*", fill_kernel},
    {"aten::native_dropout.*", dropout_kernel},
    {"aten::_fused_dropout.*", dropout_kernel},
    {"aten::rrelu_with_noise.*", rrelu_kernel, list_rrelu_moves,
     placements_of_rrelu},
    {"aten::rrelu_with_noise_.*", rrelu_kernel, list_rrelu_moves,
     placements_of_rrelu},
    {"aten::rrelu_with_noise_functional.*", rrelu_kernel, list_rrelu_moves,
     placements_of_rrelu},
    {"aten::_standard_gamma.*", gamma_kernel, list_summed_moves},
    {"aten::_sample_dirichlet.*", dirichlet_kernel, list_dirichlet_moves},
    {"aten::poisson.*", poisson_kernel, list_summed_moves},
    {"aten::binomial.*", binomial_kernel, list_binomial_moves},
    {"aten::multinomial.*", multinomial_kernel, list_multinomial_moves,
     multinomial_placements},
    {"aten::randperm.*", randperm_kernel},
};

}  // namespace

void add_random_operators(OpRegistry& ops) {
  for (const Entry& entry : kTable) {
    OpEntry& op = ops.at(entry.name);
    op.is_drawn = true;
    op.custom_kernel = entry.kernel;
    op.custom_kernel_moves = entry.moves;
    op.random_placements = entry.placements;
    op.skip_random = count_call;
  }
  ops.unlisted_random.custom_kernel = unlisted_kernel;
  ops.unlisted_random.custom_kernel_moves = list_moves;
  ops.unlisted_random.draws = draws;
  ops.unlisted_random.runs_decision = true;
  ops.unlisted_random.skip_random = skip_unlisted;
  OpEntry& choice = ops.at("aten::_fused_sdp_choice");
  choice.custom_kernel = attention_choice_kernel;
  choice.draws = draws;
  ops.at("aten::scaled_dot_product_attention").composite =
      run_attention_with_dropout;
}

}  // namespace tessera::detail::inline tensor_layer
