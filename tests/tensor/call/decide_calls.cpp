// Reads calls with placements (JSON of scripts/upstream_strategies.py) on
// standard input and prints what Tessera decides for each, as JSON: nothing is
// computed and nothing moves.
//   operators  how each operator runs: {"aten::mm": "factors", ...}
//   calls      per call a list with an entry per row, in the order of the
//              input: "used", "out" and "reason", or "error"
#include <iostream>

#include <c10/util/Exception.h>
#include <tensor/call/json_call.h>
#include <tensor/call/rule_operands.h>
#include <tensor/impl/sharded_impl.h>
#include <tensor/inspect/dry_run.h>
#include <tensor/random/ops/table.h>
#include <tessera/comm/world.h>
#include <tessera/tensor/operators.h>

namespace tessera {
namespace {

using detail::DecisionPtr;
using detail::OpCall;
using detail::OperandPlan;
using detail::OpTraits;
using detail::Strategy;

c10::OperatorHandle find_operator(const std::string& full) {
  const size_t dot = full.find('.');
  return c10::Dispatcher::singleton().findSchemaOrThrow(
      full.substr(0, dot).c_str(),
      dot == std::string::npos ? "" : full.substr(dot + 1).c_str());
}

Json text_of(const Placements& placements) {
  return placements.empty() ? Json() : Json(to_string(placements[0]));
}

// A tensor that is written in other placements than its own is not kept.
Json decided(const JsonCall& made, const DecisionPtr& decision) {
  Json used = Json::array(), out = Json::array();
  size_t next = 0;
  for (const OperandPlan& plan : decision->operands) {
    if (!plan.defined || next == made.tensors().size()) {
      continue;
    }
    const Placement given =
        detail::spec_of(made.tensors()[next++]).placements()[0];
    if (plan.out) {
      used.push_back(to_string(given));
    } else if (!plan.written || plan.target != Placements{given}) {
      used.push_back(text_of(plan.target));
    } else {
      used.push_back(text_of(placements_after(*decision, plan)));
    }
  }
  for (const auto& plans : decision->outputs) {
    for (const auto& plan : plans) {
      out.push_back(text_of(plan.placements));
    }
  }
  return {{"used", used}, {"out", out}, {"reason", decision->reason}};
}

// An operand of a call, before the call, which may change it.
struct Given {
  size_t argument;
  SpecPtr spec;
};

std::vector<Given> operands_of(const torch::jit::Stack& stack) {
  std::vector<Given> operands;
  for (size_t i = 0; i < stack.size(); ++i) {
    detail::for_each_tensor(stack[i], [&](const at::Tensor& t) {
      if (detail::is_sharded(t)) {
        operands.push_back({i, detail::meta_ready(t).spec});
      }
    });
  }
  return operands;
}

// An operand is used as it was given unless a call moves a tensor of its shape
// and placements; the call itself says which argument it moves.
Json used_in(
    const detail::DryRun& run, const c10::FunctionSchema& schema,
    const Given& given) {
  for (const detail::DryCall& call : run.calls()) {
    for (const detail::Move& move : call.moves) {
      // Calls that are made of others have no targets of their own.
      if (!move.target.empty() &&
          (call.schema != &schema || move.argument == given.argument) &&
          move.source->shape() == given.spec->shape() &&
          move.source->placements() == given.spec->placements()) {
        return text_of(move.target);
      }
    }
  }
  return text_of(given.spec->placements());
}

// The operator is made of others, or has a kernel of its own.
Json dry_run(const c10::OperatorHandle& op, JsonCall& made) {
  const std::vector<Given> operands = operands_of(made.stack());
  detail::DryRun run;
  run.make(op, made.stack());
  Json used = Json::array(), out = Json::array(), calls = Json::array();
  for (const Given& given : operands) {
    used.push_back(used_in(run, op.schema(), given));
  }
  for (const detail::DryCall& call : run.calls()) {
    calls.push_back(call.text + ": " + call.reason);
  }
  if (!run.calls().empty()) {
    for (const std::string& result : run.calls().back().results) {
      const size_t at = result.rfind("] ");
      out.push_back(
          at == std::string::npos ? Json() : Json(result.substr(at + 2)));
    }
  }
  return {
      {"used", used},
      {"out", out},
      {"reason", calls.empty() ? run.end() : std::string("calls")},
      {"calls", calls}};
}

Json decide_row(
    const c10::OperatorHandle& op, const Json& call, const Json& row,
    const DeviceMesh& mesh) {
  const auto given = row.at("given").get<std::vector<std::string>>();
  const OpTraits& traits = detail::traits_of(op);
  JsonCall made(op.schema(), call.at("arguments"), mesh, given);
  const bool composite =
      op.hasKernelForDispatchKey(c10::DispatchKey::CompositeImplicitAutograd);
  const OpCall op_call(op, &made.stack());
  // A fused kernel that is tagged as random draws nothing in these calls.
  const bool draws_nothing = traits.is_random && !traits.is_drawn;
  if (!composite && (traits.custom_kernel == nullptr || draws_nothing)) {
    const DecisionPtr decision = detail::decide(op_call, traits);
    if (decision->strategy != Strategy::kDecomposed) {
      return decided(made, decision);
    }
  }
  return dry_run(op, made);
}

Json decide_call(const Json& call, const DeviceMesh& mesh) {
  Json rows = Json::array();
  const c10::OperatorHandle op =
      find_operator(call.at("op").get<std::string>());
  for (const Json& row : call.at("rows")) {
    try {
      rows.push_back(decide_row(op, call, row, mesh));
    } catch (const c10::Error& error) {
      rows.push_back({{"error", error.what_without_backtrace()}});
    } catch (const std::exception& error) {
      rows.push_back({{"error", error.what()}});
    }
  }
  return rows;
}

void decide_all() {
  const Json input = Json::parse(std::cin);
  const DeviceMesh mesh =
      init_device_mesh(at::kCPU, input.at("mesh").get<std::vector<int64_t>>());
  Json operators = Json::object(), calls = Json::array();
  for (const OperatorInfo& info : list_operators()) {
    operators[info.name] = info.form;
  }
  for (const Json& call : input.at("calls")) {
    calls.push_back(decide_call(call, mesh));
  }
  std::cout << Json{{"operators", operators}, {"calls", calls}} << '\n';
}

}  // namespace
}  // namespace tessera

int main() {
  tessera::run_simulated({.rank = 0, .size = 2}, tessera::decide_all);
  return 0;
}
