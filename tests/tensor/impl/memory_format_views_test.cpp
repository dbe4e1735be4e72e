// Views of tensors of any memory format are those of plain tensors.
#include "memory_format.h"

namespace tessera {
namespace {

using testing::distinct;
using testing::error_of;
using testing::kChannelsLast;
using testing::laid_out;
using testing::mesh_of;
using testing::on_line;
using testing::same;

struct FormatView {
  const char* name;
  std::function<at::Tensor(const at::Tensor&)> run;
};

const std::vector<FormatView>& format_views() {
  static const std::vector<FormatView> all = {
      {"permute to NHWC",
       [](const at::Tensor& t) {
         return t.permute({0, 2, 3, 1});
       }},
      {"rows of NHWC",
       [](const at::Tensor& t) {
         return t.permute({0, 2, 3, 1}).view({t.size(0), -1});
       }},
      {"pixels of NHWC",
       [](const at::Tensor& t) {
         return t.permute({0, 2, 3, 1}).view({-1, t.size(1)});
       }},
      {"flat NHWC",
       [](const at::Tensor& t) {
         return t.permute({0, 2, 3, 1}).view({-1});
       }},
      {"flat", [](const at::Tensor& t) { return t.view({-1}); }},
      {"rows",
       [](const at::Tensor& t) {
         return t.view({t.size(0), -1});
       }},
      {"pixels",
       [](const at::Tensor& t) {
         return t.view({t.size(0), t.size(1), -1});
       }},
      {"flatten", [](const at::Tensor& t) { return t.flatten(1); }},
      {"reshape",
       [](const at::Tensor& t) {
         return t.reshape({t.size(0) * t.size(1), -1});
       }},
      {"unflatten",
       [](const at::Tensor& t) {
         return t.unflatten(3, {2, -1});
       }},
      {"transpose", [](const at::Tensor& t) { return t.transpose(1, 3); }},
      {"select", [](const at::Tensor& t) { return t.select(2, 1); }},
      {"slice", [](const at::Tensor& t) { return t.slice(1, 1, 3); }},
      {"clone of a slice",
       [](const at::Tensor& t) { return t.slice(1, 1, 3).clone(); }},
      {"contiguous",
       [](const at::Tensor& t) { return t.contiguous().view({-1}); }},
  };
  return all;
}

TEST(MemoryFormat, ViewsArePermittedAsOfPlainTensors) {
  run_ranks(2, [] {
    const DeviceMesh mesh = mesh_of({2});
    for (const at::Tensor& plain :
         {distinct({4, 6, 2, 4}),
          distinct({4, 6, 2, 4}).contiguous(kChannelsLast),
          laid_out(distinct({4, 6, 2, 4}), {3, 1, 0, 2})}) {
      for (const Placements& placements : on_line(plain, 2).placements) {
        const at::Tensor t = distribute_tensor(plain, mesh, placements);
        for (const FormatView& view : format_views()) {
          SCOPED_TRACE(
              ::testing::Message() << view.name << " of " << plain.strides()
                                   << ' ' << to_string(placements));
          const std::string refused = error_of([&] { view.run(plain); });
          if (!refused.empty()) {
            EXPECT_NE(error_of([&] { view.run(t); }), "");
            continue;
          }
          const at::Tensor want = view.run(plain);
          for (int i = 0; i < 2; ++i) {  // decided, then known
            const at::Tensor got = view.run(t);
            EXPECT_TRUE(same(got, want));
            EXPECT_EQ(got.strides(), want.strides());
          }
        }
      }
    }
  });
}

// No copy is made that a plain view would not need.
TEST(MemoryFormat, ViewsOfChannelsLastShardsShowTheirMemory) {
  run_ranks(2, [] {
    const at::Tensor plain = distinct({4, 6, 2, 4}).contiguous(kChannelsLast);
    const at::Tensor t = distribute_tensor(plain, mesh_of({2}), {Shard(0)});
    const at::Tensor rows = t.permute({0, 2, 3, 1}).view({4, 48});
    EXPECT_TRUE(to_local(rows).is_alias_of(to_local(t)));
    rows.mul_(2);
    EXPECT_TRUE(same(t, plain * 2));
  });
}

}  // namespace
}  // namespace tessera
