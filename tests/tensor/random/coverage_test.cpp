// Every operator that LibTorch tags as random is drawn by us, decomposes into
// operators that are, or is named here with the reason why not.
#include <set>

#include <ATen/core/dispatch/Dispatcher.h>
#include <ATen/core/enum_tag.h>
#include <tensor/random/random_ops.h>
#include <torch/library.h>

namespace tessera {
namespace {

using testing::device;
using testing::f32;
using testing::fractions;
using testing::mesh_of;
using testing::plain;
using testing::same;

// By name without overload: the tests of invariance call them.
const std::set<std::string> kDrawn = {
    "rand",
    "randn",
    "randint",
    "rand_like",
    "randn_like",
    "randint_like",
    "uniform",
    "uniform_",
    "normal",
    "normal_",
    "normal_functional",
    "random",
    "random_",
    "bernoulli",
    "bernoulli_",
    "exponential",
    "exponential_",
    "geometric",
    "geometric_",
    "log_normal",
    "log_normal_",
    "cauchy",
    "cauchy_",
    "native_dropout",
    "_fused_dropout",
    "rrelu_with_noise",
    "rrelu_with_noise_",
    "rrelu_with_noise_functional",
    "_standard_gamma",
    "_sample_dirichlet",
    "poisson",
    "binomial",
    "multinomial",
    "randperm"};

// ATen decomposes them; what they draw on the way is ours.
const std::set<std::string> kComposite = {
    "dropout",
    "dropout_",
    "alpha_dropout",
    "alpha_dropout_",
    "feature_dropout",
    "feature_dropout_",
    "feature_alpha_dropout",
    "feature_alpha_dropout_",
    "rrelu",
    "rrelu_",
    "lstm",
    "gru",
    "rnn_relu",
    "rnn_tanh",
    "scaled_dot_product_attention",
    "_scaled_dot_product_attention_math"};

// Fused kernels with a generator of their own. Without dropout they draw
// nothing and run; with it they are refused, and attention takes the math form.
const std::set<std::string> kRefusedWithDropout = {
    "_scaled_dot_product_flash_attention",
    "_scaled_dot_product_flash_attention_for_cpu",
    "_scaled_dot_product_efficient_attention",
    "_scaled_dot_product_efficient_attention_backward",
    "_scaled_dot_product_cudnn_attention",
    "_scaled_dot_product_cudnn_attention_backward",
    "_scaled_dot_product_fused_attention_overrideable",
    "_scaled_dot_product_attention_math_for_mps",
    "_flash_attention_forward",
    "_flash_attention_forward_no_dropout_inplace",
    "_efficient_attention_forward",
    "_cudnn_attention_forward",
    "_cudnn_attention_backward",
    "_triton_scaled_dot_attention",
    "_cudnn_rnn",
    "miopen_rnn",
    "_lstm_mps",
    "_fused_sdp_choice",
    "_fill_mem_eff_dropout_mask_",  // of the efficient kernel's tests
    "_cudnn_init_dropout_state"};   // a factory: takes no tensor

// Tagged, and draws nothing.
const std::set<std::string> kDrawsNothing = {
    "_nested_tensor_softmax_with_shape"};

TEST(RandomCoverage, KnowsEveryTaggedOperator) {
  auto& dispatcher = c10::Dispatcher::singleton();
  int64_t count = 0;
  for (const auto& name : dispatcher.getAllOpNames()) {
    const auto op = dispatcher.findSchema(name);
    if (!op || !op->hasTag(at::Tag::nondeterministic_seeded) ||
        name.name.rfind("aten::", 0) != 0) {
      continue;
    }
    const std::string base = name.name.substr(6);
    const bool composite = op->hasKernelForDispatchKey(
        c10::DispatchKey::CompositeImplicitAutograd);
    const int lists = static_cast<int>(
        kDrawn.count(base) + kComposite.count(base) +
        kRefusedWithDropout.count(base) + kDrawsNothing.count(base));
    EXPECT_EQ(lists, 1) << c10::toString(name);
    EXPECT_TRUE(!kComposite.count(base) || composite) << c10::toString(name);
    ++count;
  }
  EXPECT_GT(count, 100);
}

TEST(RandomCoverage, TheTestsOfInvarianceCallWhatIsDrawn) {
  std::string called;
  for (const auto& op : testing::all_random_ops()) {
    called += op.name + ";";
  }
  for (const std::string& name : kDrawn) {
    // Factories have a test of their own; two forms differ by their result.
    const bool elsewhere = name == "rand" || name == "randn" ||
                           name == "randint" || name == "_fused_dropout" ||
                           name == "rrelu_with_noise_" ||
                           name == "rrelu_with_noise_functional";
    EXPECT_TRUE(elsewhere || called.find(name) != std::string::npos) << name;
  }
}

TEST(RandomCoverage, RemainingFormsAreEqualOnAllRanks) {
  const auto draw = [](const DeviceMesh& mesh) {
    manual_seed(3);
    const auto x = distribute_tensor(fractions({6, 4}) - 0.5, mesh, {Shard(0)});
    auto noise = at::zeros_like(x);
    auto in_place = x.clone();
    at::rrelu_with_noise_(in_place, noise, 0.1, 0.3, true);
    auto [a, b] = at::rrelu_with_noise_functional(x, noise, 0.1, 0.3, true);
    auto [c, d] = at::_fused_dropout(x, 0.4);
    auto out = at::empty_like(x);
    at::normal_out(out, x, 2.0, std::optional<at::Generator>());
    auto p = at::empty_like(x);
    at::bernoulli_out(p, x + 0.5, std::optional<at::Generator>());
    return plain(
        at::stack({in_place, noise, a, b, c, d.to(at::kFloat), out, p}));
  };
  const auto alone = draw(mesh_of({1}));
  run_ranks(3, [&] { EXPECT_TRUE(same(draw(mesh_of({3})), alone)); });
}

TEST(RandomCoverage, FusedKernelsWithDropoutAreRefused) {
  run_ranks(3, [] {  // one outside the mesh
    const auto x =
        distribute_tensor(fractions({2, 2, 4, 8}), mesh_of({2}), {Shard(0)});
    const auto attend = [&](double dropout) {
      return testing::device() == at::kCPU
                 ? std::get<0>(at::_scaled_dot_product_flash_attention_for_cpu(
                       x, x, x, dropout))
                 : std::get<0>(at::_scaled_dot_product_efficient_attention(
                       x, x, x, {}, /*compute_log_sumexp=*/false, dropout));
    };
    EXPECT_ERROR("apply at::dropout() to the result", attend(0.5));
    EXPECT_EQ(attend(0).sizes(), x.sizes());
    init().communicator().barrier();  // all have drawn alike
  });
}

at::Tensor noisy_plain(
    const at::Tensor& x, const std::optional<at::Generator>& generator) {
  // One number of ATen's, through our key, and one of the generator's own.
  at::Tensor y = x + at::rand(x.sizes(), x.options());
  return generator ? y.add_(at::empty_like(x).uniform_(0, 1, generator)) : y;
}

TEST(RandomCoverage, OperatorsOfOtherLibrariesDrawTheSameOnAllRanks) {
  static const auto library = [] {
    auto made = std::make_unique<torch::Library>(
        torch::Library::DEF, "tessera_random_test", std::nullopt, __FILE__,
        __LINE__);
    made->def(
        torch::schema(
            "noisy(Tensor x, *, Generator? generator=None) -> Tensor"),
        {at::Tag::nondeterministic_seeded});
    made->impl("noisy", c10::DispatchKey::CPU, noisy_plain);
    return made;
  }();
  if (device() != at::kCPU) {
    GTEST_SKIP() << "the operator has a kernel for the host only";
  }
  const auto draw = [](const DeviceMesh& mesh) {
    manual_seed(3);
    const auto x = distribute_tensor(fractions({6}), mesh, {Shard(0)});
    static const auto op =
        c10::Dispatcher::singleton()
            .findSchemaOrThrow("tessera_random_test::noisy", "")
            .typed<at::Tensor(
                const at::Tensor&, const std::optional<at::Generator>&)>();
    const auto a = plain(op.call(x, std::nullopt));
    EXPECT_EQ(random_state().operations, 1u);
    return at::cat({a, plain(op.call(x, std::nullopt))});
  };
  const auto alone = draw(mesh_of({1}));
  EXPECT_FALSE(at::equal(alone.slice(0, 0, 6), alone.slice(0, 6)));
  run_ranks(3, [&] { EXPECT_TRUE(same(draw(mesh_of({3})), alone)); });
}

}  // namespace
}  // namespace tessera
