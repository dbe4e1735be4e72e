#include <tessera/parallel/local_map.h>

#include <c10/util/Exception.h>
#include <tessera/layout/notation.h>
#include <tessera/tensor/dtensor.h>

namespace tessera {

namespace {

struct LocalMap {
  LocalFn fn;
  std::vector<Placements> out_placements;
  std::vector<std::optional<Placements>> in_placements;
  DeviceMesh mesh;
  LocalMapOptions options;

  std::vector<at::Tensor> operator()(
      const std::vector<at::Tensor>& arguments) const {
    TORCH_CHECK_VALUE(
        arguments.size() == in_placements.size(),
        "local_map: the call must have an argument per in-placement; got ",
        arguments.size(), " and ", in_placements.size());
    bool uneven = false;
    std::vector<at::Tensor> parts;
    for (size_t i = 0; i < arguments.size(); ++i) {
      parts.push_back(part_of(arguments[i], i, uneven));
    }
    std::vector<at::Tensor> results = fn(parts);
    TORCH_CHECK_VALUE(
        results.size() == out_placements.size(),
        "local_map: the function must return a tensor per out-placement; got ",
        results.size(), " and ", out_placements.size());
    for (size_t i = 0; i < results.size(); ++i) {
      results[i] = put_together(results[i], i, uneven);
    }
    return results;
  }

 private:
  at::Tensor part_of(const at::Tensor& given, size_t i, bool& uneven) const {
    if (!in_placements[i]) {
      TORCH_CHECK_VALUE(
          !given.defined() || !is_dtensor(given), "local_map: argument ", i,
          " is sharded and has no in-placements; name them, or pass a plain "
          "tensor");
      return given;
    }
    TORCH_CHECK_VALUE(
        is_dtensor(given), "local_map: argument ", i,
        " has in-placements and is plain; pass a sharded tensor, or nothing "
        "for its in-placements");
    TORCH_CHECK_VALUE(
        spec(given).mesh() == mesh, "local_map: argument ", i,
        " is on another mesh; got ", to_string(spec(given).mesh()), " and ",
        to_string(mesh));
    const Placements wanted =
        Layout(given.sizes().vec(), mesh.mesh_shape(), *in_placements[i])
            .placements();
    TORCH_CHECK_VALUE(
        options.redistribute_inputs || placements(given) == wanted,
        "local_map: argument ", i, " must be in ", to_string(*in_placements[i]),
        "; got ", to_string(placements(given)),
        "; redistribute it, or set redistribute_inputs");
    const at::Tensor placed = redistribute(given, wanted);
    uneven = uneven || !spec(placed).layout().is_even();
    ToLocalOptions to;
    if (i < options.in_grad_placements.size()) {
      to.grad_placements = options.in_grad_placements[i];
    }
    return to_local(placed, to);
  }

  at::Tensor put_together(const at::Tensor& part, size_t i, bool uneven) const {
    TORCH_CHECK_VALUE(
        part.defined() && !is_dtensor(part), "local_map: result ", i,
        " must be a plain tensor: this rank's part");
    FromLocalOptions from;
    if (i < options.out_shapes.size()) {
      from.shape = options.out_shapes[i];
    }
    bool sharded = false;
    for (const Placement& p : out_placements[i]) {
      sharded = sharded || p.is_shard();
    }
    TORCH_CHECK_VALUE(
        from.shape || !uneven || !sharded, "local_map: result ", i,
        " is cut, and so was an argument, unevenly: the sizes of the other "
        "ranks' parts are not known; set out_shapes");
    return from_local(part, mesh, out_placements[i], from);
  }
};

}  // namespace

LocalFn local_map(
    LocalFn fn, std::vector<Placements> out_placements,
    std::vector<std::optional<Placements>> in_placements,
    const DeviceMesh& mesh, LocalMapOptions options) {
  const auto check = [&](const Placements& placements) {
    TORCH_CHECK_VALUE(
        static_cast<int64_t>(placements.size()) == mesh.ndim(),
        "local_map: placements must have an entry per mesh dim; got ",
        to_string(placements), " for ", to_string(mesh));
  };
  for (const Placements& placements : out_placements) {
    check(placements);
  }
  for (const auto& placements : in_placements) {
    if (placements) {
      check(*placements);
    }
  }
  TORCH_CHECK_VALUE(
      (options.in_grad_placements.empty() ||
       options.in_grad_placements.size() == in_placements.size()) &&
          (options.out_shapes.empty() ||
           options.out_shapes.size() == out_placements.size()),
      "local_map: options must have an entry per argument and per result, or "
      "none; got ",
      options.in_grad_placements.size(), " and ", options.out_shapes.size(),
      " for ", in_placements.size(), " and ", out_placements.size());
  return LocalMap{
      std::move(fn), std::move(out_placements), std::move(in_placements), mesh,
      std::move(options)};
}

}  // namespace tessera
