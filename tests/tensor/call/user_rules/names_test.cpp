// Which operators a user's rule serves: variants, overloads, and the name it is
// listed and removed by.
#include <tensor/call/user_rules/own_operators.h>

namespace tessera {
namespace {

using testing::call;
using testing::change_rules;
using testing::close;
using testing::cut;
using testing::distinct;
using testing::expect_local;
using testing::f64;
using testing::full_name;
using testing::mesh_of;
using testing::remove_rule;
using testing::scale_of;

TEST(UserRules, AreFollowedByInPlaceOutAndForeachVariants) {
  run_ranks(2, [&] {
    const auto mesh = mesh_of({2});
    const auto value = distinct({5, 4});
    const auto other = distinct({3}).add(1);
    const auto in_place = [](at::Tensor& x) {
      call<at::Tensor&(at::Tensor&, double)>("scale_", x, 3.0);
    };
    // Known as a fallback before, which keeps the tensor's own placements.
    auto early = cut(value, mesh, "S(0)");
    in_place(early);
    EXPECT_TRUE(close(early, value * 3));
    change_rules([] { rules().pointwise({full_name("scale")}); });
    auto x = cut(value, mesh, "S(0)");
    const auto memory = to_local(x).const_data_ptr();
    expect_local(
        [&] {
          in_place(x);
          return x;
        },
        value * 3, "S(0)");
    EXPECT_EQ(to_local(x).const_data_ptr(), memory);
    auto out = zeros({5, 4}, mesh, {Shard(0)}, f64());
    expect_local(
        [&] {
          call<at::Tensor&(const at::Tensor&, double, at::Tensor&)>(
              "scale.out", x, 2.0, out);
          return out;
        },
        value * 6, "S(0)");
    const std::vector<at::Tensor> list{
        cut(value, mesh, "S(1)"), cut(other, mesh, "S(0)")};
    for (const size_t i : {0U, 1U}) {
      expect_local(
          [&] {
            return call<std::vector<at::Tensor>(at::TensorList, double)>(
                "_foreach_scale", list, 4.0)[i];
          },
          (i == 0 ? value : other) * 4, i == 0 ? "S(1)" : "S(0)");
    }
    expect_local(
        [&] {
          call<void(at::TensorList, double)>("_foreach_scale_", list, 5.0);
          return list[1];
        },
        other * 5, "S(0)");
    remove_rule("scale");
    // A list of another name has a rule of its own.
    change_rules([] { rules().pointwise({full_name("scales")}); });
    const std::vector<at::Tensor> more{
        cut(value, mesh, "S(1)"), cut(other, mesh, "S(0)")};
    expect_local(
        [&] {
          return call<std::vector<at::Tensor>(at::TensorList, double)>(
              "scales", more, 4.0)[0];
        },
        value * 4, "S(1)");
    remove_rule("scales");
  });
}

TEST(UserRules, ServeAllOverloadsByOneStar) {
  run_ranks(2, [&] {
    const auto mesh = mesh_of({2});
    change_rules([] { rules().pointwise({full_name("scale.*")}); });
    const auto x = cut(distinct({5, 4}), mesh, "S(1)");
    expect_local([&] { return scale_of(x, 2); }, distinct({5, 4}) * 2, "S(1)");
    change_rules([] {
      rules().rows(full_name("scale"), {{Shard(0), Shard(0)}});
    });
    EXPECT_TRUE(close(scale_of(x, 2), distinct({5, 4}) * 2));
    EXPECT_NE(to_string(placements(scale_of(x, 2))), "S(1)") << "its own rule";
    remove_rule("scale");
    remove_rule("scale.*");
  });
}

TEST(UserRules, AreListedAndRemovedByName) {
  const auto listed = [](const std::string& name) {
    for (const RuleInfo& info : rules().list()) {
      if (info.name == full_name(name)) {
        return info.form + " " + info.text;
      }
    }
    return std::string();
  };
  EXPECT_EQ(listed("product"), "");
  rules().factors(full_name("product"), "mk,kn->mn");
  EXPECT_EQ(listed("product"), "factors mk,kn->mn");
  rules().remove(full_name("product"));
  rules().remove(full_name("product"));
  EXPECT_EQ(listed("product"), "");
}

}  // namespace
}  // namespace tessera
