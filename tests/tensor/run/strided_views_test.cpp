// What names memory: storage offsets of views, as_strided, is_set_to. A sharded
// tensor says what a plain one would, and shows what it would.
#include <harness/sharded_test.h>

#include <functional>

namespace tessera {
namespace {

using testing::close;
using testing::counting;
using testing::distinct;
using testing::f32;
using testing::mesh_of;
using testing::same;

struct NamedView {
  const char* name;
  std::function<at::Tensor(const at::Tensor&)> of;
};

// Views of [4, 6, 5].
std::vector<NamedView> views() {
  return {
      {"select", [](auto& x) { return x.select(1, 4); }},
      {"select from the end", [](auto& x) { return x.select(2, -2); }},
      {"select of a select",
       [](auto& x) { return x.select(0, 3).select(1, 2); }},
      {"narrow", [](auto& x) { return x.narrow(0, 1, 3); }},
      {"narrow of every dim",
       [](auto& x) {
         return x.narrow(0, 1, 2).narrow(1, 2, 3).narrow(2, 3, 2);
       }},
      {"slice with a step", [](auto& x) { return x.slice(1, 1, 6, 2); }},
      {"an empty slice", [](auto& x) { return x.slice(0, 3, 2); }},
      {"an empty slice at the end", [](auto& x) { return x.slice(1, 9, 12); }},
      {"split", [](auto& x) { return x.split(2, 1)[2]; }},
      {"split with sizes",
       [](auto& x) {
         return x.split_with_sizes({1, 3, 2}, 1)[1];
       }},
      {"chunk", [](auto& x) { return x.chunk(3, 2)[2]; }},
      {"unbind", [](auto& x) { return x.unbind(0)[2]; }},
      {"unbind of an uncut dim", [](auto& x) { return x.unbind(2)[3]; }},
      {"diagonal", [](auto& x) { return x.diagonal(2, 0, 1); }},
      {"diagonal below", [](auto& x) { return x.diagonal(-1, 1, 2); }},
      {"diagonal without elements",
       [](auto& x) { return x.diagonal(9, 0, 1); }},
      {"transpose of a slice",
       [](auto& x) { return x.slice(2, 1, 4).transpose(0, 2); }},
      {"slice of a transpose",
       [](auto& x) { return x.transpose(0, 2).slice(0, 1, 4); }},
      {"view of rows",
       [](auto& x) {
         return x.narrow(0, 2, 2).view({2, 30}).select(1, 7);
       }},
      {"expand of a select",
       [](auto& x) {
         return x.select(0, 1).unsqueeze(0).expand({3, 6, 5});
       }},
      {"unfold", [](auto& x) { return x.select(1, 1).unfold(1, 3, 2); }},
      {"detach", [](auto& x) { return x.select(1, 3).detach(); }},
      {"alias", [](auto& x) { return x.select(2, 3).alias(); }},
      {"bits", [](auto& x) { return x.narrow(1, 2, 4).view(at::kInt); }},
      {"numbers of other widths",
       [](auto& x) { return x.narrow(1, 2, 4).select(0, 1).view(at::kShort); }},
      {"the tensor", [](auto& x) { return x; }},
      {"a result", [](auto& x) { return x.select(1, 3) * 2; }},
  };
}

void expect_same_memory(const at::Tensor& got, const at::Tensor& want) {
  EXPECT_EQ(got.sizes(), want.sizes());
  EXPECT_EQ(got.strides(), want.strides());
  EXPECT_EQ(got.storage_offset(), want.storage_offset());
}

void expect_offsets(
    const DeviceMesh& mesh, const std::vector<std::string>& layouts) {
  const auto p = distinct({4, 6, 5}, f32());
  for (const std::string& layout : layouts) {
    const auto x = distribute_tensor(p, mesh, parse_placements(layout));
    for (const NamedView& view : views()) {
      SCOPED_TRACE(std::string(view.name) + " of " + layout);
      // The second and third time it is a call that was met before.
      for (int time = 0; time < 3; ++time) {
        expect_same_memory(view.of(x), view.of(p));
      }
      const c10::InferenceMode inference;
      expect_same_memory(view.of(x), view.of(p));
    }
  }
}

TEST(StorageOffset, OfAViewIsThatOfThePlainView) {
  run_ranks(3, [&] {
    expect_offsets(
        mesh_of({3}),
        {"R", "S(0)", "S(1)", "S(2)", "SS(1,2)", "P(sum)", "RS(1,[1,0,5])"});
  });
}

TEST(StorageOffset, OfAViewOnTwoMeshDims) {
  run_ranks(4, [&] {
    expect_offsets(
        mesh_of({2, 2}), {"S(0) S(1)", "S(0) S(0)", "R S(2)", "P(sum) S(1)"});
  });
}

TEST(StorageOffset, IsKnownOutsideTheMesh) {
  run_ranks(3, [&] { expect_offsets(mesh_of({2}), {"R", "S(0)", "S(1)"}); });
}

TEST(StorageOffset, CountsPartsOfComplexNumbers) {
  run_ranks(2, [&] {
    const auto options = f32().dtype(at::kComplexFloat);
    const auto p = distinct({4, 6}, options);
    for (const char* layout : {"R", "S(0)", "S(1)"}) {
      SCOPED_TRACE(layout);
      const auto x =
          distribute_tensor(p, mesh_of({2}), parse_placements(layout));
      for (int time = 0; time < 3; ++time) {
        // Views that begin at different places are one call to the cache.
        for (const int64_t begin : {0, 2, 3}) {
          const auto real = [&](const at::Tensor& t) {
            return at::view_as_real(t.narrow(1, begin, 3));
          };
          expect_same_memory(real(x), real(p));
          const auto complex = [&](const at::Tensor& t) {
            return at::view_as_complex(real(t).narrow(0, 1, 2));
          };
          expect_same_memory(complex(x), complex(p));
        }
        expect_same_memory(at::imag(x.select(0, 2)), at::imag(p.select(0, 2)));
      }
    }
  });
}

TEST(StorageOffset, GoesWithTheData) {
  run_ranks(2, [&] {
    auto x = distribute_tensor(counting({4, 6}), mesh_of({2}), {Shard(0)});
    auto y = zeros({4}, mesh_of({2}), {Shard(0)}, testing::f64());
    y.set_data(x.select(1, 3));
    EXPECT_EQ(y.storage_offset(), 3);
    EXPECT_EQ(y.detach().storage_offset(), 3);
    EXPECT_EQ(y.slice(0, 1).storage_offset(), 9);
    EXPECT_TRUE(same(y, counting({4, 6}).select(1, 3)));
  });
}

// as_strided of views of [4, 6], within them and around them.
std::vector<NamedView> windows() {
  return {
      {"of a row",
       [](auto& x) {
         return x.select(0, 1).as_strided({2, 3}, {6, 2});
       }},
      {"of a column",
       [](auto& x) { return x.select(1, 2).as_strided({3}, {6}); }},
      {"around a column",
       [](auto& x) {
         return x.select(1, 2).as_strided({3, 3}, {6, 1});
       }},
      {"before a column",
       [](auto& x) {
         return x.select(1, 2).as_strided({4, 2}, {6, 1}, 1);
       }},
      {"of a block",
       [](auto& x) {
         return x.narrow(0, 1, 2).narrow(1, 2, 3).as_strided({2, 2}, {6, 2});
       }},
      {"of a transpose",
       [](auto& x) {
         return x.t().as_strided({6, 4}, {1, 6});
       }},
      {"of another order",
       [](auto& x) {
         return x.t().slice(0, 1, 5).as_strided({4, 4}, {6, 1}, 2);
       }},
      {"of a view of a view that is a copy",
       [](auto& x) {
         return x.view({3, 8}).select(0, 1).slice(0, 1, 7).as_strided(
             {2, 4}, {3, 1}, 5);
       }},
      {"of an as_strided",
       [](auto& x) {
         return x.as_strided({3, 4}, {6, 1}, 2)
             .select(0, 1)
             .as_strided({2, 2}, {6, 2});
       }},
      {"that overlaps",
       [](auto& x) {
         return x.narrow(1, 1, 4).as_strided({5, 4}, {2, 1});
       }},
      {"of an expanded row",
       [](auto& x) {
         return x.select(0, 2).expand({3, 6}).as_strided({3, 2}, {0, 4});
       }},
      {"of expanded elements, as they are",
       [](auto& x) {
         const auto y = x.select(0, 2).expand({3, 6});
         return y.as_strided(y.sizes(), y.strides());
       }},
      {"without dims",
       [](auto& x) { return x.select(0, 3).as_strided({}, {}); }},
      {"without elements",
       [](auto& x) {
         return x.select(0, 3).as_strided({0, 4}, {4, 1});
       }},
      {"that is the view",
       [](auto& x) {
         const auto y = x.narrow(1, 2, 3);
         return y.as_strided(y.sizes(), y.strides());
       }},
      {"copied",
       [](auto& x) {
         return at::as_strided_copy(x.narrow(1, 2, 3), {3, 2}, {6, 1}, 7);
       }},
      {"copied as it is",
       [](auto& x) {
         const auto y = x.narrow(1, 2, 3);
         return at::as_strided_copy(y, y.sizes(), y.strides());
       }},
  };
}

void expect_windows(
    const DeviceMesh& mesh, const std::vector<std::string>& layouts) {
  for (const std::string& layout : layouts) {
    for (const NamedView& window : windows()) {
      SCOPED_TRACE(std::string(window.name) + " of " + layout);
      auto p = distinct({4, 6}).requires_grad_();
      auto x =
          distribute_tensor(distinct({4, 6}), mesh, parse_placements(layout))
              .requires_grad_();
      for (int time = 0; time < 2; ++time) {
        const auto want = window.of(p);
        const auto got = window.of(x);
        ASSERT_TRUE(same(got, want));
        expect_same_memory(got, want);
        const auto weights = distinct(want.sizes()) + 1;
        (want * weights).sum().backward();
        (full_tensor(got) * weights).sum().backward();
        EXPECT_TRUE(close(x.grad(), p.grad()));
        EXPECT_EQ(to_string(placements(x.grad())), layout);
      }
    }
  }
}

TEST(AsStrided, OfAViewIsThatOfThePlainView) {
  for (const int n : {1, 2, 3}) {
    run_ranks(n, [&] {
      expect_windows(mesh_of({n}), {"R", "S(0)", "S(1)", "SS(1,2)", "P(sum)"});
    });
  }
}

TEST(AsStrided, OfAViewOnTwoMeshDims) {
  run_ranks(4, [&] {
    expect_windows(
        mesh_of({2, 2}), {"S(0) S(1)", "S(0) S(0)", "R S(1)", "P(sum) S(0)"});
  });
}

// Writes to a window are seen by the tensor and all its views, and the other
// way round.
TEST(AsStrided, OfAViewSharesItsMemory) {
  run_ranks(3, [&] {
    for (const char* layout : {"R", "S(0)", "S(1)", "SS(1,2)", "P(sum)"}) {
      SCOPED_TRACE(layout);
      auto p = distinct({4, 6});
      auto x = distribute_tensor(p, mesh_of({3}), parse_placements(layout));
      const auto window = [](const at::Tensor& t) {
        return t.narrow(1, 2, 3).select(0, 1).as_strided({3, 3}, {6, 2}, 4);
      };
      auto w = window(p), mine = window(x);
      auto column = p.select(1, 4), own = x.select(1, 4);
      w.mul_(3), mine.mul_(3);
      EXPECT_TRUE(close(x, p));
      EXPECT_TRUE(close(own, column));
      column.add_(1), own.add_(1);
      EXPECT_TRUE(close(mine, w));
      p.sub_(0.5), x.sub_(0.5);
      EXPECT_TRUE(close(mine, w));
      EXPECT_TRUE(close(window(x), w));
      EXPECT_EQ(to_string(placements(x)), layout);
    }
  });
}

TEST(AsStrided, WritesThroughAViewHaveThePlainGradients) {
  run_ranks(2, [&] {
    for (const char* layout : {"R", "S(0)", "S(1)", "P(sum)"}) {
      SCOPED_TRACE(layout);
      const auto run = [](const at::Tensor& leaf) {
        auto y = leaf * 1;
        y.narrow(1, 2, 3).as_strided({3, 2}, {6, 1}, 8).mul_(4);
        const auto self = y.select(0, 1);
        self.as_strided(self.sizes(), self.strides()).mul_(leaf.select(0, 3));
        return y * y;
      };
      auto p = distinct({4, 6}).requires_grad_();
      auto x = distribute_tensor(
                   distinct({4, 6}), mesh_of({2}), parse_placements(layout))
                   .requires_grad_();
      const auto want = run(p), got = run(x);
      want.sum().backward(), got.sum().backward();
      EXPECT_TRUE(close(got, want));
      EXPECT_TRUE(close(x.grad(), p.grad()));
    }
  });
}

TEST(AsStrided, ThatIsTheTensorMovesNothing) {
  run_ranks(3, [&] {
    for (const char* layout : {"S(0)", "S(1)", "SS(1,2)", "P(sum)", "R"}) {
      SCOPED_TRACE(layout);
      auto x = distribute_tensor(
                   distinct({4, 6}), mesh_of({3}), parse_placements(layout))
                   .requires_grad_();
      const StrictMode strict({.communication = true, .fallbacks = true});
      const CommLog log;
      const auto same_window = [](const at::Tensor& t) {
        return t.as_strided(t.sizes(), t.strides(), t.storage_offset());
      };
      const auto y = same_window(x);
      EXPECT_TRUE(y.is_set_to(x));
      EXPECT_TRUE(y.is_view());
      EXPECT_EQ(spec(y).placements(), spec(x).placements());
      EXPECT_TRUE(same_window(x.t()).is_set_to(x.t()));
      y.backward(at::ones_like(y));
      EXPECT_EQ(log.count(), 0) << log;
      EXPECT_EQ(spec(x.grad()).placements(), spec(x).placements());
      const at::NoGradGuard no_grad;
      const auto version = x._version();
      same_window(x).mul_(2);
      EXPECT_EQ(x._version(), version + 1);
      EXPECT_TRUE(same_window(x).is_set_to(x));
      EXPECT_EQ(log.count(), 0) << log;
    }
  });
  run_ranks(2, [&] {
    auto x = distribute_tensor(distinct({4, 6}), mesh_of({2}), {Shard(0)});
    x.as_strided({4, 6}, {6, 1}).mul_(2);
    EXPECT_TRUE(close(x, distinct({4, 6}) * 2));
  });
}

TEST(AsStrided, ShowsBitsConjugatesAndPartsOfNumbers) {
  run_ranks(2, [&] {
    const auto p = distinct({4, 6}, f32().dtype(at::kComplexFloat)) *
                   c10::complex<float>(1, 2);
    for (const char* layout : {"R", "S(0)", "S(1)"}) {
      SCOPED_TRACE(layout);
      const auto x =
          distribute_tensor(p, mesh_of({2}), parse_placements(layout));
      const auto all = [](const at::Tensor& t) {
        return std::vector<at::Tensor>{
            at::view_as_real(t).select(2, 1).as_strided({2, 4}, {12, 2}, 3),
            at::imag(t).narrow(1, 1, 2).as_strided({3}, {4}),
            t.conj().narrow(1, 0, 2).as_strided({2, 2}, {6, 1}),
            t.conj().select(1, 2).as_strided({2, 2}, {6, 1}),
            at::imag(t.conj()).narrow(1, 0, 2).as_strided({2, 2}, {12, 2}),
            at::view_as_real(t).view(at::kInt).select(0, 2).as_strided(
                {5}, {2}, 0)};
      };
      const auto want = all(p), got = all(x);
      for (size_t i = 0; i < want.size(); ++i) {
        EXPECT_TRUE(same(got[i].resolve_conj(), want[i].resolve_conj())) << i;
        EXPECT_EQ(got[i].storage_offset(), want[i].storage_offset()) << i;
      }
    }
    // A copy of a conjugate holds its values, not those of the memory.
    const auto x = distribute_tensor(p, mesh_of({2}), {Shard(1)});
    EXPECT_ERROR(
        "resolve_conj()", x.conj().unfold(1, 3, 1).as_strided({2, 2}, {6, 1}));
  });
}

TEST(AsStrided, RefusesWhatIsOutOfBoundsOnEveryRankBeforeAnythingMoves) {
  run_ranks(3, [&] {
    // Rank 2 is outside the mesh.
    const auto x =
        distribute_tensor(counting({4, 6}), mesh_of({2}), {Shard(0)});
    const CommLog log;
    EXPECT_ERROR(
        c10::str(
            "aten::as_strided(f64[4] S(0), [4], [7], None) on mesh(2), rank ",
            rank(),
            ": the window is out of bounds; it ends at byte 216, and the "
            "memory of [4, 6] with strides [6, 1] at byte 192; ask for a part "
            "of "
            "that"),
        x.select(1, 5).as_strided({4}, {7}));
    EXPECT_ERROR("out of bounds", x.as_strided({25}, {1}));
    EXPECT_ERROR("mismatch in length", x.as_strided({4}, {7, 1}));
    EXPECT_ERROR("Negative strides", x.as_strided({4}, {-1}));
    EXPECT_EQ(log.count(), 0);
    const auto r =
        distribute_tensor(counting({4, 6}), mesh_of({2}), {Replicate()});
    EXPECT_ERROR("out of bounds", r.select(1, 5).as_strided({4}, {7}));
  });
}

TEST(AsStrided, IsForetoldAndForbidden) {
  run_ranks(2, [&] {
    const auto x =
        distribute_tensor(counting({4, 6}, f32()), mesh_of({2}), {Shard(0)});
    const auto column = x.select(1, 2);
    using Sizes = std::vector<int64_t>;
    const std::string text =
        explain("as_strided", column, Sizes{2}, Sizes{1}, c10::nullopt);
    EXPECT_NE(text.find("all_gather 0: S(0) -> R, 48 bytes"), std::string::npos)
        << text;
    EXPECT_NE(
        explain("as_strided", column, Sizes{4}, Sizes{6}, c10::nullopt)
            .find("total: 0 bytes"),
        std::string::npos);
    const CommLog log;
    EXPECT_TRUE(same(column.as_strided({2}, {1}), counting({2}, f32()) + 2));
    EXPECT_EQ(log.bytes(), 48);
    const StrictMode strict;
    EXPECT_ERROR("StrictMode forbids", column.as_strided({2}, {1}));
  });
}

TEST(AsStrided, RanksOutsideTheMeshKnowShapesAndPlacements) {
  std::vector<std::vector<std::string>> found(3);
  run_ranks(3, [&] {
    const auto p = counting({4, 6});
    for (const char* layout : {"R", "S(0)", "S(1)"}) {
      const auto x =
          distribute_tensor(p, mesh_of({2}), parse_placements(layout));
      for (const NamedView& window : windows()) {
        SCOPED_TRACE(std::string(window.name) + " of " + layout);
        const auto got = window.of(x);
        expect_same_memory(got, window.of(p));
        found[static_cast<size_t>(rank())].push_back(
            to_string(placements(got)));
      }
    }
  });
  EXPECT_EQ(found[2], found[0]);
  EXPECT_EQ(found[2], found[1]);
}

TEST(IsSetTo, TellsWhetherTwoTensorsAreTheSameMemory) {
  run_ranks(4, [&] {
    // Rank 2 has no row, and rank 3 is outside the mesh.
    const auto mesh = mesh_of({3});
    for (const char* layout : {"R", "S(0)", "S(1)", "SS(1,2)", "P(sum)"}) {
      SCOPED_TRACE(layout);
      const auto answers = [](const at::Tensor& x) {
        const auto other = x.clone();
        const auto pair = [](const at::Tensor& a, const at::Tensor& b) {
          return std::vector<bool>{a.is_set_to(b), b.is_set_to(a)};
        };
        return std::vector<std::vector<bool>>{
            pair(x, x), pair(x, x.detach()), pair(x, x.alias()),
            pair(x, x.view_as(x)), pair(x, x.t().t()),
            pair(x.select(0, 1), x.select(0, 1)),
            pair(x.select(0, 1), x.view({-1}).slice(0, 6, 12)),
            pair(x.narrow(1, 2, 3), x.slice(1, 2, 5)),
            pair(x.view({3, 4, 2}), x.view({3, 4, 2})),
            // others
            pair(x, x.t()), pair(x, other),
            pair(x.select(0, 1), x.select(0, 2)),
            pair(x.select(0, 1), other.select(0, 1)),
            pair(x.narrow(1, 2, 3), x.narrow(1, 1, 3)),
            pair(x, x.narrow(1, 0, 5)),
            pair(x.slice(0, 4, 4), x.slice(0, 3, 3)),
            pair(x.view({3, 4, 2}), x.view({4, 3, 2}))};
      };
      const auto x =
          distribute_tensor(counting({4, 6}), mesh, parse_placements(layout));
      const CommLog log;
      EXPECT_TRUE(x.is_set_to(x));
      EXPECT_EQ(log.count(), 0);
      EXPECT_EQ(answers(x), answers(counting({4, 6})));
      EXPECT_FALSE(x.is_set_to(counting({4, 6})));
      EXPECT_FALSE(counting({4, 6}).is_set_to(x));
    }
  });
}

TEST(IsSetTo, KnowsShardsThatFromLocalWasGivenTwice) {
  run_ranks(2, [&] {
    const auto mesh = mesh_of({2});
    const auto local = counting({2, 6});
    const auto x = from_local(local, mesh, {Shard(0)});
    EXPECT_TRUE(x.is_set_to(from_local(local, mesh, {Shard(0)})));
    EXPECT_FALSE(x.is_set_to(from_local(local.clone(), mesh, {Shard(0)})));
    EXPECT_FALSE(from_local(local, mesh, {Replicate()})
                     .is_set_to(from_local(local, mesh, {Partial()})));
  });
}

}  // namespace
}  // namespace tessera
