#include <tensor/dispatch/several_meshes.h>

#include <algorithm>
#include <optional>
#include <set>

#include <c10/util/Exception.h>
#include <tensor/call/op_traits.h>
#include <tensor/impl/sharded_impl.h>
#include <tensor/impl/wrap.h>
#include <tensor/move/view_copies.h>
#include <tessera/tensor/dtensor.h>

namespace tessera::detail::inline tensor_layer {

namespace {

bool is_value(const at::Tensor& t) {
  return t.dim() == 0;
}

void add_mesh(std::vector<DeviceMesh>& meshes, const DeviceMesh& mesh) {
  if (std::find(meshes.begin(), meshes.end(), mesh) == meshes.end()) {
    meshes.push_back(mesh);
  }
}

std::vector<DeviceMesh> meshes_of(const OpCall& call) {
  std::vector<DeviceMesh> meshes;
  call.for_each_argument_tensor([&](const at::Tensor& t) {
    if (is_sharded(t)) {
      add_mesh(meshes, spec_of(t).mesh());
    }
  });
  return meshes;
}

bool is_list(const c10::IValue& value) {
  return value.isTensorList() || value.isList();
}

at::Tensor element_of(const c10::IValue& list, size_t i) {
  const c10::ArrayRef<c10::IValue> elements = list.toListRef();
  const c10::IValue& element = elements[i];
  return element.isTensor() ? element.toTensor() : at::Tensor();
}

// The elements of the lists, sorted by mesh.
class ByMesh {
 public:
  struct Part {
    std::optional<DeviceMesh> mesh;  // none: all of them are plain
    std::vector<size_t> elements;
  };

  // Nothing where the lists do not belong together.
  static std::optional<ByMesh> of(const OpCall& call) {
    ByMesh all;
    for (size_t i = 0; i < call.size(); ++i) {
      if (!is_list(call.argument(i)) || call.argument(i).toListRef().empty()) {
        continue;
      }
      const size_t length = call.argument(i).toListRef().size();
      if (all.length_ != 0 && all.length_ != length) {
        return std::nullopt;
      }
      all.length_ = length;
    }
    for (size_t e = 0; e < all.length_; ++e) {
      if (!all.add(call, e)) {
        return std::nullopt;
      }
    }
    return all;
  }

  const std::vector<Part>& parts() const { return parts_; }
  size_t length() const { return length_; }

 private:
  bool add(const OpCall& call, size_t e) {
    std::optional<DeviceMesh> mesh;
    for (size_t i = 0; i < call.size(); ++i) {
      const c10::IValue& list = call.argument(i);
      if (!is_list(list) || list.toListRef().empty()) {
        continue;
      }
      const at::Tensor t = element_of(list, e);
      if (!t.defined() || !is_sharded(t)) {
        continue;
      }
      if (mesh && *mesh != spec_of(t).mesh()) {
        return false;
      }
      mesh = spec_of(t).mesh();
    }
    const auto known = std::find_if(
        parts_.begin(), parts_.end(),
        [&](const Part& part) { return part.mesh == mesh; });
    if (known != parts_.end()) {
      known->elements.push_back(e);
    } else {
      parts_.push_back({mesh, {e}});
    }
    return true;
  }

