#include "differential_fuzz/operators.h"

#include <ATen/ATen.h>
#include <tessera/tensor/dtensor.h>

#include "differential_fuzz/data.h"

namespace tessera::programs {
namespace {

using Choices = std::vector<Operation>;

bool is_float(const at::Tensor& x) {
  return c10::isFloatingType(x.scalar_type());
}
bool is_bool(const at::Tensor& x) {
  return x.scalar_type() == at::kBool;
}

// One operand: the common case.
Operation one(
    std::string name, bool exact, std::function<at::Tensor(at::Tensor)> run) {
  return {std::move(name), exact, [run = std::move(run)](const Tensors& t) {
            return run(t[0]);
          }};
}
Operation two(
    std::string name, bool exact,
    std::function<at::Tensor(at::Tensor, at::Tensor)> run) {
  return {std::move(name), exact, [run = std::move(run)](const Tensors& t) {
            return run(t[0], t[1]);
          }};
}

// An extra operand of the operator itself: plain beside plain tensors, sharded
// in the step's way beside sharded ones.
at::Tensor beside(
    const at::Tensor& x, const at::Tensor& plain, const Step& step) {
  if (!is_dtensor(x)) {
    return plain;
  }
  const DeviceMesh& mesh = device_mesh(x);
  const Placements placements = placements_for(
      plain.sizes().vec(), mesh.shape(), plain.scalar_type(), step.source);
  DistributeOptions options;
  if (step.code(9, 2) == 0) {
    options.src_data_rank = std::nullopt;
  }
  return distribute_tensor(plain, mesh, placements, options);
}

Choices unary_choices(const at::Tensor& x, const Step& step) {
  if (is_bool(x)) {
    return {
        one("logical_not", true, [](auto t) { return t.logical_not(); }),
        one("to", true, [](auto t) { return t.to(at::kFloat); })};
  }
  Choices all{
      one("neg", true, [](auto t) { return t.neg(); }),
      one("abs", true, [](auto t) { return t.abs(); }),
      one("square", true, [](auto t) { return t.mul(t); }),
      one("mul.Scalar", true, [](auto t) { return t.mul(3); }),
      one("add.Scalar", true, [](auto t) { return t.add(5); }),
      one("clamp", true, [](auto t) { return t.clamp(-1, 1); }),
      one("relu", true, [](auto t) { return t.relu(); }),
      one("clone", true, [](auto t) { return t.clone(); })};
  if (is_float(x)) {
    static const c10::ScalarType to[] = {
        at::kFloat, at::kDouble, at::kBFloat16};
    const c10::ScalarType dtype = to[step.code(1, 3)];
    all.push_back(one("to", true, [dtype](auto t) { return t.to(dtype); }));
    all.push_back(
        one("exp", false, [](auto t) { return t.clamp(-3, 3).exp(); }));
    all.push_back(one("sin", false, [](auto t) { return t.sin(); }));
    all.push_back(one("tanh", false, [](auto t) { return t.tanh(); }));
    all.push_back(one("sigmoid", false, [](auto t) { return t.sigmoid(); }));
    all.push_back(one("gelu", false, [](auto t) { return at::gelu(t); }));
  }
  return all;
}

Choices binary_choices(const at::Tensor& a, const at::Tensor& b) {
  if (is_bool(a) && is_bool(b)) {
    return {
        two("logical_and", true,
            [](auto x, auto y) { return x.logical_and(y); }),
        two("logical_or", true, [](auto x, auto y) { return x.logical_or(y); }),
        two("logical_xor", true,
            [](auto x, auto y) { return x.logical_xor(y); }),
        two("eq", true, [](auto x, auto y) { return x.eq(y); })};
  }
  if (is_bool(a) || is_bool(b)) {
    return {
        two("mul", true, [](auto x, auto y) { return x.mul(y); }),
        two("maximum", true, [](auto x, auto y) { return at::maximum(x, y); }),
        two("ne", true, [](auto x, auto y) { return x.ne(y); })};
  }
  Choices all{
      two("add", true, [](auto x, auto y) { return x.add(y); }),
      two("sub", true, [](auto x, auto y) { return x.sub(y); }),
      two("mul", true, [](auto x, auto y) { return x.mul(y); }),
      two("maximum", true, [](auto x, auto y) { return at::maximum(x, y); }),
      two("minimum", true, [](auto x, auto y) { return at::minimum(x, y); }),
      two("lt", true, [](auto x, auto y) { return x.lt(y); }),
      two("eq", true, [](auto x, auto y) { return x.eq(y); }),
      two("where", true,
          [](auto x, auto y) { return at::where(x.gt(y), x, y.neg()); })};
  if (is_float(a) && is_float(b)) {
    all.push_back(
        two("add.alpha", false, [](auto x, auto y) { return x.add(y, 0.7); }));
    all.push_back(
        two("div", true, [](auto x, auto y) { return x.div(y.abs().add(1)); }));
    all.push_back(
        two("atan2", false, [](auto x, auto y) { return at::atan2(x, y); }));
  }
  return all;
}

// The second matrix is the step's own; the first is a matrix already.
Choices matmul_choices(const at::Tensor& x, const Step& step) {
  const bool exact = x.scalar_type() == at::kLong;
  const auto other = [step](const at::Tensor& t, const List& shape) {
    return beside(t, distinct(shape, t.scalar_type(), step.id + 17), step);
  };
  const int64_t n = 1 + step.code(2, 6);
  Choices all{
      one("mm", exact,
          [=](auto t) {
            return t.mm(other(t, {t.size(1), n}));
          }),
      one("mm.transposed", exact, [](auto t) { return t.mm(t.t()); }),
      one("matmul", exact,
          [=](auto t) {
            return t.matmul(other(t, {2, t.size(1), n}));
          }),
      one("mv", exact, [=](auto t) { return t.mv(other(t, {t.size(1)})); }),
      one("bmm", exact, [=](auto t) {
        return t.unsqueeze(0).bmm(other(t, {1, t.size(1), n}));
      })};
  if (is_float(x)) {
    all.push_back(one("addmm", false, [=](auto t) {
      return at::addmm(other(t, {n}), t, other(t, {t.size(1), n}));
    }));
    all.push_back(one("linear", false, [=](auto t) {
      return at::linear(t, other(t, {n, t.size(1)}), other(t, {n}));
    }));
  }
  return all;
}

Choices reduce_choices(const at::Tensor& x, const Step& step) {
  const bool whole_numbers = !is_float(x);
  Choices all{one("sum", whole_numbers, [](auto t) { return t.sum(); })};
  if (x.dim() == 0) {
    return all;
  }
  const int64_t d = step.code(1, x.dim());
  const bool keep = step.code(2, 2) == 1;
  all.push_back(one("sum.dim", whole_numbers, [=](auto t) {
    return t.sum(at::IntArrayRef{d}, keep);
  }));
  all.push_back(
      one("cumsum", whole_numbers, [=](auto t) { return t.cumsum(d); }));
  if (is_bool(x)) {
    all.push_back(one("any", true, [=](auto t) { return t.any(d, keep); }));
    all.push_back(one("all", true, [=](auto t) { return t.all(d, keep); }));
    return all;
  }
  all.push_back(
      one("prod", whole_numbers, [=](auto t) { return t.prod(d, keep); }));
  all.push_back(one("sort", true, [=](auto t) {
    return std::get<0>(t.sort(/*stable=*/true, d, /*descending=*/keep));
  }));
  if (x.size(d) > 0) {
    all.push_back(one("amax", true, [=](auto t) { return t.amax(d, keep); }));
    all.push_back(one("amin", true, [=](auto t) { return t.amin(d, keep); }));
    all.push_back(
        one("argmax", true, [=](auto t) { return t.argmax(d, keep); }));
    const int64_t k = 1 + step.code(3, x.size(d));
    all.push_back(
        one("topk", true, [=](auto t) { return std::get<0>(t.topk(k, d)); }));
  }
  if (is_float(x)) {
    all.push_back(one("mean", false, [=](auto t) { return t.mean(d, keep); }));
    all.push_back(one("softmax", false, [=](auto t) { return t.softmax(d); }));
    all.push_back(
        one("logsumexp", false, [=](auto t) { return t.logsumexp(d, keep); }));
    all.push_back(one("norm", false, [](auto t) { return t.norm(); }));
  }
  return all;
}

Choices view_choices(const at::Tensor& x, const Step& step) {
  Choices all{
      one("unsqueeze", true, [](auto t) { return t.unsqueeze(0); }),
      one("reshape", true, [](auto t) { return t.reshape({-1}); }),
      one("expand", true, [](auto t) {
        return t.unsqueeze(0).expand([&] {
          List sizes = t.sizes().vec();
          sizes.insert(sizes.begin(), 3);
          return sizes;
        }());
      })};
  if (x.dim() == 0) {
    return all;
  }
  const int64_t d = step.code(1, x.dim());
  const int64_t e = step.code(2, x.dim());
  const int64_t size = x.size(d);
  const int64_t begin = step.code(3, size + 1);
  const int64_t length = step.code(4, size - begin + 1);
  all.push_back(
      one("transpose", true, [=](auto t) { return t.transpose(d, e); }));
  all.push_back(
      one("narrow", true, [=](auto t) { return t.narrow(d, begin, length); }));
  all.push_back(one("slice", true, [=](auto t) {
    return t.slice(d, std::nullopt, std::nullopt, 2);
  }));
  all.push_back(one("flip", true, [=](auto t) { return t.flip({d}); }));
  all.push_back(one("roll", true, [=](auto t) { return t.roll({2}, {d}); }));
  all.push_back(one("squeeze", true, [](auto t) { return t.squeeze(); }));
  all.push_back(one("chunk, cat", true, [=](auto t) {
    auto parts = t.chunk(3, d);
    return at::cat(Tensors(parts.rbegin(), parts.rend()), d);
  }));
  all.push_back(one("pad", true, [](auto t) {
    return at::constant_pad_nd(t, {1, 2}, 0);
  }));
  if (size > 0) {
    const int64_t at = step.code(5, size);
    all.push_back(one("select", true, [=](auto t) { return t.select(d, at); }));
  }
  if (size % 2 == 0) {
    all.push_back(one("unflatten", true, [=](auto t) {
      return t.unflatten(d, {2, size / 2});
    }));
  }
  if (x.dim() >= 2) {
    all.push_back(one("flatten", true, [](auto t) { return t.flatten(0, 1); }));
    all.push_back(one("tril", true, [](auto t) { return t.tril(); }));
    all.push_back(one("diagonal", true, [](auto t) { return t.diagonal(); }));
    all.push_back(one(
        "movedim", true, [=](auto t) { return t.movedim(0, t.dim() - 1); }));
  }
  return all;
}

Choices join_choices(const at::Tensor& a, const Step& step) {
  const int64_t d = a.dim() == 0 ? 0 : step.code(1, a.dim());
  Choices all{two("stack", true, [=](auto x, auto y) {
    return at::stack({x, y}, d);
  })};
  if (a.dim() > 0) {
    all.push_back(two("cat", true, [=](auto x, auto y) {
      return at::cat({x, y}, d);
    }));
    all.push_back(two("cat of three", true, [=](auto x, auto y) {
      return at::cat({y, x, y}, d);
    }));
  }
  return all;
}

// Writes to a copy, directly or through a view of it.
Operation writes(
    std::string name, std::function<void(at::Tensor, at::Tensor)> write) {
  return two(std::move(name), true, [write = std::move(write)](auto x, auto y) {
    at::Tensor copy = x.clone();
    write(copy, y);
    return copy;
  });
}

Choices in_place_choices(
    const at::Tensor& a, const at::Tensor& b, const Step& step) {
  Choices all{
      writes("zero_", [](auto x, auto) { x.zero_(); }),
      writes("fill_", [](auto x, auto) { x.fill_(1); }),
      writes("copy_", [](auto x, auto y) { x.copy_(y); })};
  if (a.dim() > 0 && a.size(0) > 0) {
    const int64_t at = step.code(1, a.size(0));
    all.push_back(writes(
        "select.fill_", [=](auto x, auto) { x.select(0, at).fill_(1); }));
    all.push_back(writes("narrow.copy_", [=](auto x, auto y) {
      x.narrow(0, at, 1).copy_(y.narrow(0, 0, 1));
    }));
  }
  if (is_bool(a)) {
    all.push_back(
        writes("logical_not_", [](auto x, auto) { x.logical_not_(); }));
    return all;
  }
  all.push_back(writes("add_.Scalar", [](auto x, auto) { x.add_(2); }));
  all.push_back(writes("mul_.Scalar", [](auto x, auto) { x.mul_(2); }));
  all.push_back(writes("neg_", [](auto x, auto) { x.neg_(); }));
  all.push_back(writes("clamp_", [](auto x, auto) { x.clamp_(-2, 2); }));
  if (a.dim() > 1) {
    all.push_back(writes(
        "transpose.add_", [](auto x, auto) { x.transpose(0, 1).add_(3); }));
  }
  if (a.scalar_type() == b.scalar_type()) {
    all.push_back(writes("add_, sub_", [](auto x, auto y) {
      x.add_(y);
      x.sub_(3);
    }));
    all.push_back(writes("mul_", [](auto x, auto y) { x.mul_(y); }));
  }
  return all;
}

// `count` indices below `size`; none where there is nothing to index.
at::Tensor indices(int64_t count, int64_t size, const Step& step) {
  return size == 0 ? at::empty({0}, at::kLong)
                   : distinct({count}, at::kLong, step.id)
                         .remainder(size)
                         .contiguous();
}

Choices index_choices(const at::Tensor& x, const Step& step) {
  const int64_t d = step.code(1, x.dim());
  const int64_t count = 1 + step.code(2, 6);
  const at::Tensor chosen = indices(count, x.size(d), step);
  const bool adds = !is_float(x);
  List updates = x.sizes().vec();
  updates[static_cast<size_t>(d)] = chosen.numel();
  const auto extra = [=](const at::Tensor& t) {
    return beside(t, distinct(updates, t.scalar_type(), step.id + 5), step);
  };
  const auto mask = [=](const at::Tensor& t) {
    return beside(t, distinct(t.sizes().vec(), at::kBool, step.id), step);
  };
  Choices all{
      one("index_select", true,
          [=](auto t) { return t.index_select(d, beside(t, chosen, step)); }),
      one("index", true,
          [=](auto t) {
            c10::List<std::optional<at::Tensor>> list;
            for (int64_t i = 0; i < d; ++i) {
              list.push_back(std::optional<at::Tensor>());
            }
            list.push_back(std::optional<at::Tensor>(beside(t, chosen, step)));
            return t.index(list);
          }),
      one("gather", true,
          [=](auto t) {
            List shape(static_cast<size_t>(t.dim()), 1);
            shape[static_cast<size_t>(d)] = chosen.numel();
            return t.gather(
                d, beside(
                       t, chosen.reshape(shape).expand(updates).contiguous(),
                       step));
          }),
      one("masked_fill", true,
          [=](auto t) { return t.masked_fill(mask(t), 1); }),
      one("masked_select", true,
          [=](auto t) { return t.masked_select(mask(t)); }),
      one("index_copy", true, [=](auto t) {
        const at::Tensor once = std::get<0>(at::_unique(chosen));
        return t.index_copy(
            d, beside(t, once, step), extra(t).narrow(d, 0, once.numel()));
      })};
  if (!is_bool(x)) {
    all.push_back(one("index_add", adds, [=](auto t) {
      return t.index_add(d, beside(t, chosen, step), extra(t));
    }));
  }
  if (is_float(x) && x.dim() == 2 && x.size(0) > 0) {
    all.push_back(one("embedding", true, [=](auto t) {
      return at::embedding(t, beside(t, indices(count, t.size(0), step), step));
    }));
  }
  return all;
}

// Random numbers: the same on all ranks and engines, but of no plain program.
Choices draw_choices(const at::Tensor& x) {
  if (!is_float(x)) {
    return {
        one("bernoulli_", false,
            [](auto t) { return t.clone().bernoulli_(0.4); }),
        one("random_", false, [](auto t) { return t.clone().random_(0, 2); })};
  }
  return {
      one("dropout", false, [](auto t) { return at::dropout(t, 0.4, true); }),
      one("uniform_", false,
          [](auto t) { return t.detach().clone().uniform_(-1, 1); }),
      one("normal_", false,
          [](auto t) { return t.detach().clone().normal_(0.5, 2); }),
      one("rand_like", false, [](auto t) { return t.mul(at::rand_like(t)); })};
}

Choices choices_for(const Step& step, const Tensors& t) {
  switch (step.kind) {
    case Kind::kUnary:
      return unary_choices(t[0], step);
    case Kind::kBinary:
      return binary_choices(t[0], t[1]);
    case Kind::kMatmul:
      return matmul_choices(t[0], step);
    case Kind::kReduce:
      return reduce_choices(t[0], step);
    case Kind::kView:
      return view_choices(t[0], step);
    case Kind::kJoin:
      return join_choices(t[0], step);
    case Kind::kInPlace:
      return in_place_choices(t[0], t[1], step);
    case Kind::kIndex:
      return index_choices(t[0], step);
    case Kind::kDraw:
      return draw_choices(t[0]);
    case Kind::kMake:
    case Kind::kRedistribute:
    case Kind::kAsyncRedistribute:
    case Kind::kOtherMesh:
    case Kind::kVisit:
    case Kind::kPlain:
    case Kind::kLocal:
    case Kind::kBackward:
    case Kind::kCollective:
    case Kind::kOverlap:
    case Kind::kMessages:
    case Kind::kFamily:
      break;
  }
  TORCH_CHECK(false, to_string(step.kind), " is no operator");
}

}  // namespace

Operation choose(const Step& step, const Tensors& operands) {
  Choices all = choices_for(step, operands);
  Operation chosen = std::move(
      all[static_cast<size_t>(step.code(0, static_cast<int64_t>(all.size())))]);
  chosen.name = std::string(to_string(step.kind)) + "." + chosen.name;
  return chosen;
}

}  // namespace tessera::programs
