#include <oracle/gradient_cases.h>

#include <chrono>
#include <cstdlib>
#include <iostream>
#include <map>
#include <mutex>

#include <oracle/simulated_ranks.h>
#include <tensor/call/rule_operands.h>
#include <torch/torch.h>

#include <tessera/tessera.h>

namespace tessera::oracle {

namespace {

// The sum of all floating results, each element with a weight of its own.
at::Tensor loss_of(const torch::jit::Stack& results, const DeviceMesh* mesh) {
  at::Tensor loss;
  uint64_t seed = 1;
  for (const c10::IValue& value : results) {
    detail::for_each_tensor(value, [&](const at::Tensor& t) {
      ++seed;
      if (!t.defined() || !t.is_floating_point() || !t.requires_grad()) {
        return;
      }
      at::Tensor weights =
          random_integers(t.sizes(), 1, 5, seed).to(t.scalar_type());
      if (mesh != nullptr) {
        weights = distribute_tensor(
            weights, *mesh,
            Placements(static_cast<size_t>(mesh->ndim()), Replicate()),
            {.src_data_rank = std::nullopt});
      }
      const at::Tensor part = (t * weights).sum();
      loss = loss.defined() ? loss + part : part;
    });
  }
  return loss;
}

// A stack whose operands are replaced, numbered as in a rule.
torch::jit::Stack with_operands(
    const Sample& sample, const std::vector<at::Tensor>& operands) {
  torch::jit::Stack stack = sample.arguments;
  const auto& traits = detail::traits_of(sample.op);
  size_t next = 0;
  for (size_t a = 0; a < stack.size(); ++a) {
    switch (traits.arguments[a].kind) {
      case detail::ArgumentTraits::Kind::kStatic:
        break;
      case detail::ArgumentTraits::Kind::kTensor: {
        const at::Tensor& t = operands[next++];
        if (t.defined()) {
          stack[a] = t;
        }
        break;
      }
      case detail::ArgumentTraits::Kind::kTensors:
        if (!stack[a].isNone()) {
          detail::map_elements(
              stack[a], [&](const at::Tensor&) { return operands[next++]; });
        }
        break;
    }
  }
  return stack;
}

// Calls the operator on leaves and returns their gradients; none where the
// results do not depend on them.
std::vector<at::Tensor> gradients_of(
    const Sample& sample, const std::vector<at::Tensor>& operands,
    const DeviceMesh* mesh) {
  torch::jit::Stack stack = with_operands(sample, operands);
  sample.op.callBoxed(&stack);
  const at::Tensor loss = loss_of(stack, mesh);
  std::vector<at::Tensor> gradients(operands.size());
  if (!loss.defined()) {
    return gradients;
  }
  torch::autograd::variable_list leaves;
  std::vector<size_t> numbers;
  for (size_t i = 0; i < operands.size(); ++i) {
    if (operands[i].defined() && operands[i].requires_grad()) {
      leaves.push_back(operands[i]);
      numbers.push_back(i);
    }
  }
  const auto found = torch::autograd::grad(
      {loss}, leaves, {}, std::nullopt, false, /*allow_unused=*/true);
  // lift() and lift_fresh() return the leaf itself, which then keeps its own
  // graph alive.
  for (const at::Tensor& leaf : leaves) {
    if (!leaf.is_leaf()) {
      leaf.detach_();
    }
  }
  for (size_t k = 0; k < numbers.size(); ++k) {
    gradients[numbers[k]] = found[k];
  }
  return gradients;
}

bool is_variant(const c10::FunctionSchema& schema) {
  for (const auto& argument : schema.arguments()) {
    if (argument.is_out() || (argument.alias_info() != nullptr &&
                              argument.alias_info()->isWrite())) {
      return true;
    }
  }
  return false;
}

bool has_floating(const torch::jit::Stack& values) {
  bool found = false;
  for (const c10::IValue& value : values) {
    detail::for_each_tensor(value, [&](const at::Tensor& t) {
      found = found || (t.defined() && t.is_floating_point());
    });
  }
  return found;
}

std::vector<at::Tensor> plain_leaves(const SampleCall& call) {
  std::vector<at::Tensor> leaves;
  for (size_t i = 0; i < call.operands().size(); ++i) {
    const at::Tensor& t = call.tensor(i);
    leaves.push_back(t.defined() ? t.detach().clone() : t);
    if (t.defined() && t.is_floating_point()) {
      leaves.back().requires_grad_(true);
    }
  }
  return leaves;
}

// Adds the cases of one sample; says why there are none.
class SampleCases {
 public:
  SampleCases(const Ruled& ruled, const Sample& sample, size_t turn)
      : ruled_(ruled),
        sample_(sample),
        call_(sample, ruled.found),
        turn_(turn) {}

