#include "differential_fuzz/player.h"

#include <algorithm>
#include <cstring>

#include <ATen/ATen.h>
#include <c10/core/GradMode.h>
#include <tessera/comm/world.h>
#include <tessera/tensor/dtensor.h>
#include <tessera/tensor/factories.h>
#include <tessera/tensor/random.h>

namespace tessera::programs {
namespace {

constexpr int64_t kMaxNumel = 12000;

bool holds_floats(const at::Tensor& t) {
  return c10::isFloatingType(t.scalar_type());
}

// Addends whose sum is rounded: what operators do to them depends on where they
// are added up.
bool has_rounded_addends(const at::Tensor& t) {
  const Placements& all = placements(t);
  return holds_floats(t) &&
         std::any_of(all.begin(), all.end(), [](const auto& p) {
           return p.is_partial() && (p.reduce_op() == ReduceOp::kSum ||
                                     p.reduce_op() == ReduceOp::kAvg);
         });
}

// Equal addends whose number is no power of two: their mean may be rounded.
bool mean_is_rounded(const at::Tensor& t) {
  const Placements& all = placements(t);
  for (size_t m = 0; m < all.size(); ++m) {
    const int64_t n = device_mesh(t).size(static_cast<int64_t>(m));
    if (all[m].is_partial() && all[m].reduce_op() == ReduceOp::kAvg &&
        (n & (n - 1)) != 0) {
      return true;
    }
  }
  return false;
}

bool has_average(const Placements& all) {
  return std::any_of(all.begin(), all.end(), [](const auto& p) {
    return p.is_partial() && p.reduce_op() == ReduceOp::kAvg;
  });
}

// from_local() refuses gradients of such addends.
bool has_selected_addends(const Placements& all) {
  return std::any_of(all.begin(), all.end(), [](const auto& p) {
    return p.is_partial() && p.reduce_op() != ReduceOp::kSum &&
           p.reduce_op() != ReduceOp::kAvg;
  });
}

at::Tensor leaf(const at::Tensor& t, bool requires_grad) {
  return holds_floats(t) && requires_grad ? t.detach().requires_grad_(true) : t;
}

}  // namespace

Player::Player(
    Program program, Plant plant, std::function<void(Outcome)> report)
    : program_(std::move(program)), plant_(plant), report_(std::move(report)) {
  for (const MeshChoice& choice : mesh_choices(program_.ranks)) {
    meshes_.emplace_back(
        at::kCPU, at::tensor(choice.ranks, at::kLong).reshape(choice.sizes));
  }
}

void Player::play() {
  manual_seed(program_.seed);
  for (const Step& step : program_.steps) {
    try {
      play_step(step);
    } catch (const std::exception& error) {
      const auto* ours = dynamic_cast<const c10::Error*>(&error);
      TORCH_CHECK(
          false, "seed ", program_.seed, ", step ", step.id, ", ", kind_, text_,
          ": ", ours ? ours->what_without_backtrace() : error.what());
    }
  }
}

void Player::play_step(const Step& step) {
  hash_ = Hash();
  kind_ = to_string(step.kind);
  text_.clear();
  Value value = perform(step);
  if (value.tensor.defined()) {
    value.id = step.id;
    say(" -> " + to_string(spec(value.tensor)));
    check(value);
    if (plant_.seed == program_.seed && plant_.step == step.id) {
      flip_bit(value);
    }
    hash_.add(value.tensor);
    values_.push_back(std::move(value));
  }
  report_({step.id, hash_.value(), kind_, text_});
}

Player::Value Player::perform(const Step& step) {
  switch (step.kind) {
    case Kind::kMake:
      return make(step, step.source.shape, step.source.dtype);
    case Kind::kRedistribute:
    case Kind::kAsyncRedistribute:
      return redistribute_step(step);
    case Kind::kOtherMesh:
      return other_mesh(step);
    case Kind::kVisit:
      return visit(step);
    case Kind::kUnary:
    case Kind::kBinary:
    case Kind::kMatmul:
    case Kind::kReduce:
    case Kind::kView:
    case Kind::kJoin:
    case Kind::kInPlace:
    case Kind::kIndex:
    case Kind::kDraw:
      return apply(step);
    case Kind::kPlain:
      return through_plain(step);
    case Kind::kLocal:
      return through_local(step);
    case Kind::kBackward:
      return backward(step);
    case Kind::kCollective:
    case Kind::kOverlap:
    case Kind::kMessages:
      return communicate(step);
    case Kind::kFamily:
      return family(step);
  }
  return {};
}

Player::Value Player::make_from_local(
    const Step& step, Value value, const Placements& p) {
  const List shape = value.plain.sizes().vec();
  Cut cut = cut_distinct(
      shape, value.plain.scalar_type(), step.id, mesh_of(value.mesh), p);
  cut.local =
      leaf(cut.local, step.source.requires_grad && !has_selected_addends(p));
  if (cut.local.requires_grad()) {
    leaves_.push_back(cut.local);
  }
  value.tensor =
      from_local(cut.local, mesh_of(value.mesh), p, {.shape = shape});
  value.plain = cut.whole;
  return value;
}

Player::Value Player::make(
    const Step& step, const List& shape, c10::ScalarType dtype) {
  const DeviceMesh& mesh = mesh_of(step.mesh);
  Value value{step.id, step.mesh, {}, distinct(shape, dtype, step.id)};
  const Placements p = placements_for(shape, mesh.shape(), dtype, step.source);
  const at::TensorOptions options(dtype);
  int64_t way = step.source.way;
  if (dtype == at::kBool && way > 4) {
    way %= 5;
  }
  switch (way) {
    case 0:
    case 1:
    case 2:
      say(" from_local");
      return make_from_local(step, std::move(value), p);
    case 5:
      say(" full");
      value.tensor = tessera::full(shape, 3, mesh, p, options);
      value.plain = at::full(shape, 3, options);
      break;
    case 6:
      say(" ones");
      value.tensor = tessera::ones(shape, mesh, p, options);
      value.plain = at::ones(shape, options);
      break;
    case 7:
      say(" randint");
      value.tensor = tessera::randint(-9, 9, shape, mesh, p, options);
      value.plain = at::Tensor();
      break;
    case 8:
      say(" randn");
      value.tensor = holds_floats(value.plain)
                         ? tessera::randn(shape, mesh, p, options)
                         : tessera::zeros(shape, mesh, p, options);
      value.plain = at::Tensor();
      break;
    case 9:
      say(" rand");
      value.tensor = holds_floats(value.plain)
                         ? tessera::rand(shape, mesh, p, options)
                         : tessera::randint(0, 5, shape, mesh, p, options);
      value.plain = at::Tensor();
      break;
    default: {
      say(" distribute_tensor");
      DistributeOptions how;
      if (way == 3) {
        how.src_data_rank = std::nullopt;
      }
      value.tensor = distribute_tensor(value.plain, mesh, p, how);
    }
  }
  if (mean_is_rounded(value.tensor)) {
    value.plain = at::Tensor();
  }
  value.tensor = leaf(value.tensor, step.source.requires_grad);
  if (value.tensor.requires_grad()) {
    leaves_.push_back(value.tensor);
  }
  return value;
}

Player::Value Player::pick(
    const Step& step, size_t which, const Test& suits, bool numeric) {
  const int64_t wanted = step.wanted[which];
  const Value* best = nullptr;
  for (const Value& value : values_) {
    const bool usable = value.tensor.numel() <= kMaxNumel && suits(value) &&
                        (!numeric || value.tensor.scalar_type() != at::kBool);
    if (usable && (best == nullptr || value.id <= wanted)) {
      best = &value;
    }
  }
  if (best != nullptr) {
    say(" %" + std::to_string(best->id));
    return *best;
  }
  const c10::ScalarType dtype = numeric && step.source.dtype == at::kBool
                                    ? at::kFloat
                                    : step.source.dtype;
  List shape = step.source.shape;
  Value own = make(step, shape, dtype);
  // Two dims, or a dtype with gradients, where only that suits.
  if (!suits(own)) {
    shape.resize(2, 3);
    own = make(step, shape, at::kDouble);
  }
  say(" (" + to_string(spec(own.tensor)) + ")");
  return own;
}

Player::Value Player::partner(const Step& step, const Value& first) {
  const auto same = [&](const Value& other) {
    return other.mesh == first.mesh &&
           other.tensor.sizes() == first.tensor.sizes();
  };
  if (step.code(8, 3) > 0) {
    for (const Value& value : values_) {
      if (value.id == step.wanted[1] && same(value)) {
        say(" %" + std::to_string(value.id));
        return value;
      }
    }
  }
  Step own = step;
  own.mesh = first.mesh;
  own.source.requires_grad = false;
  Value made = make(own, first.tensor.sizes().vec(), step.source.dtype);
  say(" (" + to_string(spec(made.tensor)) + ")");
  return made;
}

Player::Value Player::apply(const Step& step) {
  const auto suits = [&](const Value& v) {
    if (step.kind == Kind::kMatmul) {
      return v.tensor.dim() == 2 && v.tensor.scalar_type() != at::kBool;
    }
    return step.kind != Kind::kIndex || v.tensor.dim() >= 1;
  };
  std::vector<Value> operands{pick(step, 0, suits, step.kind == Kind::kMatmul)};
  if (step.kind == Kind::kBinary || step.kind == Kind::kJoin ||
      step.kind == Kind::kInPlace) {
    operands.push_back(partner(step, operands[0]));
  }
  Tensors sharded;
  Tensors plain;
  bool exact = true;
  for (const Value& value : operands) {
    sharded.push_back(value.tensor);
    plain.push_back(value.plain);
    exact =
        exact && value.plain.defined() && !has_rounded_addends(value.tensor);
  }
  const Operation operation = choose(step, sharded);
  kind_ = operation.name;
  Value result{step.id, operands[0].mesh, operation.run(sharded), {}};
  if (exact && operation.exact) {
    const c10::AutoGradMode no_grad(false);
    result.plain = operation.run(plain);
  }
  return result;
}

Placements Player::placements_of(const Step& step, const Value& value) const {
  return placements_for(
      value.tensor.sizes().vec(),
      meshes_[static_cast<size_t>(value.mesh)].shape(),
      value.tensor.scalar_type(), step.source);
}

Player::Value Player::redistribute_step(const Step& step) {
  Value value = pick(
      step, 0, [](const Value&) { return true; }, false);
  const Placements to = placements_of(step, value);
  const bool averages =
      has_average(to) != has_average(placements(value.tensor));
  RedistributeOptions options;
  if (holds_floats(value.tensor) && step.code(1, 6) == 0) {
    options.forward_dtype = step.code(2, 2) == 0 ? at::kDouble : at::kBFloat16;
    options.backward_dtype = at::kFloat;
  }
  const bool rounds =
      options.forward_dtype.has_value() && has_rounded_addends(value.tensor);
  if (step.kind == Kind::kAsyncRedistribute) {
    options.async = true;
    Step second = step;
    second.source.placement_codes = {step.code(3, 4096), step.code(4, 4096)};
    const at::Tensor first = redistribute(value.tensor, to, options);
    const at::Tensor other = redistribute(
        value.tensor, placements_of(second, value), {.async = true});
    hash_.add(other);
    value.tensor = first;
  } else {
    value.tensor = redistribute(value.tensor, to, options);
  }
  if (averages || rounds) {
    value.plain = at::Tensor();
  } else if (options.forward_dtype && value.plain.defined()) {
    value.plain = value.plain.to(*options.forward_dtype);
  }
  return value;
}

Player::Value Player::other_mesh(const Step& step) {
  Value value = pick(
      step, 0, [](const Value&) { return true; }, false);
  const bool averages = has_average(placements(value.tensor));
  value.mesh = step.mesh;
  const Placements to = placements_of(step, value);
  value.tensor = redistribute(value.tensor, mesh_of(step.mesh), to);
  if (averages != has_average(to)) {
    value.plain = at::Tensor();
  }
  return value;
}

// To a mesh of some ranks, and back.
Player::Value Player::visit(const Step& step) {
  Value value = pick(
      step, 0, [](const Value&) { return true; }, false);
  const bool averages = has_average(placements(value.tensor));
  const int64_t few = 1 + step.code(1, program_.ranks);
  const int64_t first = step.code(2, program_.ranks - few + 1);
  const DeviceMesh some(at::kCPU, at::arange(first, first + few, at::kLong));
  say(" by " + to_string(some));
  Source source = step.source;
  const Placements there = placements_for(
      value.tensor.sizes().vec(), {few}, value.tensor.scalar_type(), source);
  const at::Tensor away = redistribute(value.tensor, some, there);
  hash_.add(away);
  std::swap(source.placement_codes[0], source.placement_codes[1]);
  Step back = step;
  back.source = source;
  const Placements home = placements_of(back, value);
  value.tensor = redistribute(away, mesh_of(value.mesh), home);
  if (averages || has_average(there) || has_average(home)) {
    value.plain = at::Tensor();
  }
  return value;
}

Player::Value Player::through_plain(const Step& step) {
  Value value = pick(
      step, 0, [](const Value&) { return true; }, false);
  const at::Tensor whole = full_tensor(value.tensor);
  hash_.add(whole);
  const DeviceMesh& mesh = mesh_of(value.mesh);
  value.tensor = from_local(
      whole, mesh, Placements(static_cast<size_t>(mesh.ndim()), Replicate()));
  return value;
}

Player::Value Player::through_local(const Step& step) {
  Value value = pick(
      step, 0, [](const Value&) { return true; }, false);
  if (has_selected_addends(placements(value.tensor))) {
    value.tensor = value.tensor.detach();
  }
  const at::Tensor local = to_local(value.tensor);
  value.tensor = from_local(
      local, mesh_of(value.mesh), Placements(placements(value.tensor)),
      {.shape = value.tensor.sizes().vec()});
  return value;
}

// Changes nothing but gradients, which are taken away again.
Player::Value Player::backward(const Step& step) {
  Value value = pick(
      step, 0, [](const Value& v) { return v.tensor.requires_grad(); }, true);
  if (!value.tensor.requires_grad()) {
    value.tensor = value.tensor.detach().requires_grad_(true);
    leaves_.push_back(value.tensor);
  }
  const Placements p = placements_of(step, value);
  const Cut cotangent = cut_distinct(
      value.tensor.sizes().vec(), value.tensor.scalar_type(), step.id + 41,
      mesh_of(value.mesh), p);
  value.tensor.backward(
      from_local(
          cotangent.local, mesh_of(value.mesh), p,
          {.shape = value.tensor.sizes().vec()}),
      /*retain_graph=*/true);
  int64_t gradients = 0;
  for (const at::Tensor& x : leaves_) {
    if (x.grad().defined()) {
      hash_.add(x.grad());
      x.mutable_grad().reset();
      ++gradients;
    }
  }
  say(", " + std::to_string(gradients) + " gradients");
  return {};
}

void Player::check(const Value& value) const {
  if (!value.plain.defined() || plant_.seed == program_.seed) {
    return;
  }
  const at::Tensor got = full_tensor(value.tensor.detach());
  const bool same =
      got.sizes() == value.plain.sizes() &&
      got.scalar_type() == value.plain.scalar_type() &&
      (holds_floats(got) ? at::allclose(got, value.plain, 0, 0, true)
                         : at::equal(got, value.plain));
  if (!same) {
    const at::Tensor at = got.sizes() == value.plain.sizes()
                              ? got.ne(value.plain).flatten().nonzero()
                              : at::Tensor();
    const int64_t first =
        at.defined() && at.numel() > 0 ? at[0].item<int64_t>() : 0;
    TORCH_CHECK(
        false, "rank ", rank(),
        ": the value is not that of the plain program; ",
        at.defined() ? at.numel() : got.numel(), " elements differ, element ",
        first, " is ", got.flatten()[first].item<double>(), ", not ",
        value.plain.flatten()[first].item<double>());
  }
}

void Player::flip_bit(const Value& value) {
  const at::Tensor local = to_local(value.tensor.detach());
  if (rank() + 1 < world_size()) {
    return;
  }
  if (local.numel() == 0) {
    hash_.add("planted");
  } else {
    static_cast<unsigned char*>(local.mutable_data_ptr())[0] ^= 1;
  }
}

}  // namespace tessera::programs
