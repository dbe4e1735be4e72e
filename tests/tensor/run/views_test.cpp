// Views and writes through them: twenty small programs give the values and
// gradients of plain tensors, on every placement, on ranks and on bare threads.
#include <harness/sharded_test.h>

#include <functional>
#include <thread>

namespace tessera {
namespace {

using testing::close;
using testing::counting;
using testing::distinct;
using testing::f64;
using testing::mesh_of;
using testing::same;

// A program takes a leaf x and a constant c of the same shape ([4, 6]) and
// returns what is summed up.
struct Program {
  const char* name;
  std::function<at::Tensor(at::Tensor x, at::Tensor c)> run;
};

std::vector<Program> programs() {
  return {
      {"mul_ on a row",
       [](auto x, auto c) {
         auto y = x * 1;
         y.select(0, 1).mul_(2);
         return y * c;
       }},
      {"write a column",
       [](auto x, auto c) {
         auto y = x * 1;
         y.select(1, 3).copy_(c.select(1, 0));
         return y * y;
       }},
      {"add_ on a slice",
       [](auto x, auto c) {
         auto y = x * 1;
         y.slice(0, 1, 3).add_(c.slice(0, 0, 2));
         return y * y;
       }},
      {"fill_ on a slice",
       [](auto x, auto) {
         auto y = x * 1;
         y.slice(1, 0, 6, 2).fill_(3);
         return y * y;
       }},
      {"exp_ through t",
       [](auto x, auto c) {
         auto y = x * 0.1;
         y.t().exp_();
         return y * c;
       }},
      {"mul_ through view",
       [](auto x, auto c) {
         auto y = x * 1;
         y.view({2, 12}).mul_(3);
         return y * c;
       }},
      {"write a view of a view",
       [](auto x, auto c) {
         auto y = x * 1;
         y.t().select(0, 2).slice(0, 1, 3).mul_(5);
         return y * c;
       }},
      {"read a view after a write to its base",
       [](auto x, auto c) {
         auto y = x * 1;
         auto v = y.select(0, 1);
         y.mul_(2);
         return v * c.select(0, 0);
       }},
      {"read a view after a write through another",
       [](auto x, auto c) {
         auto y = x * 1;
         auto v = y.select(0, 1);
         auto w = y.view({-1});
         w.mul_(2);
         return v * c.select(0, 0);
       }},
      {"write twice through one view",
       [](auto x, auto c) {
         auto y = x * 1;
         auto v = y.slice(0, 0, 2);
         v.mul_(2);
         v.add_(1);
         return y * c;
       }},
      {"write base, then view, then base",
       [](auto x, auto c) {
         auto y = x * 1;
         auto v = y.select(1, 1);
         y.add_(1);
         v.mul_(3);
         y.mul_(c);
         return y;
       }},
      {"in place with a saved tensor",
       [](auto x, auto c) {
         auto y = x.sin();
         auto z = y * c;
         z.select(0, 0).mul_(2);
         return z + y;
       }},
      {"diagonal",
       [](auto x, auto c) {
         auto y = x * 1;
         y.diagonal().mul_(2);
         return y * c;
       }},
      {"unbind",
       [](auto x, auto c) {
         auto y = x * 1;
         auto rows = y.unbind(0);
         auto row = rows[2].clone();
         return y * c + row;
       }},
      {"split and write one part",
       [](auto x, auto c) {
         auto y = x * 1;
         auto v = y.narrow(1, 2, 3);
         v.sub_(c.narrow(1, 0, 3));
         return y * y;
       }},
      {"masked_fill_ on a view",
       [](auto x, auto c) {
         auto y = x * 1;
         y.select(0, 3).masked_fill_(c.select(0, 3) > 0.5, 0.25);
         return y * c;
       }},
      {"index_put_",
       [](auto x, auto c) {
         auto y = x * 1;
         y.index_put_(
             {c.select(1, 0).argsort(0, false).slice(0, 0, 2)},
             c.slice(0, 0, 2));
         return y * y;
       }},
      {"expand then use",
       [](auto x, auto c) {
         auto v = x.select(0, 0).unsqueeze(0).expand({4, 6});
         return v * c;
       }},
      {"as_strided write",
       [](auto x, auto c) {
         auto y = x * 1;
         y.as_strided({2, 3}, {6, 2}, 7).mul_(4);
         return y * c;
       }},
      {"detach shares memory",
       [](auto x, auto c) {
         auto y = x * 1;
         auto d = y.detach();
         auto z = y + c;
         d.add_(0);
         return z * c;
       }},
      {"squeeze and unsqueeze",
       [](auto x, auto c) {
         auto y = x * 1;
         y.unsqueeze(1).squeeze(1).mul_(c);
         return y;
       }},
      {"permute of a 3-d view",
       [](auto x, auto c) {
         auto y = x * 1;
         y.view({2, 2, 6}).permute({2, 0, 1}).select(0, 1).mul_(7);
         return y * c;
       }},
  };
}

const std::vector<const char*> kLayouts = {
    "R", "S(0)", "S(1)", "P(sum)", "SS(1,2)"};

void check_programs(
    const DeviceMesh& mesh, const std::vector<std::string>& layouts) {
  for (const Program& program : programs()) {
    for (const std::string& layout : layouts) {
      SCOPED_TRACE(std::string(program.name) + " on " + layout);
      auto p = distinct({4, 6}).requires_grad_();
      const auto c = distinct({4, 6}).add(0.3);
      const auto want = program.run(p, c);
      want.sum().backward();
      auto x =
          distribute_tensor(distinct({4, 6}), mesh, parse_placements(layout))
              .requires_grad_();
      const auto got =
          program.run(x, distribute_tensor(c, mesh, parse_placements(layout)));
      got.sum().backward();
      EXPECT_TRUE(close(got, want));
      EXPECT_TRUE(close(x.grad(), p.grad()));
    }
  }
}

TEST(Views, GiveThePlainGradientsOnEveryPlacement) {
  for (int n : {1, 2, 3}) {
    run_ranks(n, [&] {
      check_programs(mesh_of({n}), {kLayouts.begin(), kLayouts.end()});
    });
  }
}

TEST(Views, GiveThePlainGradientsOnTwoDimMeshes) {
  run_ranks(4, [&] {
    check_programs(
        mesh_of({2, 2}), {"S(0) S(1)", "S(0) S(0)", "R S(1)", "P(sum) S(0)"});
  });
}

TEST(Views, WorkOnABareThreadWhoseFirstOpIsAView) {
  for (const Program& program : programs()) {
    SCOPED_TRACE(program.name);
    std::thread([&] {
      const auto mesh = mesh_of({1});
      auto x = distribute_tensor(distinct({4, 6}), mesh, {Shard(0)})
                   .requires_grad_();
      const auto c =
          distribute_tensor(distinct({4, 6}).add(0.3), mesh, {Shard(0)});
      std::thread([&] { program.run(x, c).sum().backward(); }).join();
      auto p = distinct({4, 6}).requires_grad_();
      program.run(p, distinct({4, 6}).add(0.3)).sum().backward();
      EXPECT_TRUE(close(x.grad(), p.grad()));
    }).join();
  }
}

TEST(Views, OfAShardSeeWritesThroughToLocal) {
  run_ranks(2, [&] {
    const auto t =
        distribute_tensor(counting({4, 2}), mesh_of({2}), {Shard(0)});
    const auto row = t.select(0, 3);
    to_local(t).mul_(10);
    EXPECT_TRUE(same(row, counting({4, 2}).mul(10).select(0, 3)));
    row.fill_(-1);
    auto want = counting({4, 2}).mul(10);
    want.select(0, 3).fill_(-1);
    EXPECT_TRUE(same(t, want));
  });
}

TEST(Views, OfReplicatedTensorsShareTheirMemory) {
  run_ranks(2, [&] {
    const auto t =
        distribute_tensor(counting({4, 2}), mesh_of({2}), {Replicate()});
    t.select(0, 1).fill_(7);
    EXPECT_TRUE(same(to_local(t).select(0, 1), at::full({2}, 7.0, f64())));
  });
}

TEST(Views, CannotChangeTheirShapeInPlace) {
  run_ranks(2, [&] {
    const auto t =
        distribute_tensor(counting({4, 2}), mesh_of({2}), {Shard(0)});
    EXPECT_ERROR("view of a sharded tensor", t.select(0, 1).unsqueeze_(0));
  });
}

TEST(SavedTensors, SurviveALaterWriteOrReportIt) {
  run_ranks(2, [&] {
    const auto mesh = mesh_of({2});
    for (const char* layout : {"R", "S(0)", "P(sum)"}) {
      SCOPED_TRACE(layout);
      auto w = distribute_tensor(distinct({4}), mesh, parse_placements(layout))
                   .requires_grad_();
      auto a = w * 1;
      auto y = a * a;  // saves a
      a.mul_(100);
      EXPECT_ERROR("modified by an inplace operation", y.sum().backward());
      auto b = w * 2;
      auto z = b.exp();  // saves its result, not b
      b.add_(100);
      z.sum().backward();
      EXPECT_TRUE(close(w.grad(), distinct({4}).mul(2).exp().mul(2)));
    }
  });
}

TEST(SavedTensors, KeepTheirSpecWhenAnAliasChangesItsOwn) {
  run_ranks(2, [&] {
    const auto mesh = mesh_of({2});
    auto w =
        distribute_tensor(distinct({4, 2}), mesh, {Shard(0)}).requires_grad_();
    auto a = w * 1;
    auto d = a.detach();
    auto y = a * a;
    d.t_();  // a new spec for d alone; the version counts, as for plain tensors
    EXPECT_TRUE(same(d, distinct({4, 2}).t()));
    EXPECT_TRUE(same(a, distinct({4, 2})));
    EXPECT_ERROR("modified by an inplace operation", y.sum().backward());
  });
}

TEST(Views, OfExpandedTensorsThatMustBeCopied) {
  run_ranks(3, [&] {
    const auto mesh = mesh_of({3});
    for (const char* layout : {"R", "S(0)", "SS(0,2)", "P(sum)"}) {
      SCOPED_TRACE(layout);
      auto x = distribute_tensor(counting({4}), mesh, parse_placements(layout));
      auto p = counting({4});
      const auto turned = [](const at::Tensor& t) {
        return t.unsqueeze(1).expand({4, 3}).t().reshape({3, 2, 2}).reshape(
            {12});
      };
      EXPECT_TRUE(same(turned(x), turned(p)));
      const auto seen = x.unsqueeze(1).expand({4, 3}).view({2, 2, 3});
      x.add_(1);
      EXPECT_TRUE(
          same(seen, (p + 1).unsqueeze(1).expand({4, 3}).view({2, 2, 3})));
    }
  });
}

}  // namespace
}  // namespace tessera