  std::string add_to(std::vector<GradientCase>& cases) {
    if (!has_floating(sample_.results)) {
      return "no result is a floating number";
    }
    try {
      gradients_ = gradients_of(sample_, plain_leaves(call_), nullptr);
    } catch (const std::exception& error) {
      return "plain autograd refuses it: " + first_line(error.what());
    }
    bool any = false;
    for (const at::Tensor& t : gradients_) {
      any = any || t.defined();
    }
    if (!any) {
      return "plain autograd gives no gradient";
    }
    ruled_.found.rule->view ? add_views(cases) : add_rows(cases);
    return "";
  }

 private:
  static std::string first_line(const std::string& text) {
    return text.substr(0, text.find('\n'));
  }

  void add(
      std::vector<GradientCase>& cases, const std::vector<int64_t>& mesh,
      std::vector<Placements> operands, const std::string& row) {
    cases.push_back(
        {sample_,
         c10::toString(sample_.op.operator_name()) + "(" + sample_.text +
             "): gradient of " + row,
         mesh, std::move(operands), gradients_});
  }

  void add_rows(std::vector<GradientCase>& cases) {
    static const std::vector<int64_t> kMeshes[] = {{2}, {3}, {2, 2}};
    for (size_t r = 0; r < call_.rows(0).size(); ++r) {
      const std::vector<int64_t>& mesh = kMeshes[(turn_ + r) % 3];
      std::vector<Placements> operands(
          call_.operands().size(), Placements(mesh.size(), Replicate()));
      std::string text;
      bool fits = true;
      for (size_t u = 0; u < call_.units() && fits; ++u) {
        const auto rows = call_.rows(u);
        std::vector<Rows::Row> chosen{rows[r % rows.size()]};
        if (mesh.size() == 2) {
          chosen.push_back(rows[(r * 7 + turn_) % rows.size()]);
        }
        const auto choice = choice_of(
            *ruled_.found.rule, call_.call(u), MeshShape(mesh), chosen,
            CutStyle::kPlain);
        fits = choice.has_value();
        for (size_t i = 0; fits && i < choice->operands.size(); ++i) {
          operands[call_.numbers(u)[i]] = choice->operands[i];
        }
        for (const Rows::Row& row : chosen) {
          text += (text.empty() ? "" : " | ") + tessera::to_string(row);
        }
      }
      if (fits) {
        add(cases, mesh, std::move(operands), "row " + text);
      }
    }
  }

  void add_views(std::vector<GradientCase>& cases) {
    std::vector<Placement> all{Partial()};
    for (int64_t d = 0; d < call_.operands()[0].ndim(); ++d) {
      all.push_back(Shard(d));
    }
    for (size_t p = 0; p < all.size(); ++p) {
      std::vector<Placements> operands(
          call_.operands().size(), Placements{Replicate()});
      operands[0] = {all[p]};
      add(cases, {static_cast<int64_t>(2 + (turn_ + p) % 2)},
          std::move(operands), "a view of " + to_string(all[p]));
    }
  }

