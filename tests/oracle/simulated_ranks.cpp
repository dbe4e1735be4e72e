#include <oracle/simulated_ranks.h>

#include <sstream>

#include <ATen/ATen.h>
#include <tessera/layout/notation.h>

namespace tessera::oracle {

namespace {

// A generator of well mixed numbers that needs no state of its own.
uint64_t mixed(uint64_t x) {
  x += 0x9e3779b97f4a7c15ULL;
  x = (x ^ (x >> 30)) * 0xbf58476d1ce4e5b9ULL;
  x = (x ^ (x >> 27)) * 0x94d049bb133111ebULL;
  return x ^ (x >> 31);
}

// The mesh dims on which a layout is Partial.
struct PartialDims {
  std::vector<size_t> dims;
  ReduceOp op = ReduceOp::kSum;
  int64_t parts = 1;
  int64_t averaged = 1;  // by what the sum of all addends is divided
};

PartialDims partial_dims(const Layout& layout) {
  PartialDims partial;
  for (size_t m = 0; m < layout.placements().size(); ++m) {
    const Placement& p = layout.placements()[m];
    if (!p.is_partial()) {
      continue;
    }
    const int64_t size = layout.mesh().size(static_cast<int64_t>(m));
    partial.dims.push_back(m);
    partial.parts *= size;
    partial.averaged *= p.reduce_op() == ReduceOp::kAvg ? size : 1;
    partial.op =
        p.reduce_op() == ReduceOp::kAvg ? ReduceOp::kSum : p.reduce_op();
  }
  return partial;
}

int64_t addend_of(
    const PartialDims& partial, const Layout& layout,
    const Coordinate& coordinate) {
  int64_t index = 0;
  for (const size_t m : partial.dims) {
    index = index * layout.mesh().size(static_cast<int64_t>(m)) + coordinate[m];
  }
  return index;
}

at::Tensor numbers_like(
    const at::Tensor& whole, int64_t low, int64_t high, uint64_t seed) {
  return random_integers(whole.sizes(), low, high, seed)
      .to(whole.scalar_type());
}

std::vector<at::Tensor> sum_addends(
    const at::Tensor& whole, const PartialDims& partial, uint64_t seed) {
  std::vector<at::Tensor> addends;
  at::Tensor rest = whole * partial.averaged;
  for (int64_t p = 0; p + 1 < partial.parts; ++p) {
    // Never 0: an addend that is nothing would hide what is lost.
    at::Tensor addend =
        numbers_like(whole, 1, 4, seed + static_cast<uint64_t>(p));
    addend = p % 2 == 0 ? addend : -addend;
    rest = rest - addend;
    addends.push_back(addend);
  }
  addends.push_back(rest);
  return addends;
}

// Which addend decides each element.
at::Tensor winners(
    const at::Tensor& whole, const PartialDims& partial, uint64_t seed) {
  return random_integers(whole.sizes(), 0, partial.parts - 1, seed);
}

std::vector<at::Tensor> extreme_addends(
    const at::Tensor& whole, const PartialDims& partial, uint64_t seed) {
  const at::Tensor winner = winners(whole, partial, seed);
  const bool is_max = partial.op == ReduceOp::kMax;
  std::vector<at::Tensor> addends;
  for (int64_t p = 0; p < partial.parts; ++p) {
    at::Tensor loser;
    const uint64_t own = seed + 1 + static_cast<uint64_t>(p);
    if (whole.scalar_type() == at::kBool) {
      const at::Tensor bits = numbers_like(whole, 0, 1, own);
      loser = is_max ? whole.logical_and(bits) : whole.logical_or(bits);
    } else {
      const at::Tensor less = numbers_like(whole, 1, 9, own);
      loser = is_max ? whole - less : whole + less;
    }
    addends.push_back(at::where(winner == p, whole, loser));
  }
  return addends;
}

std::vector<at::Tensor> product_addends(
    const at::Tensor& whole, const PartialDims& partial, uint64_t seed) {
  const bool exact_quotient = whole.is_floating_point() || whole.is_complex();
  std::vector<at::Tensor> addends;
  at::Tensor rest = whole;
  for (int64_t p = 0; p + 1 < partial.parts; ++p) {
    at::Tensor factor =
        numbers_like(whole, 0, 1, seed + static_cast<uint64_t>(p));
    if (whole.scalar_type() == at::kBool) {
      factor = at::logical_or(factor, whole);
    } else {
      factor = factor * 2 - 1;  // -1 or 1
      factor = exact_quotient ? factor * 2 : factor;
      rest = exact_quotient ? rest / factor : rest * factor;
    }
    addends.push_back(factor);
  }
  addends.push_back(rest);
  return addends;
}

std::vector<at::Tensor> addends_of(
    const at::Tensor& whole, const PartialDims& partial, uint64_t seed) {
  switch (partial.op) {
    case ReduceOp::kSum:
    case ReduceOp::kAvg:
      return sum_addends(whole, partial, seed);
    case ReduceOp::kMax:
    case ReduceOp::kMin:
      return extreme_addends(whole, partial, seed);
    case ReduceOp::kProduct:
      return product_addends(whole, partial, seed);
  }
  return {};
}

at::Tensor reduced(
    const std::vector<at::Tensor>& addends, const PartialDims& partial) {
  at::Tensor value = addends[0];
  for (size_t p = 1; p < addends.size(); ++p) {
    switch (partial.op) {
      case ReduceOp::kSum:
      case ReduceOp::kAvg:
        value = value + addends[p];
        break;
      case ReduceOp::kMax:
        value = at::maximum(value, addends[p]);
        break;
      case ReduceOp::kMin:
        value = at::minimum(value, addends[p]);
        break;
      case ReduceOp::kProduct:
        value = value * addends[p];
        break;
    }
  }
  return partial.averaged == 1
             ? value
             : (value / partial.averaged).to(value.scalar_type());
}

at::Tensor pick(
    const at::Tensor& whole, const Layout& layout,
    const Coordinate& coordinate) {
  at::Tensor part = whole;
  for (int64_t d = 0; d < whole.dim(); ++d) {
    if (layout.cuts(d).empty()) {
      continue;
    }
    const Layout::Runs runs = layout.runs(d, coordinate);
    if (runs.size() <= 1) {
      part = runs.empty() ? part.narrow(d, 0, 0)
                          : part.narrow(d, runs[0].begin, runs[0].length());
      continue;
    }
    std::vector<at::Tensor> pieces;
    for (const Layout::Run& run : runs) {
      pieces.push_back(part.narrow(d, run.begin, run.length()));
    }
    part = at::cat(pieces, d);
  }
  return part.clone(at::MemoryFormat::Contiguous);
}

// Copies a part to its place; a dim of several runs is one of many pieces.
void place(
    at::Tensor whole, at::Tensor part, const Layout& layout,
    const Coordinate& coordinate, int64_t dim) {
  if (dim == whole.dim()) {
    whole.copy_(part);
    return;
  }
  if (layout.cuts(dim).empty()) {
    return place(whole, part, layout, coordinate, dim + 1);
  }
  int64_t begin = 0;
  for (const Layout::Run& run : layout.runs(dim, coordinate)) {
    place(
        whole.narrow(dim, run.begin, run.length()),
        part.narrow(dim, begin, run.length()), layout, coordinate, dim + 1);
    begin += run.length();
  }
}

bool same_values(const at::Tensor& a, const at::Tensor& b) {
  if (a.sizes() != b.sizes() || a.scalar_type() != b.scalar_type()) {
    return false;
  }
  if (at::equal(a, b)) {
    return true;
  }
  return (a.is_floating_point() || a.is_complex()) &&
         at::logical_or(a == b, at::logical_and(a != a, b != b))
             .all()
             .item<bool>();
}

bool can_be_exact(const at::Tensor& want) {
  if (want.scalar_type() != at::kDouble && want.scalar_type() != at::kFloat) {
    return false;
  }
  const at::Tensor scaled = want * 64;
  return at::logical_and(scaled == scaled.round(), scaled.abs() < (1 << 20))
      .all()
      .item<bool>();
}

// What may differ: rounding, relative to the values of the whole tensor.
double tolerance_of(const at::Tensor& want) {
  const c10::ScalarType dtype = c10::toRealValueType(want.scalar_type());
  const bool exact = can_be_exact(want);
  return dtype == at::kDouble  ? (exact ? 1e-13 : 1e-10)
         : dtype == at::kFloat ? (exact ? 1e-6 : 2e-4)
                               : 4e-2;
}

at::Tensor as_real_double(const at::Tensor& t) {
  return (t.is_complex() ? at::view_as_real(t.resolve_conj().contiguous()) : t)
      .to(at::kDouble);
}

std::string first_difference(
    const at::Tensor& got, const at::Tensor& want, const at::Tensor& wrong) {
  std::ostringstream out;
  const int64_t at = wrong.reshape(-1).to(at::kInt).argmax().item<int64_t>();
  int64_t rest = at;
  std::vector<int64_t> index(static_cast<size_t>(want.dim()));
  for (int64_t d = want.dim() - 1; d >= 0; --d) {
    index[static_cast<size_t>(d)] = rest % want.size(d);
    rest /= want.size(d);
  }
  out << "element " << shape_to_string(index) << " is "
      << got.reshape(-1)[at].item<double>() << " instead of "
      << want.reshape(-1)[at].item<double>();
  return out.str();
}

}  // namespace

std::vector<Coordinate> coordinates_of(const MeshShape& mesh) {
  std::vector<Coordinate> all;
  for (const int64_t rank : mesh.ranks()) {
    all.push_back(*mesh.coordinate_of(rank));
  }
  return all;
}

at::Tensor random_integers(
    at::IntArrayRef shape, int64_t low, int64_t high, uint64_t seed) {
  at::Tensor numbers = at::empty(shape, at::kLong);
  int64_t* data = numbers.mutable_data_ptr<int64_t>();
  const auto range = static_cast<uint64_t>(high - low + 1);
  for (int64_t i = 0; i < numbers.numel(); ++i) {
    const uint64_t word =
        mixed(seed * 0x100000001b3ULL + static_cast<uint64_t>(i));
    data[i] = low + static_cast<int64_t>((word >> 16) % range);
  }
  return numbers;
}

std::vector<at::Tensor> cut(
    const at::Tensor& whole, const Layout& layout, uint64_t seed) {
  const PartialDims partial = partial_dims(layout);
  std::vector<at::Tensor> addends{whole};
  if (!partial.dims.empty()) {
    addends = addends_of(whole, partial, seed);
  }
  std::vector<at::Tensor> parts;
  for (const Coordinate& coordinate : coordinates_of(layout.mesh())) {
    const auto p = static_cast<size_t>(addend_of(partial, layout, coordinate));
    parts.push_back(pick(addends[p], layout, coordinate));
  }
  return parts;
}

at::Tensor assemble(
    const std::vector<at::Tensor>& parts, const Layout& layout,
    std::string& problem) {
  const std::vector<Coordinate> coordinates = coordinates_of(layout.mesh());
  const PartialDims partial = partial_dims(layout);
  for (size_t r = 0; r < parts.size(); ++r) {
    const auto wanted = layout.local_shape(coordinates[r]);
    if (parts[r].sizes() != at::IntArrayRef(wanted)) {
      problem = "the part of rank " + std::to_string(r) + " has shape " +
                shape_to_string(parts[r].sizes().vec()) + ", and " +
                to_string(layout) + " gives it " + shape_to_string(wanted);
      return {};
    }
  }
  at::Tensor whole = at::zeros(layout.shape(), parts[0].options());
  for (size_t r = 0; r < parts.size(); ++r) {
    const Coordinate& here = coordinates[r];
    std::vector<at::Tensor> addends;
    bool leads = true;
    for (const size_t m : partial.dims) {
      leads = leads && here[m] == 0;
    }
    for (size_t other = 0; leads && other < parts.size(); ++other) {
      Coordinate there = coordinates[other];
      for (const size_t m : partial.dims) {
        there[m] = 0;
      }
      if (there == here) {
        addends.push_back(parts[other]);
      }
    }
    if (!leads) {
      continue;
    }
    const at::Tensor value = reduced(addends, partial);
    Coordinate first = here;
    for (size_t m = 0; m < here.size(); ++m) {
      first[m] = layout.placements()[m].is_replicate() ? 0 : here[m];
    }
    if (first == here) {
      place(whole, value, layout, here, 0);
    } else if (!difference(value, pick(whole, layout, here)).empty()) {
      problem = "the replicas of ranks " +
                std::to_string(layout.mesh().rank_at(first)) + " and " +
                std::to_string(r) + " differ";
      return whole;
    }
  }
  return whole;
}

std::string difference(
    const at::Tensor& got, const at::Tensor& want, bool finite_only) {
  if (got.scalar_type() != want.scalar_type()) {
    return std::string("dtype ") + c10::toString(got.scalar_type()) +
           " instead of " + c10::toString(want.scalar_type());
  }
  if (got.sizes() != want.sizes()) {
    return "shape " + shape_to_string(got.sizes().vec()) + " instead of " +
           shape_to_string(want.sizes().vec());
  }
  if (same_values(got, want)) {
    return "";
  }
  const at::Tensor a = as_real_double(got);
  const at::Tensor b = as_real_double(want);
  at::Tensor differs =
      at::logical_not(at::logical_or(a == b, at::logical_and(a != a, b != b)));
  if (!want.is_floating_point() && !want.is_complex()) {
    return first_difference(a, b, differs);
  }
  if (finite_only) {
    differs =
        at::logical_and(differs, at::logical_or(b.isfinite(), a.isfinite()));
  }
  // Addends are larger than their sum, and rounded as they are.
  const bool is_short = c10::elementSize(want.scalar_type()) == 2;
  const double slack = finite_only && is_short ? 16 : 1;
  const at::Tensor finite = at::where(b.isfinite(), b.abs(), 0.0);
  const at::Tensor allowed =
      tolerance_of(want) * slack * (finite + finite.max()).clamp_min(8.0);
  const at::Tensor wrong =
      at::logical_and(differs, at::logical_not((a - b).abs() <= allowed));
  return wrong.any().item<bool>() ? first_difference(a, b, wrong) : "";
}

}  // namespace tessera::oracle
