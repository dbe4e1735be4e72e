// Which samples, rows, meshes and cuts of an operator are tried.
#include <algorithm>
#include <functional>
#include <numeric>
#include <set>

#include <oracle/oracle.h>

namespace tessera::oracle {

namespace {

constexpr c10::ScalarType kDtypes[] = {
    at::kDouble, at::kFloat, at::kLong, at::kBFloat16, at::kBool};

// A small generator: the order of tries must be the same everywhere.
class Dice {
 public:
  explicit Dice(uint64_t seed) : state_(seed * 2 + 1) {}
  uint64_t operator()(uint64_t sides) {
    state_ = state_ * 6364136223846793005ULL + 1442695040888963407ULL;
    return (state_ >> 33) % sides;
  }

 private:
  uint64_t state_;
};

uint64_t hash_of(const std::string& text) {
  uint64_t hash = 1469598103934665603ULL;
  for (const char c : text) {
    hash = (hash ^ static_cast<unsigned char>(c)) * 1099511628211ULL;
  }
  return hash;
}

struct Recipe {
  size_t text;
  SizeClass sizes;
  c10::ScalarType dtype;
};

// Every text with even and uneven sizes first, the rest in a random order.
std::vector<Recipe> recipes(size_t texts, Dice& dice) {
  std::vector<Recipe> first, rest;
  for (size_t t = 0; t < texts; ++t) {
    for (const SizeClass sizes : kSizeClasses) {
      for (const c10::ScalarType dtype : kDtypes) {
        const bool early =
            dtype == at::kDouble &&
            (sizes == SizeClass::kEven || sizes == SizeClass::kUneven);
        (early ? first : rest).push_back({t, sizes, dtype});
      }
    }
  }
  for (auto* list : {&first, &rest}) {
    for (size_t i = list->size(); i > 1; --i) {
      std::swap((*list)[i - 1], (*list)[dice(i)]);
    }
  }
  // One in two of the first tries is of the rest, so that a small budget meets
  // every dtype and odd sizes.
  std::vector<Recipe> all;
  for (size_t i = 0; i < std::max(first.size(), rest.size()); ++i) {
    if (i < first.size()) {
      all.push_back(first[i]);
    }
    if (i < rest.size()) {
      all.push_back(rest[i]);
    }
  }
  return all;
}

class Checker {
 public:
  Checker(
      const c10::OperatorHandle& op, const detail::FoundRule& found,
      int64_t budget)
      : op_(op), found_(found), budget_(budget), dice_(0) {
    report_.name = c10::toString(op.operator_name());
    dice_ = Dice(hash_of(report_.name));
  }

  Report take() {
    const std::vector<std::string> texts = texts_of(op_.schema(), *found_.rule);
    report_.excuse = reason_for_no_case(texts);
    if (!report_.excuse.empty()) {
      return std::move(report_);
    }
    uint64_t seed = hash_of(report_.name) % 1000;
    int64_t fruitless = 0;
    for (const Recipe& recipe : recipes(texts.size(), dice_)) {
      if (report_.cases >= budget_ || fruitless > 60) {
        break;
      }
      const auto sample = make_sample(
          op_, texts[recipe.text], recipe.sizes, recipe.dtype, ++seed,
          report_.refusal);
      if (!sample) {
        ++report_.refused;
        fruitless += report_.samples == 0;
        continue;
      }
      ++report_.samples;
      check(*sample);
    }
    if (report_.samples == 0 &&
        report_.refusal.find("from the 'CPU' backend") != std::string::npos) {
      report_.excuse = "no kernel for this device";
    }
    return std::move(report_);
  }

 private:
  void check(const Sample& sample) {
    try {
      const SampleCall call(sample, found_);
      if (found_.rule->view) {
        check_view(call);
      } else if (call.units() > 0) {
        check_alone(call);
        check_pairs(call);
      }
    } catch (const c10::IndexError&) {
      ++report_.refused;  // a dim that does not exist; kernels may not look
    } catch (const c10::Error& error) {
      count(
          {Outcome::Kind::kWrong,
           report_.name + "(" + sample.text +
               "): the rule throws: " + error.what_without_backtrace()});
    }
  }

  void check_alone(const SampleCall& call) {
    const size_t rows = call.rows(0).size();
    for (size_t row = 0; row < rows; ++row) {
      for (const int64_t ranks : {2, 3, 4}) {
        count(try_rows(call, MeshShape({ranks}), {row}, CutStyle::kPlain));
      }
      const auto ranks = static_cast<int64_t>(2 + dice_(3));
      count(try_rows(
          call, MeshShape({ranks}), {row},
          dice_(2) == 0 ? CutStyle::kStrided : CutStyle::kRagged));
    }
  }

