// Results of operators have the memory format of plain ones.
#include "memory_format.h"

namespace tessera {
namespace {

using testing::close;
using testing::distinct;
using testing::f32;
using testing::kChannelsLast;
using testing::mesh_of;
using testing::ones;
using testing::shard_agrees;

struct Step {
  const char* name;
  std::function<at::Tensor(const at::Tensor& x)> run;
};

// A tensor on the mesh of `like`, replicated; plain beside plain ones.
at::Tensor beside(const at::Tensor& like, const at::Tensor& value) {
  return is_dtensor(like)
             ? distribute_tensor(
                   value, device_mesh(like),
                   Placements(placements(like).size(), Replicate()))
             : value;
}

// Operators that LibTorch runs on images as they lie.
const std::vector<Step>& steps() {
  static const std::vector<Step> all = {
      {"conv2d",
       [](const at::Tensor& x) {
         return at::conv2d(x, beside(x, distinct({4, 4, 3, 3}, f32())));
       }},
      {"conv2d with bias and padding",
       [](const at::Tensor& x) {
         return at::conv2d(
             x, beside(x, distinct({2, 4, 3, 3}, f32())),
             beside(x, distinct({2}, f32())), 1, 1);
       }},
      {"conv2d with a channels_last weight",
       [](const at::Tensor& x) {
         return at::conv2d(
             x,
             beside(
                 x, distinct({4, 4, 3, 3}, f32()).contiguous(kChannelsLast)));
       }},
      {"batch_norm, training",
       [](const at::Tensor& x) {
         return at::batch_norm(x, {}, {}, {}, {}, true, 0.1, 1e-5, false);
       }},
      {"batch_norm, evaluating",
       [](const at::Tensor& x) {
         return at::batch_norm(
             x, {}, {}, beside(x, distinct({4}, f32())),
             beside(x, distinct({4}, f32()).abs() + 1), false, 0.1, 1e-5,
             false);
       }},
      {"group_norm", [](const at::Tensor& x) { return at::group_norm(x, 2); }},
      {"relu", [](const at::Tensor& x) { return x.relu(); }},
      {"max_pool2d", [](const at::Tensor& x) { return at::max_pool2d(x, 2); }},
      {"avg_pool2d", [](const at::Tensor& x) { return at::avg_pool2d(x, 2); }},
      {"adaptive_avg_pool2d",
       [](const at::Tensor& x) {
         return at::adaptive_avg_pool2d(x, {2, 2});
       }},
      {"upsample_nearest2d",
       [](const at::Tensor& x) {
         return at::upsample_nearest2d(x, at::IntArrayRef({8, 12}));
       }},
      {"add", [](const at::Tensor& x) { return x + x * 2; }},
      {"add of formats",
       [](const at::Tensor& x) { return x + x.contiguous(); }},
      {"add of formats, turned",
       [](const at::Tensor& x) { return x.contiguous() + x; }},
      {"add of broadcast channels",
       [](const at::Tensor& x) {
         return beside(x, distinct({4, 1, 1}, f32())) + x;
       }},
      {"add of a broadcast image",
       [](const at::Tensor& x) {
         return beside(x, distinct({1, 4, 5, 6}, f32())) * x;
       }},
      {"where",
       [](const at::Tensor& x) { return at::where(x > 0, x.contiguous(), x); }},
      {"masked_fill",
       [](const at::Tensor& x) { return x.masked_fill(x > 0, 1); }},
      {"clone of a slice",
       [](const at::Tensor& x) { return x.slice(2, 1, 3).clone(); }},
      {"exp of a slice",
       [](const at::Tensor& x) { return x.slice(3, 1, 5, 2).exp(); }},
      {"exp of a permutation",
       [](const at::Tensor& x) {
         return x.permute({3, 1, 0, 2}).exp();
       }},
      {"cat",
       [](const at::Tensor& x) {
         return at::cat({x, x * 2}, 1);
       }},
      {"cat of formats",
       [](const at::Tensor& x) {
         return at::cat({x, x.contiguous()}, 1);
       }},
      {"pad",
       [](const at::Tensor& x) {
         return at::constant_pad_nd(x, {1, 2});
       }},
      {"flip", [](const at::Tensor& x) { return x.flip(1); }},
      {"roll", [](const at::Tensor& x) { return x.roll(1, 1); }},
      {"softmax", [](const at::Tensor& x) { return x.softmax(1); }},
      {"sum", [](const at::Tensor& x) { return x.sum(1, true); }},
      {"to double", [](const at::Tensor& x) { return x.to(at::kDouble); }},
      {"to channels_last",
       [](const at::Tensor& x) { return x.to(kChannelsLast); }},
      {"contiguous", [](const at::Tensor& x) { return x.contiguous(); }},
      {"channels_last",
       [](const at::Tensor& x) { return x.contiguous(kChannelsLast); }},
      {"zeros_like", [](const at::Tensor& x) { return at::zeros_like(x); }},
      {"zeros_like in a format",
       [](const at::Tensor& x) {
         return at::zeros_like(x, {}, kChannelsLast);
       }},
      {"empty_like",
       [](const at::Tensor& x) { return at::empty_like(x).fill_(3); }},
      {"new_empty_strided",
       [](const at::Tensor& x) {
         return x.new_empty_strided(x.sizes(), x.strides()).fill_(3);
       }},
      {"new_zeros", [](const at::Tensor& x) { return x.new_zeros(x.sizes()); }},
      {"dropout",
       [](const at::Tensor& x) { return at::dropout(x, 0.5, false); }},
  };
  return all;
}

void expect_steps(
    const at::Tensor& plain, const DeviceMesh& mesh,
    const Placements& placements) {
  const at::Tensor x = distribute_tensor(plain, mesh, placements);
  ASSERT_TRUE(shard_agrees(x));
  for (const Step& step : steps()) {
    SCOPED_TRACE(
        ::testing::Message() << step.name << " of " << plain.strides() << ' '
                             << to_string(placements));
    const at::Tensor want = step.run(plain);
    for (int i = 0; i < 2; ++i) {  // decided, then known
      const at::Tensor got = step.run(x);
      EXPECT_EQ(got.strides(), want.strides());
      EXPECT_EQ(got.suggest_memory_format(), want.suggest_memory_format());
      EXPECT_TRUE(shard_agrees(got));
      EXPECT_TRUE(close(got, want, 1e-5));
    }
  }
}

TEST(MemoryFormat, OperatorsKeepItAsOfPlainTensors) {
  for (const int64_t batch : {4, 5}) {
    const at::Tensor value = distinct({batch, 4, 5, 6}, f32());
    for (const at::Tensor& plain : {value, value.contiguous(kChannelsLast)}) {
      run_ranks(2, [&] {
        for (const char* layout : {"R", "S(0)", "S(1)", "S(2)", "P(sum)"}) {
          expect_steps(plain, mesh_of({2}), parse_placements(layout));
        }
      });
      run_ranks(4, [&] {
        for (const char* layout : {"S(0) R", "S(0) S(1)", "S(0) S(0)"}) {
          expect_steps(plain, mesh_of({2, 2}), parse_placements(layout));
        }
      });
    }
  }
}

TEST(MemoryFormat, AConvolutionalNetStaysChannelsLast) {
  run_ranks(2, [] {
    const DeviceMesh mesh = mesh_of({2});
    const auto net = [](const at::Tensor& x, const at::Tensor& w) {
      return at::max_pool2d(at::relu(at::conv2d(x, w, {}, 1, 1)), 2);
    };
    const at::Tensor images =
        distinct({5, 3, 8, 8}, f32()).contiguous(kChannelsLast);
    const at::Tensor filters =
        distinct({4, 3, 3, 3}, f32()).contiguous(kChannelsLast);
    const at::Tensor plain_x = images.clone().requires_grad_();
    const at::Tensor plain_w = filters.clone().requires_grad_();
    const at::Tensor want = net(plain_x, plain_w);
    want.sum().backward();
    ASSERT_TRUE(want.is_contiguous(kChannelsLast));
    for (const char* layout : {"S(0)", "R"}) {
      SCOPED_TRACE(layout);
      const at::Tensor x =
          distribute_tensor(images, mesh, parse_placements(layout))
              .requires_grad_();
      const at::Tensor w =
          distribute_tensor(filters, mesh, {Replicate()}).requires_grad_();
      EXPECT_TRUE(to_local(x).is_contiguous(kChannelsLast));
      EXPECT_TRUE(to_local(w).is_contiguous(kChannelsLast));
      const at::Tensor y = net(x, w);
      EXPECT_TRUE(y.is_contiguous(kChannelsLast));
      EXPECT_TRUE(to_local(y).is_contiguous(kChannelsLast));
      EXPECT_TRUE(close(y, want, 1e-5));
      y.sum().backward();
      for (const auto& [got, expected] :
           {std::pair(x, plain_x), std::pair(w, plain_w)}) {
        EXPECT_EQ(got.grad().strides(), expected.grad().strides());
        EXPECT_TRUE(shard_agrees(got.grad()));
        EXPECT_TRUE(close(got.grad(), expected.grad(), 1e-4));
      }
    }
  });
}

}  // namespace
}  // namespace tessera