  const Ruled& ruled_;
  const Sample& sample_;
  SampleCall call_;
  size_t turn_;
  std::vector<at::Tensor> gradients_;
};

std::string run_case(const GradientCase& one) {
  const DeviceMesh mesh = init_device_mesh(at::kCPU, one.mesh);
  const SampleCall call(one.sample, detail::traits_of(one.sample.op).rule);
  std::vector<at::Tensor> leaves;
  for (size_t i = 0; i < one.operands.size(); ++i) {
    const at::Tensor& whole = call.tensor(i);
    if (!whole.defined()) {
      leaves.emplace_back();
      continue;
    }
    const auto parts = cut(
        whole, Layout(whole.sizes().vec(), mesh.mesh_shape(), one.operands[i]),
        one.sample.seed * 31 + i);
    leaves.push_back(from_local(
                         parts[static_cast<size_t>(rank())], mesh,
                         one.operands[i],
                         {.shape = whole.sizes().vec(),
                          .stride = whole.contiguous().strides().vec()})
                         .detach());
    if (whole.is_floating_point()) {
      leaves.back().requires_grad_(true);
    }
  }
  const std::vector<at::Tensor> gradients =
      gradients_of(one.sample, leaves, &mesh);
  std::string problem;
  for (size_t i = 0; i < leaves.size(); ++i) {
    const at::Tensor& want = one.gradients[i];
    at::Tensor got = gradients[i];
    if (want.defined() != got.defined()) {
      got = got.defined() ? full_tensor(got) : at::zeros_like(want);
      const at::Tensor whole = want.defined() ? want : at::zeros_like(got);
      problem = problem.empty() ? difference(got, whole) : problem;
    } else if (want.defined()) {
      const std::string text =
          difference(full_tensor(got), want, /*finite_only=*/true);
      problem = problem.empty() && !text.empty()
                    ? "operand " + std::to_string(i) + ": " + text
                    : problem;
    }
  }
  return problem;
}

int ranks_of(const std::vector<int64_t>& mesh) {
  int64_t ranks = 1;
  for (const int64_t n : mesh) {
    ranks *= n;
  }
  return static_cast<int>(ranks);
}

}  // namespace

GradientCases gradient_cases(const Ruled& ruled) {
  GradientCases all;
  if (is_variant(ruled.op.schema())) {
    all.excuse = "a variant that writes";
    return all;
  }
  const auto texts = texts_of(ruled.op.schema(), *ruled.found.rule);
  all.excuse = reason_for_no_case(texts);
  if (!all.excuse.empty()) {
    return all;
  }
  uint64_t seed = 5000;
  size_t turn = 0;
  for (size_t t = 0; t < texts.size() && turn < 4; ++t) {
    // Texts lie sorted: jump, so that different ones come first.
    const std::string& text = texts[t * 7 % texts.size()];
    std::string refusal;
    const auto sample = make_sample(
        ruled.op, text, turn % 2 == 0 ? SizeClass::kEven : SizeClass::kUneven,
        at::kDouble, ++seed, refusal);
    if (!sample) {
      all.excuse = all.excuse.empty() ? "refused: " + refusal : all.excuse;
      continue;
    }
    const std::string excuse =
        SampleCases(ruled, *sample, turn).add_to(all.cases);
    if (excuse.empty()) {
      ++turn;
    } else {
      all.excuse = excuse;
    }
  }
  return all;
}

std::vector<std::string> run_gradient_cases(
    const std::vector<GradientCase>& cases) {
  std::vector<std::string> problems;
  std::map<std::vector<int64_t>, std::vector<const GradientCase*>> by_mesh;
  for (const GradientCase& one : cases) {
    by_mesh[one.mesh].push_back(&one);
  }
  std::mutex mutex;
  for (const auto& [mesh, list] : by_mesh) {
    constexpr size_t kBatch = 100;
    for (size_t begin = 0; begin < list.size(); begin += kBatch) {
      const size_t end = std::min(list.size(), begin + kBatch);
      size_t reached = begin;
      try {
        run_ranks(
            ranks_of(mesh),
            [&] {
              for (size_t i = begin; i < end; ++i) {
                std::string problem;
                if (rank() == 0 && std::getenv("TESSERA_ORACLE_LOUD")) {
                  std::cerr << list[i]->what << std::endl;
                }
                try {
                  problem = run_case(*list[i]);
                } catch (const c10::Error& error) {
                  problem =
                      std::string("throws: ") + error.what_without_backtrace();
                }
                const std::lock_guard<std::mutex> lock(mutex);
                if (rank() == 0) {
                  reached = i;
                  if (!problem.empty()) {
                    problems.push_back(list[i]->what + ": " + problem);
                  }
                }
              }
            },
            {.engine = Engine::kThreads, .deadline = std::chrono::seconds(10)});
      } catch (const std::exception& error) {
        problems.push_back(
            list[reached]->what + " or the next: " + error.what());
      }
    }
  }
  return problems;
}

}  // namespace tessera::oracle
