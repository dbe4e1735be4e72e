// What is kept about a call never answers for one with another number.
#include <tensor/fast/decision_cache/call_variants.h>

namespace tessera {
namespace {

using testing::expect_no_wrong_answer;
using testing::Group;
using testing::Scalars;

// Numbers, dtypes of numbers.
std::vector<Group> number_groups() {
  return {
      {"add, alpha",
       {ONE(d.x.add(d.y)), ONE(d.x.add(d.y, 2)), ONE(d.x.add(d.y, -1.5)),
        ONE(d.y.add(d.x, 2)), ONE(d.x.add(d.row, 2)), ONE(d.x.add(3)),
        ONE(d.x.add(4.5)), ONE(d.x.add(3, 2))}},
      {"mul of integers",
       {ONE(d.n.mul(2)), ONE(d.n.mul(3)), ONE(d.n.mul(2.5)), ONE(d.n.mul(true)),
        ONE(d.n.mul(d.n)), ONE(d.n.mul(d.x)),
        ONE(at::real(d.n.mul(c10::complex<double>(1, 2)))),
        ONE(at::imag(d.n.mul(c10::complex<double>(1, 2)))),
        ONE(at::imag(d.n.mul(c10::complex<double>(1, 3))))}},
      {"mul.Scalar of integers",
       {ONE(at::mul(d.n, 2)), ONE(at::mul(d.n, 2.5)), ONE(at::mul(d.n, 7))}},
      {"pow",
       {ONE(d.n.pow(2)), ONE(d.n.pow(3)), ONE(d.n.pow(2.0)), ONE(d.n.pow(0)),
        ONE(at::pow(2, d.n.abs())), ONE(at::pow(2.5, d.n))}},
      {"div",
       {ONE(d.x.div(d.y)), ONE(d.x.div(d.y, "floor")),
        ONE(d.x.div(d.y, "trunc")), ONE(d.x.div(0.3)),
        ONE(d.x.div(0.3, "floor")), ONE(d.n.div(2)), ONE(d.n.div(2, "floor")),
        ONE(d.n.div(2, "trunc"))}},
      {"remainder",
       {ONE(d.n.remainder(3)), ONE(d.n.remainder(4)), ONE(d.n.remainder(2.5)),
        ONE(d.n.fmod(3))}},
      {"clamp",
       {ONE(d.x.clamp(-0.5, std::nullopt)), ONE(d.x.clamp(std::nullopt, 0.5)),
        ONE(d.x.clamp(-0.5, 0.5)), ONE(d.x.clamp(0.5, std::nullopt)),
        ONE(d.n.clamp(-1, 2)), ONE(d.n.clamp(-1, 2.5))}},
      {"clamp.Tensor",
       {ONE(at::clamp(d.x, d.y, {})), ONE(at::clamp(d.x, {}, d.y)),
        ONE(at::clamp(d.x, d.y, d.row)), ONE(at::clamp(d.x, d.row, d.y)),
        ONE(at::clamp(d.x, d.row, {})), ONE(at::clamp(d.x, {}, d.row))}},
      {"activations",
       {ONE(at::gelu(d.x)), ONE(at::gelu(d.x, "tanh")),
        ONE(at::leaky_relu(d.x, 0.1)), ONE(at::leaky_relu(d.x, 0.2)),
        ONE(at::elu(d.x, 1.0)), ONE(at::elu(d.x, 2.0, 1.5)),
        ONE(at::hardtanh(d.x, -0.5, 0.5)), ONE(at::hardtanh(d.x, -0.1, 0.2)),
        ONE(at::softplus(d.x, 1, 20)), ONE(at::softplus(d.x, 2, 0.5)),
        ONE(at::threshold(d.x, 0, 5)), ONE(at::threshold(d.x, 0, -5)),
        ONE(at::threshold(d.x, 0.5, 0))}},
      {"lerp, addcmul",
       {ONE(at::lerp(d.x, d.y, 0.25)), ONE(at::lerp(d.x, d.y, 0.75)),
        ONE(at::addcmul(d.x, d.y, d.row)), ONE(at::addcmul(d.x, d.y, d.row, 3)),
        ONE(at::addcmul(d.x, d.row, d.y, 2)),
        ONE(at::addcdiv(d.x, d.y, d.row, 2))}},
      {"nan_to_num",
       {ONE(d.x.sub(1).log().nan_to_num()),
        ONE(d.x.sub(1).log().nan_to_num(2.0)),
        ONE(d.x.sub(1).log().nan_to_num({}, 2.0)),
        ONE(d.x.sub(1).log().nan_to_num({}, {}, 2.0))}},
      {"masked_fill, where",
       {ONE(d.x.masked_fill(d.y > 0.6, 0)), ONE(d.x.masked_fill(d.y > 0.6, 2)),
        ONE(at::where(d.y > 0.6, d.x, 3)), ONE(at::where(d.y > 0.6, d.x, 4)),
        ONE(at::where(d.y > 0.6, 3, d.x))}},
      {"rsub",
       {ONE(at::rsub(d.x, 1)), ONE(at::rsub(d.x, 1, 2)),
        ONE(at::rsub(d.x, d.y, 2)), ONE(at::rsub(d.n, 1.5))}},
      {"comparison",
       {ONE(d.x.gt(0)), ONE(d.x.gt(0.5)), ONE(d.n.eq(0)), ONE(d.n.eq(1))}},
      {"foreach",
       {MANY(at::_foreach_add({d.x, d.row}, 2)),
        MANY(at::_foreach_add({d.x, d.row}, 3)),
        MANY(at::_foreach_add({d.row, d.x}, 3)),
        MANY(at::_foreach_add({d.x}, 3)),
        MANY(at::_foreach_add({d.x, d.y}, {d.y, d.x}, 3)),
        MANY(at::_foreach_add({d.x, d.y}, {d.y, d.x}, 4)),
        MANY(at::_foreach_mul({d.x, d.row}, Scalars{2.0, 3.0})),
        MANY(at::_foreach_mul({d.x, d.row}, Scalars{3.0, 2.0})),
        MANY(at::_foreach_norm({d.x, d.row}, 1)),
        MANY(at::_foreach_norm({d.x, d.row}, 2))}},
  };
}

TEST(DecisionCache, KnowsNumbersApart) {
  expect_no_wrong_answer(number_groups());
}

}  // namespace
}  // namespace tessera