  size_t length_ = 0;
  std::vector<Part> parts_;
};

// Values beside the lists are brought to the mesh of a part; what an operator
// writes must be there.
bool can_bring_values(const OpCall& call) {
  for (size_t i = 0; i < call.size(); ++i) {
    if (call.argument(i).isTensor() &&
        is_sharded(call.argument(i).toTensor()) &&
        (call.writes(i) || !is_value(call.argument(i).toTensor()))) {
      return false;
    }
  }
  return true;
}

c10::IValue elements_of(
    const c10::IValue& list, const std::vector<size_t>& elements) {
  if (list.isTensorList()) {
    c10::List<at::Tensor> some;
    for (const size_t e : elements) {
      some.push_back(element_of(list, e));
    }
    return some;
  }
  c10::impl::GenericList some(list.toList().elementType());
  for (const size_t e : elements) {
    some.push_back(list.toListRef()[e]);
  }
  return some;
}

at::Tensor brought(const at::Tensor& t, const std::optional<DeviceMesh>& mesh) {
  if (!is_sharded(t)) {
    return t;
  }
  return mesh ? value_on(t, *mesh) : replicated_value(t);
}

// Puts the results of a part where those of its elements belong.
void collect(
    torch::jit::Stack& part, const std::vector<size_t>& elements,
    std::vector<std::vector<at::Tensor>>& results) {
  for (size_t r = 0; r < results.size(); ++r) {
    const std::vector<at::Tensor> some = part[r].toTensorVector();
    for (size_t k = 0; k < elements.size(); ++k) {
      results[r][elements[k]] = some[k];
    }
  }
}

void run_part_by_part(const OpCall& call, const ByMesh& lists) {
  const size_t returns = call.schema().returns().size();
  std::vector<std::vector<at::Tensor>> results(
      returns, std::vector<at::Tensor>(lists.length()));
  for (const ByMesh::Part& part : lists.parts()) {
    torch::jit::Stack stack;
    for (size_t i = 0; i < call.size(); ++i) {
      const c10::IValue& value = call.argument(i);
      if (is_list(value) && value.toListRef().size() == lists.length()) {
        stack.push_back(elements_of(value, part.elements));
      } else if (value.isTensor()) {
        stack.emplace_back(brought(value.toTensor(), part.mesh));
      } else {
        stack.push_back(value);
      }
    }
    call.op().callBoxed(&stack);
    collect(stack, part.elements, results);
  }
  torch::jit::drop(*call.stack(), call.size());
  for (const std::vector<at::Tensor>& list : results) {
    call.stack()->push_back(c10::List<at::Tensor>(list));
  }
}

// The one mesh of the tensors with dims; the common one where there are only
// values. Nothing where tensors with dims are on several.
std::optional<DeviceMesh> meeting_mesh(const OpCall& call) {
  std::vector<DeviceMesh> of_tensors;
  for (size_t i = 0; i < call.size(); ++i) {
    for_each_tensor(call.argument(i), [&](const at::Tensor& t) {
      if (is_sharded(t) && (!is_value(t) || call.writes(i))) {
        add_mesh(of_tensors, spec_of(t).mesh());
      }
    });
  }
  if (of_tensors.empty()) {
    return common_mesh(meshes_of(call));
  }
  return of_tensors.size() == 1 ? std::optional(of_tensors[0]) : std::nullopt;
}

bool same_world(const std::vector<DeviceMesh>& meshes) {
  return std::all_of(meshes.begin(), meshes.end(), [&](const DeviceMesh& mesh) {
    return mesh.world().rank() == meshes[0].world().rank();
  });
}

}  // namespace

DeviceMesh common_mesh(const std::vector<DeviceMesh>& meshes) {
  std::vector<DeviceMesh> roots;
  std::set<int64_t> ranks;
  for (const DeviceMesh& mesh : meshes) {
    add_mesh(roots, detail::root_of(mesh));
    const at::Tensor all = roots.back().ranks();
    ranks.insert(
        all.const_data_ptr<int64_t>(),
        all.const_data_ptr<int64_t>() + all.numel());
  }
  for (const DeviceMesh& root : roots) {
    if (root.size() == static_cast<int64_t>(ranks.size())) {
      return root;
    }
  }
  return DeviceMesh(
      meshes[0].device_type(),
      MeshShape::from_ranks(
          std::vector<int64_t>(ranks.begin(), ranks.end()),
          {static_cast<int64_t>(ranks.size())}));
}

at::Tensor value_on(const at::Tensor& value, const DeviceMesh& mesh) {
  const DeviceMesh& from = spec_of(value).mesh();
  if (from == mesh) {
    return value;
  }
  if (detail::root_of(from) == detail::root_of(mesh) && from.coordinate() &&
      mesh.coordinate()) {
    return wrap_replicated(replicated_value(value), mesh);
  }
  return redistribute(
      value, mesh, Placements(static_cast<size_t>(mesh.ndim()), Replicate()));
}

bool meets_on_several_meshes(const OpCall& call) {
  const std::vector<DeviceMesh> meshes = meshes_of(call);
  if (meshes.size() < 2 || !same_world(meshes)) {
    return false;
  }
  if (traits_of(call.op()).is_of_lists) {
    return ByMesh::of(call).has_value() && can_bring_values(call);
  }
  return meeting_mesh(call).has_value();
}

void run_on_several_meshes(const OpCall& call) {
  if (traits_of(call.op()).is_of_lists) {
    return run_part_by_part(call, *ByMesh::of(call));
  }
  const DeviceMesh mesh = *meeting_mesh(call);
  torch::jit::Stack stack;
  for (size_t i = 0; i < call.size(); ++i) {
    c10::IValue value = call.argument(i);
    map_tensors(value, [&](const at::Tensor& t) {
      return t.defined() && is_sharded(t) && is_value(t) ? value_on(t, mesh)
                                                         : t;
    });
    stack.push_back(std::move(value));
  }
  call.op().callBoxed(&stack);
  torch::jit::drop(*call.stack(), call.size());
  call.stack()->insert(call.stack()->end(), stack.begin(), stack.end());
}

}  // namespace tessera::detail::inline tensor_layer