  // Pairs of rows, of which there may be many: a few of each sample.
  void check_pairs(const SampleCall& call) {
    const size_t rows = call.rows(0).size();
    static const MeshShape kMeshes[] = {MeshShape({2, 2}), MeshShape({2, 3})};
    for (size_t i = 0; i < std::min<size_t>(rows * rows, 6); ++i) {
      const std::vector<size_t> pair{dice_(rows), dice_(rows)};
      const CutStyle style =
          dice_(5) == 0 ? CutStyle::kStrided : CutStyle::kPlain;
      count(try_rows(call, kMeshes[dice_(2)], pair, style));
    }
    const size_t row = dice_(rows);
    count(try_rows(call, kMeshes[dice_(2)], {row, row}, CutStyle::kTurned));
  }

  void check_view(const SampleCall& call) {
    const std::vector<Placement> all = placements_of(call.operands()[0]);
    for (const int64_t ranks : {2, 3, 4}) {
      for (const Placement& p : all) {
        count(try_view(call, MeshShape({ranks}), {p}));
      }
    }
    static const MeshShape kMeshes[] = {MeshShape({2, 2}), MeshShape({2, 3})};
    for (size_t i = 0; i < 12; ++i) {
      const Placements pair{all[dice_(all.size())], all[dice_(all.size())]};
      if (is_mixed(pair)) {
        continue;
      }
      count(try_view(call, kMeshes[dice_(2)], pair));
    }
    const int64_t ndim = call.operands()[0].ndim();
    if (ndim > 0) {
      const auto d = static_cast<int64_t>(dice_(static_cast<uint64_t>(ndim)));
      count(try_view(
          call, kMeshes[dice_(2)],
          {Shard(d).with_order(1), Shard(d).with_order(0)}));
    }
  }

  static bool is_mixed(const Placements& pair) {
    return pair[0].is_partial() && pair[1].is_partial() &&
           pair[0].reduce_op() != pair[1].reduce_op();
  }

  static std::vector<Placement> placements_of(const Operand& operand) {
    std::vector<Placement> all{Replicate()};
    for (int64_t d = 0; d < operand.ndim(); ++d) {
      all.push_back(Shard(d));
      all.push_back(StridedShard(d, 2));
    }
    if (operand.dtype != at::kBool) {
      all.push_back(Partial());
    }
    if (c10::isFloatingType(operand.dtype)) {
      all.push_back(Partial(ReduceOp::kAvg));
    }
    if (!c10::isComplexType(operand.dtype)) {
      all.push_back(Partial(ReduceOp::kMax));
    }
    return all;
  }

  void count(Outcome outcome) {
    if (outcome.kind == Outcome::Kind::kDropped) {
      ++report_.dropped;
      return;
    }
    ++report_.cases;
    if (outcome.kind == Outcome::Kind::kWrong) {
      ++report_.wrong;
      if (report_.problems.size() < 8) {
        report_.problems.push_back(std::move(outcome.problem));
      }
    }
  }

  const c10::OperatorHandle& op_;
  const detail::FoundRule& found_;
  int64_t budget_;
  Dice dice_;
  Report report_;
};

}  // namespace

Report check_operator(
    const c10::OperatorHandle& op, const detail::FoundRule& found,
    int64_t budget) {
  return Checker(op, found, budget).take();
}

std::vector<Ruled> ruled_operators(const RuleTable& table) {
  std::vector<Ruled> all;
  for (const auto& name : c10::Dispatcher::singleton().getAllOpNames()) {
    const auto op = c10::Dispatcher::singleton().findSchema(name);
    if (!op || name.name.rfind("aten::", 0) != 0) {
      continue;
    }
    const auto found = detail::find_rule(table, op->schema(), overloads_of);
    // What has a kernel of its own never asks its rule.
    if (found.rule != nullptr &&
        detail::traits_of(*op).custom_kernel == nullptr) {
      all.push_back({*op, found});
    }
  }
  std::sort(all.begin(), all.end(), [](const Ruled& a, const Ruled& b) {
    return c10::toString(a.op.operator_name()) <
           c10::toString(b.op.operator_name());
  });
  return all;
}

std::optional<Ruled> find_ruled(
    const RuleTable& table, const std::string& name) {
  const size_t dot = name.find('.');
  const auto op = c10::Dispatcher::singleton().findSchema(
      {name.substr(0, dot),
       dot == std::string::npos ? "" : name.substr(dot + 1)});
  if (!op) {
    return std::nullopt;
  }
  const auto found = detail::find_rule(table, op->schema(), overloads_of);
  return found.rule == nullptr ? std::nullopt
                               : std::optional<Ruled>({*op, found});
}

}  // namespace tessera::oracle
