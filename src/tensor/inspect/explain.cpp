#include <tessera/tensor/explain.h>

#include <algorithm>
#include <sstream>

#include <base/text.h>
#include <c10/util/Exception.h>
#include <c10/util/accumulate.h>
#include <plan/text.h>
#include <tensor/call/gathers.h>
#include <tensor/call/moves.h>
#include <tensor/impl/sharded_impl.h>
#include <tensor/inspect/bind_arguments.h>
#include <tensor/inspect/dry_run.h>
#include <tensor/state/replicated.h>
#include <tessera/layout/notation.h>
#include <tessera/tensor/machine_model.h>

namespace tessera {

namespace {

using detail::Strategy;

// What several plans move on one rank.
struct Total {
  int64_t bytes = 0;
  double cost = 0;
  /// Bytes that ranks come to hold more of, of what was cut.
  int64_t gathered = 0;
  /// Bytes that a rank holds at most of what one call moves.
  int64_t peak = 0;
};

std::string with_limit(int64_t peak) {
  std::string text = std::to_string(peak) + " bytes";
  const int64_t limit = machine_model().memory_limit;
  return peak <= limit ? text
                       : text + ", over the limit of " + std::to_string(limit);
}

void print_steps(
    std::ostream& out, const RedistributePlan& plan, int64_t rank,
    const char* indent, Total& total) {
  for (size_t i = 0; i < plan.steps.size(); ++i) {
    const Step& step = plan.steps[i];
    const int64_t bytes = bytes_on_rank(step, plan.element_size, rank);
    out << indent << i + 1 << ". " << base::with_bytes(describe(step), bytes)
        << ", " << detail::seconds(step.cost) << '\n';
    total.bytes += bytes;
  }
  total.cost += plan.cost;
}

std::string explain_plan(
    const DTensorSpec& source, const RedistributePlan& plan) {
  const int64_t rank = source.mesh().world().rank();
  std::ostringstream out;
  out << "redistribute(" << to_string(source) << ") to "
      << to_string(plan.target.placements());
  if (!(plan.source.mesh() == plan.target.mesh())) {
    out << " @ " << to_string(plan.target.mesh());
  }
  out << ", rank " << rank << '\n';
  Total total;
  print_steps(out, plan, rank, "", total);
  out << (plan.steps.empty() ? "nothing to do: " : "total: ") << total.bytes
      << " bytes on this rank, " << detail::seconds(total.cost)
      << ", peak memory " << with_limit(plan.peak_memory) << '\n';
  return out.str();
}

const char* text_of(const detail::DryCall& call) {
  if (call.is_unsharded) {
    return "runs on whole values: ";
  }
  switch (call.strategy) {
    case Strategy::kCustomKernel:
      return "runs in a way of its own: ";
    case Strategy::kByRule:
      return "runs on the shards: ";
    case Strategy::kDecomposed:
      return "is decomposed: ";
    case Strategy::kReplicated:
      return "runs on whole values: ";
  }
  return "";
}

void print_exchange(
    std::ostream& out, const std::string& name,
    const detail::Exchange& exchange, Total& total) {
  out << name << ": " << exchange.subject << "\n  1. "
      << base::with_bytes(exchange.text, exchange.bytes_here) << '\n';
  total.bytes += exchange.bytes_here;
}

int64_t bytes_of(const Layout& layout, int64_t element_size, int64_t rank) {
  const auto coordinate = layout.mesh().coordinate_of(rank);
  return coordinate ? c10::multiply_integers(layout.local_shape(*coordinate)) *
                          element_size
                    : 0;
}

void print_moves(
    std::ostream& out, const detail::DryCall& call, int64_t rank,
    Total& total) {
  int64_t held = 0;  // what moved before
  for (const detail::Move& move : call.moves) {
    const std::string& name = call.schema->arguments()[move.argument].name();
    if (move.exchange) {
      print_exchange(out, name, *move.exchange, total);
      continue;
    }
    const bool gathers = is_gather(move);
    out << name << ": " << to_string(move.source->placements()) << " -> "
        << to_string(move.target)
        << (move.is_refresh ? " of the tensor that it is a view of" : "")
        << (gathers ? ", a gather\n" : "\n");
    const RedistributePlan plan = plan_of(move);
    print_steps(out, plan, rank, "  ", total);
    total.gathered +=
        gathers ? detail::gained_bytes(*move.source, move.target) : 0;
    total.peak = std::max(total.peak, held + plan.peak_memory);
    held += bytes_of(plan.target, plan.element_size, rank);
  }
}

void print_call(
    std::ostream& out, const detail::DryCall& call, int64_t rank,
    Total& total) {
  out << text_of(call) << call.reason << '\n';
  print_moves(out, call, rank, total);
  for (const std::string& result : call.results) {
    out << "result: " << result << '\n';
  }
}

}  // namespace

std::string explain(
    const std::string& call, const at::Tensor& tensor,
    const Placements& placements, const RedistributeOptions& options) {
  return explain(call, tensor, device_mesh(tensor), placements, options);
}

std::string explain(
    const std::string& call, const at::Tensor& tensor, const DeviceMesh& mesh,
    const Placements& placements, const RedistributeOptions& options) {
  TORCH_CHECK_VALUE(
      call == "redistribute",
      "explain: only redistribute takes a tensor and placements; got '", call,
      "'");
  const DTensorSpec& given = spec(tensor);
  const SpecPtr source =
      given.with_dtype(options.forward_dtype.value_or(given.dtype()));
  return explain_plan(*source, detail::plan_of(*source, mesh, placements));
}

std::string detail::explain_call(
    const std::string& name, std::vector<c10::IValue> arguments) {
  if (name == "full_tensor" && arguments.size() == 1 &&
      arguments[0].isTensor()) {
    const at::Tensor t = arguments[0].toTensor();
    return explain("redistribute", t, replicated(device_mesh(t)));
  }
  BoundCall bound = bind_arguments("explain", name, arguments);
  const OpCall call(bound.op, &bound.stack);
  TORCH_CHECK_VALUE(
      call.mesh() != nullptr, "explain: ", call.describe(),
      ": no argument is sharded, so nothing is communicated");
  const int64_t rank = call.mesh()->world().rank();
  std::ostringstream out;
  out << call.describe() << '\n';
  remove_data(call);
  DryRun run;
  run.make(bound.op, bound.stack);
  Total total;
  const bool is_composite =
      run.calls().size() != 1 || run.calls()[0].schema != &bound.op.schema();
  if (is_composite) {
    out << "decomposes into calls of other operators\n";
  }
  for (const DryCall& made : run.calls()) {
    if (is_composite) {
      out << made.text << '\n';
    }
    print_call(out, made, rank, total);
  }
  if (!run.end().empty()) {
    out << run.end() << '\n';
  }
  out << "total: " << total.bytes << " bytes on this rank, "
      << seconds(total.cost);
  if (total.peak > 0) {
    out << ", peak memory " << with_limit(total.peak);
  }
  if (total.gathered > 0) {
    out << "; gathers " << total.gathered << " bytes";
  }
  out << '\n';
  return out.str();
}

}  // namespace tessera
