// Operators that are defined while the program runs are served too.
#include <harness/sharded_test.h>
#include <torch/library.h>

namespace tessera {
namespace {

using testing::close;
using testing::counting;
using testing::distinct;
using testing::f64;
using testing::mesh_of;
using testing::same;

at::Tensor late_op(const at::Tensor& x) {
  // Reads a pointer, as custom kernels do: it must only ever see plain tensors.
  static_cast<void>(x.const_data_ptr());
  return x * 2 + 1;
}
at::Tensor late_composite(const at::Tensor& x) {
  return x.mm(at::ones({x.size(1), 2}, x.options()));
}

TEST(Operators, DefinedLaterAreServedToo) {
  run_ranks(2, [&] {
    const auto mesh = mesh_of({2});
    const auto t = distribute_tensor(distinct({4, 4}), mesh, {Shard(0)});
    if (rank() == 0) {
      static auto* kept = new torch::Library(
          torch::Library::DEF, "tessera_test", std::nullopt, __FILE__,
          __LINE__);
      kept->def(
          "late(Tensor x) -> Tensor",
          torch::dispatch(
              c10::DispatchKey::CompositeExplicitAutograd, &late_op));
      kept->def("late_cpu(Tensor x) -> Tensor");
      kept->impl("late_cpu", torch::dispatch(c10::DispatchKey::CPU, &late_op));
      kept->impl("late_cpu", torch::dispatch(c10::DispatchKey::CUDA, &late_op));
      kept->def("late_composite(Tensor x) -> Tensor", &late_composite);
    }
    init().communicator().barrier();
    auto find = [](const char* name) {
      return c10::Dispatcher::singleton()
          .findSchemaOrThrow(name, "")
          .typed<at::Tensor(const at::Tensor&)>();
    };
    for (const char* name : {"tessera_test::late", "tessera_test::late_cpu"}) {
      EXPECT_TRUE(close(find(name).call(t), distinct({4, 4}) * 2 + 1));
    }
    EXPECT_TRUE(close(
        find("tessera_test::late_composite").call(t),
        distinct({4, 4}).mm(at::ones({4, 2}, f64()))));
  });
}

at::Tensor late_view(const at::Tensor& x) {
  return x.slice(0, 1);
}

// Nobody knows which memory such a view shows; that of another view is not at
// hand.
TEST(Operators, DefinedLaterThatAreViewsShowNoViewThatMustMove) {
  run_ranks(2, [&] {
    if (rank() == 0) {
      static auto* kept = new torch::Library(
          torch::Library::DEF, "tessera_view_test", std::nullopt, __FILE__,
          __LINE__);
      kept->def(
          "rows(Tensor(a) x) -> Tensor(a)",
          torch::dispatch(
              c10::DispatchKey::CompositeExplicitAutograd, &late_view));
    }
    init().communicator().barrier();
    const auto rows = c10::Dispatcher::singleton()
                          .findSchemaOrThrow("tessera_view_test::rows", "")
                          .typed<at::Tensor(const at::Tensor&)>();
    const auto t =
        distribute_tensor(counting({4, 4}), mesh_of({2}), {Shard(1)});
    EXPECT_TRUE(same(rows.call(t), counting({4, 4}).slice(0, 1)));
    EXPECT_ERROR("clone() the view first", rows.call(t.select(0, 1)));
  });
}

}  // namespace
}  // namespace tessera
