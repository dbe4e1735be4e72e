#include <oracle/missing_rows.h>

#include <algorithm>
#include <map>
#include <set>

#include <ATen/ATen.h>
#include <oracle/execution.h>

namespace tessera::oracle {

namespace {

std::vector<Rows::Cell> cells_of(const Operand& operand) {
  if (!operand.defined) {
    return {Rows::Cell()};
  }
  std::vector<Rows::Cell> cells{Rows::Cell()};
  for (int64_t d = 0; d < operand.ndim(); ++d) {
    // A dim of size 1 is one rank's alone: whatever it gives is chance.
    if (operand.shape[static_cast<size_t>(d)] > 1) {
      cells.push_back(Rows::Cell::shard(d));
    }
  }
  cells.push_back(Rows::Cell::partial(ReduceOp::kSum));
  cells.push_back(Rows::Cell::partial(ReduceOp::kMax));
  return cells;
}

std::vector<Rows::Cell> output_cells(const at::Tensor& want) {
  std::vector<Rows::Cell> cells{Rows::Cell()};
  for (int64_t d = 0; d < want.dim(); ++d) {
    cells.push_back(Rows::Cell::shard(d));
  }
  for (const ReduceOp op : {ReduceOp::kSum, ReduceOp::kMax, ReduceOp::kMin}) {
    cells.push_back(Rows::Cell::partial(op));
  }
  return cells;
}

bool cuts_one_size(const SampleCall& call, const Rows::Cells& operands) {
  int64_t size = -1;
  for (size_t i = 0; i < operands.size(); ++i) {
    if (operands[i].is_shard()) {
      const int64_t here =
          call.operands()[i].shape[static_cast<size_t>(operands[i].dim())];
      if (size >= 0 && here != size) {
        return false;
      }
      size = here;
    }
  }
  return true;
}

// The outputs that are right for given operands; none where the call fails.
std::vector<Rows::Cell> right_outputs(
    const SampleCall& call, const Rows::Cells& operands) {
  const MeshShape mesh({2});
  std::vector<Placements> placements;
  for (const Rows::Cell& cell : operands) {
    placements.push_back({cell.placement()});
  }
  std::vector<Rows::Cell> right;
  try {
    Execution execution(call, mesh, placements);
    execution.run([](const Coordinate&, detail::Decision&) {});
    for (const Rows::Cell& cell : output_cells(execution.expected(0, 0))) {
      if (execution.difference_of_result(0, 0, {cell.placement()}).empty()) {
        right.push_back(cell);
      }
    }
  } catch (const std::exception&) {
    return {};
  }
  return right;
}

std::string text_of(const Rows::Cells& operands, const Rows::Cell& output) {
  return tessera::to_string(Rows::Row{Rows::Cells{output}, operands});
}

std::set<std::string> right_rows(const SampleCall& call) {
  std::set<std::string> right;
  const auto& operands = call.operands();
  std::vector<Rows::Cell> none{Rows::Cell()};
  const std::vector<Rows::Cell> first = cells_of(operands[0]);
  const std::vector<Rows::Cell> second =
      operands.size() > 1 ? cells_of(operands[1]) : none;
  for (const Rows::Cell& a : first) {
    for (const Rows::Cell& b : second) {
      Rows::Cells cells{a};
      if (operands.size() > 1) {
        cells.push_back(b);
      }
      if ((a.is_replicate() && b.is_replicate()) ||
          !cuts_one_size(call, cells)) {
        continue;
      }
      for (const Rows::Cell& output : right_outputs(call, cells)) {
        right.insert(text_of(cells, output));
      }
    }
  }
  return right;
}

std::set<std::string> listed_rows(const SampleCall& call) {
  std::set<std::string> listed;
  for (const Rows::Row& row : call.rows(0)) {
    Rows::Row plain = row;
    plain.local = {};
    const at::Tensor& want = call.sample().results[0].toTensor();
    for (Rows::Cell& cell : plain.outputs) {
      if (cell.is_shard() && cell.dim() < 0) {
        cell = Rows::Cell::shard(cell.dim() + want.dim());
      }
    }
    for (size_t i = 0; i < plain.operands.size(); ++i) {
      Rows::Cell& cell = plain.operands[i];
      if (cell.is_shard() && cell.dim() < 0) {
        cell = Rows::Cell::shard(cell.dim() + call.operands()[i].ndim());
      }
    }
    listed.insert(text_of(plain.operands, plain.outputs[0]));
  }
  return listed;
}

// Results of few values are right by chance.
bool has_many_values(const at::Tensor& t) {
  if (!t.defined() || !t.is_floating_point() || t.numel() < 2 ||
      !t.isfinite().all().item<bool>()) {
    return false;
  }
  return std::get<0>(at::_unique(t)).numel() * 2 > t.numel();
}

bool is_suitable(const Sample& sample) {
  return sample.results.size() == 1 && sample.results[0].isTensor() &&
         has_many_values(sample.results[0].toTensor()) &&
         sample.op.schema().name().find("empty") == std::string::npos;
}

// Operators that look at the shapes of what they get: placements that are no
// row must give an error or a wrong value, not a crash.
bool checks_shapes(const Ruled& ruled) {
  const std::string& form = ruled.found.rule->form;
  const std::string& name = ruled.op.schema().name();
  return (form == "pointwise" || form == "factors" || form == "reduction" ||
          form == "along") &&
         name.find("backward") == std::string::npos &&
         name.find("jvp") == std::string::npos &&
         name.find("helper") == std::string::npos;
}

bool writes(const c10::FunctionSchema& schema) {
  for (const auto& argument : schema.arguments()) {
    if (argument.is_out() || (argument.alias_info() != nullptr &&
                              argument.alias_info()->isWrite())) {
      return true;
    }
  }
  return false;
}

}  // namespace

std::vector<std::string> missing_rows(const Ruled& ruled) {
  std::set<std::string> missing;
  if (ruled.found.per_element || !checks_shapes(ruled) ||
      writes(ruled.op.schema())) {
    return {};
  }
  const auto texts = texts_of(ruled.op.schema(), *ruled.found.rule);
  size_t tried = 0;
  for (size_t t = 0; t < texts.size() && tried < 3; ++t) {
    const std::string& text = texts[t * 7 % texts.size()];
    std::set<std::string> right, listed;
    int good = 0;
    for (const SizeClass sizes :
         {SizeClass::kEven, SizeClass::kUneven, SizeClass::kEven}) {
      std::string refusal;
      const auto sample = make_sample(
          ruled.op, text, sizes, at::kDouble, 900 + static_cast<uint64_t>(good),
          refusal);
      if (!sample || !is_suitable(*sample)) {
        break;
      }
      const SampleCall call(*sample, ruled.found);
      if (call.operands().empty() || call.operands().size() > 2) {
        return {};
      }
      const auto rows = right_rows(call);
      if (good == 0) {
        right = rows;
        listed = listed_rows(call);
      } else {
        std::erase_if(
            right, [&](const std::string& row) { return !rows.count(row); });
      }
      ++good;
    }
    if (good == 3) {
      ++tried;
      for (const std::string& row : right) {
        if (!listed.count(row)) {
          missing.insert(row + "  for " + text);
        }
      }
    }
  }
  return {missing.begin(), missing.end()};
}

}  // namespace tessera::oracle
