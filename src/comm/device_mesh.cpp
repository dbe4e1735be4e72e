#include <tessera/comm/device_mesh.h>

#include <algorithm>
#include <map>
#include <mutex>
#include <ostream>
#include <utility>

#include <ATen/ops/empty.h>
#include <ATen/ops/inverse.h>
#include <ATen/ops/ones.h>
#include <c10/core/GradMode.h>
#include <c10/util/Exception.h>
#include <c10/util/hash.h>

#include "comm/engine/engine.h"
#include "comm/engine/inherited_modes.h"
#include "comm/mesh_device.h"

namespace tessera {

struct DeviceMesh::State {
  State(c10::DeviceType type, MeshShape mesh, World w)
      : device_type(type),
        shape(std::move(mesh)),
        world(std::move(w)),
        coordinate(shape.coordinate_of(world.rank())),
        along(static_cast<size_t>(shape.ndim())),
        hash(c10::hash_combine(static_cast<size_t>(type), shape.hash())) {}

  const c10::DeviceType device_type;
  const MeshShape shape;
  const World world;
  const std::optional<std::vector<int64_t>> coordinate;
  std::mutex mutex;  // guards the groups below, which are made when asked for
  std::vector<Communicator> along;  // per dim
  std::map<std::vector<int64_t>, Communicator> along_several;
  Communicator whole;
  const size_t hash;
  std::shared_ptr<State> root;  // what it was cut from; none: it is one
};

namespace {

MeshShape shape_of(
    const at::Tensor& ranks, std::vector<std::string> dim_names) {
  TORCH_CHECK_VALUE(
      ranks.defined(),
      "DeviceMesh: the ranks must be a tensor; it is undefined");
  TORCH_CHECK_TYPE(
      c10::isIntegralType(ranks.scalar_type(), /*includeBool=*/false),
      "DeviceMesh: the ranks must be an integer tensor; got ",
      c10::toString(ranks.scalar_type()));
  const at::Tensor flat = ranks.to(at::kCPU, at::kLong).contiguous();
  const int64_t* data = flat.const_data_ptr<int64_t>();
  return MeshShape::from_ranks(
      std::vector<int64_t>(data, data + flat.numel()), ranks.sizes().vec(),
      std::move(dim_names));
}

void check_fits(const MeshShape& shape, const World& world) {
  TORCH_CHECK_VALUE(
      shape.max_rank() < world.size(), "DeviceMesh, rank ", world.rank(), ": ",
      to_string(shape), " must fit into the world; it holds rank ",
      shape.max_rank(), ", the world has ", world.size(),
      " ranks; start more ranks or make the mesh smaller");
}

void check_device(c10::DeviceType type, const MeshShape& shape, int64_t rank) {
  TORCH_CHECK_NOT_IMPLEMENTED(
      type != at::kXLA, "DeviceMesh of device type xla, ", to_string(shape),
      ", rank ", rank,
      ": XLA shards by itself; give it the text that to_hlo_sharding() or "
      "to_shardy() prints for a Layout on this MeshShape (tessera show --xla)");
}

// LibTorch loads its linear algebra for CUDA when first used, and fails when
// two threads do that at a time: have it loaded before ranks can.
void prepare_device(c10::DeviceType type, const World& world) {
  if (type != at::kCUDA || world.size() == 1 || world.engine() != "threads" ||
      !detail::has_device(type)) {
    return;
  }
  static const bool prepared = [] {
    const c10::NoGradGuard no_grad;
    return at::inverse(at::ones({1, 1}, at::TensorOptions(at::kCUDA)))
        .defined();
  }();
  static_cast<void>(prepared);
}

}  // namespace

DeviceMesh::DeviceMesh(std::shared_ptr<State> state)
    : state_(std::move(state)) {}

DeviceMesh::DeviceMesh(
    c10::DeviceType device_type, const at::Tensor& ranks,
    std::vector<std::string> dim_names)
    : DeviceMesh(device_type, shape_of(ranks, std::move(dim_names))) {}

DeviceMesh::DeviceMesh(c10::DeviceType device_type, MeshShape shape)
    : DeviceMesh(device_type, std::move(shape), init()) {}

DeviceMesh::DeviceMesh(
    c10::DeviceType device_type, MeshShape shape, World world) {
  check_device(device_type, shape, world.rank());
  check_fits(shape, world);
  prepare_device(device_type, world);
  state_ =
      std::make_shared<State>(device_type, std::move(shape), std::move(world));
}

DeviceMesh DeviceMesh::from_group(
    const std::vector<Communicator>& groups, c10::DeviceType device_type,
    const at::Tensor& ranks, std::vector<std::string> dim_names) {
  TORCH_CHECK_VALUE(!groups.empty(), "from_group: got no group");
  TORCH_CHECK_VALUE(
      ranks.defined() || groups.size() == 1,
      "from_group: the ranks must be given for more than one group; got ",
      groups.size(), " groups");
  MeshShape shape = ranks.defined() ? shape_of(ranks, std::move(dim_names))
                                    : MeshShape::from_ranks(
                                          groups[0].ranks(), {groups[0].size()},
                                          std::move(dim_names));
  TORCH_CHECK_VALUE(
      shape.ndim() == static_cast<int64_t>(groups.size()),
      "from_group: there must be one group per mesh dim; got ", groups.size(),
      " groups for ", to_string(shape));
  DeviceMesh mesh(
      device_type, std::move(shape),
      World(detail::impl_of(groups[0]).of_world));
  const int64_t rank = mesh.world().rank();
  for (int64_t dim = 0; dim < mesh.ndim(); ++dim) {
    const Communicator& group = groups[static_cast<size_t>(dim)];
    TORCH_CHECK_VALUE(
        World(detail::impl_of(group).of_world) == mesh.world(),
        "from_group, rank ", rank,
        ": the groups must be of one world; that of dim ", dim,
        " is of another than that of dim 0");
    TORCH_CHECK_VALUE(
        mesh.coordinate().has_value() &&
            group.ranks() == mesh.mesh_shape().ranks_along(dim, rank),
        "from_group, rank ", rank, ": the group of dim ", dim,
        " must hold the ranks along it; got ranks ", group.ranks(), " for ",
        to_string(mesh));
    mesh.state_->along[static_cast<size_t>(dim)] = group;
  }
  return mesh;
}

c10::DeviceType DeviceMesh::device_type() const {
  return state_->device_type;
}
const MeshShape& DeviceMesh::mesh_shape() const {
  return state_->shape;
}
int64_t DeviceMesh::ndim() const {
  return state_->shape.ndim();
}
int64_t DeviceMesh::size() const {
  return state_->shape.size();
}
int64_t DeviceMesh::size(int64_t dim) const {
  return state_->shape.size(dim);
}
std::vector<int64_t> DeviceMesh::shape() const {
  return state_->shape.sizes();
}
const World& DeviceMesh::world() const {
  return state_->world;
}
size_t DeviceMesh::hash() const {
  return state_->hash;
}

const std::vector<std::string>& DeviceMesh::dim_names() const {
  return state_->shape.names();
}

const std::optional<std::vector<int64_t>>& DeviceMesh::coordinate() const {
  return state_->coordinate;
}

at::Tensor DeviceMesh::ranks() const {
  at::Tensor tensor = at::empty(shape(), at::kLong);
  const std::vector<int64_t> values = state_->shape.ranks();
  std::copy(values.begin(), values.end(), tensor.mutable_data_ptr<int64_t>());
  return tensor;
}

int64_t DeviceMesh::only_dim(const char* call) const {
  TORCH_CHECK_VALUE(
      ndim() == 1, call, " on ", to_string(*this), ", rank ", world().rank(),
      ": the dim may be left out on a 1-d mesh only; name one of the ", ndim(),
      " dims");
  return 0;
}

void DeviceMesh::check_member(const char* call) const {
  TORCH_CHECK_VALUE(
      coordinate().has_value(), call, " on ", to_string(*this), ", rank ",
      world().rank(), ": this rank is not in the mesh; ask coordinate() first");
}

int64_t DeviceMesh::local_rank() const {
  return local_rank(only_dim("local_rank"));
}

int64_t DeviceMesh::local_rank(int64_t dim) const {
  check_member("local_rank");
  static_cast<void>(size(dim));  // checks the dim
  return (*coordinate())[static_cast<size_t>(dim)];
}

int64_t DeviceMesh::local_rank(const std::string& dim) const {
  return local_rank(state_->shape.dim_of(dim));
}

DeviceMesh DeviceMesh::with_shape(MeshShape shape) const {
  return DeviceMesh(std::make_shared<State>(
      state_->device_type, std::move(shape), state_->world));
}

DeviceMesh detail::root_of(const DeviceMesh& mesh) {
  return mesh.state_->root ? DeviceMesh(mesh.state_->root) : mesh;
}

DeviceMesh DeviceMesh::operator[](const std::string& dim) const {
  return slice({dim});
}

DeviceMesh DeviceMesh::slice(const std::vector<std::string>& dims) const {
  std::vector<int64_t> indices;
  for (const std::string& dim : dims) {
    indices.push_back(state_->shape.dim_of(dim));
  }
  if (dims == dim_names()) {
    return *this;
  }
  // A rank outside sees the slice at the mesh's origin.
  const int64_t member = coordinate().has_value()
                             ? world().rank()
                             : state_->shape.rank_at(std::vector<int64_t>(
                                   static_cast<size_t>(ndim()), 0));
  DeviceMesh part = with_shape(state_->shape.slice(indices, member));
  part.state_->root = state_->root ? state_->root : state_;
  return part;
}

DeviceMesh DeviceMesh::flatten(
    const std::vector<std::string>& dims, std::string name) const {
  TORCH_CHECK_VALUE(
      !dims.empty(), "flatten on ", to_string(*this), ": got no dims to merge");
  const int64_t first = state_->shape.dim_of(dims[0]);
  for (size_t i = 0; i < dims.size(); ++i) {
    const int64_t dim = state_->shape.dim_of(dims[i]);
    TORCH_CHECK_VALUE(
        dim == first + static_cast<int64_t>(i), "flatten on ", to_string(*this),
        ": the dims must be neighbours in mesh order; got ", dims);
  }
  const int64_t last = first + static_cast<int64_t>(dims.size()) - 1;
  return with_shape(state_->shape.flatten(first, last, std::move(name)));
}

DeviceMesh DeviceMesh::unflatten(
    int64_t dim, const std::vector<int64_t>& sizes,
    const std::vector<std::string>& names) const {
  return with_shape(state_->shape.unflatten(dim, sizes, names));
}

DeviceMesh DeviceMesh::unflatten(
    const std::string& dim, const std::vector<int64_t>& sizes,
    const std::vector<std::string>& names) const {
  return unflatten(state_->shape.dim_of(dim), sizes, names);
}

DeviceMesh DeviceMesh::concatenate(const std::vector<DeviceMesh>& meshes) {
  TORCH_CHECK_VALUE(!meshes.empty(), "concatenate: got no mesh to join");
  std::vector<MeshShape> shapes;
  for (const DeviceMesh& mesh : meshes) {
    TORCH_CHECK_VALUE(
        mesh.device_type() == meshes[0].device_type() &&
            mesh.world() == meshes[0].world(),
        "concatenate: meshes must share device type and world; got ",
        to_string(meshes[0]), " and ", to_string(mesh));
    shapes.push_back(mesh.mesh_shape());
  }
  return meshes[0].with_shape(MeshShape::concatenate(shapes));
}

Communicator DeviceMesh::communicator() const {
  return communicator(only_dim("communicator"));
}

Communicator DeviceMesh::communicator(int64_t dim) const {
  static_cast<void>(size(dim));  // checks the dim
  check_member("communicator");
  const std::lock_guard<std::mutex> lock(state_->mutex);
  Communicator& group = state_->along[static_cast<size_t>(dim)];
  if (!group.defined()) {
    group =
        world().communicator(state_->shape.ranks_along(dim, world().rank()));
  }
  return group;
}

Communicator DeviceMesh::communicator(const std::string& dim) const {
  return communicator(state_->shape.dim_of(dim));
}

Communicator DeviceMesh::communicator_over(
    const std::vector<int64_t>& dims) const {
  if (dims.size() == 1) {
    return communicator(dims[0]);
  }
  check_member("communicator_over");
  const MeshShape& shape = state_->shape;
  const MeshShape part = shape.slice(dims, world().rank());
  const std::lock_guard<std::mutex> lock(state_->mutex);
  Communicator& group = state_->along_several[dims];
  if (!group.defined()) {
    group = world().communicator(part.ranks());
  }
  return group;
}

Communicator DeviceMesh::whole() const {
  check_member("whole");
  const std::lock_guard<std::mutex> lock(state_->mutex);
  if (!state_->whole.defined()) {
    state_->whole = world().communicator(state_->shape.ranks());
  }
  return state_->whole;
}

bool operator==(const DeviceMesh& a, const DeviceMesh& b) {
  return a.state_ == b.state_ ||
         (a.hash() == b.hash() && a.device_type() == b.device_type() &&
          a.world() == b.world() && a.mesh_shape() == b.mesh_shape());
}

DeviceMesh init_device_mesh(
    c10::DeviceType device_type, const std::vector<int64_t>& shape,
    std::vector<std::string> dim_names) {
  return DeviceMesh(device_type, MeshShape(shape, std::move(dim_names)));
}

std::string to_string(const DeviceMesh& mesh) {
  const std::string text = to_string(mesh.mesh_shape());
  return mesh.device_type() == c10::DeviceType::CPU
             ? text
             : text + " " + c10::DeviceTypeName(mesh.device_type(), true);
}

std::ostream& operator<<(std::ostream& out, const DeviceMesh& mesh) {
  return out << to_string(mesh);
}

MeshGuard::MeshGuard(DeviceMesh mesh)
    : outer_(detail::exchange_mode(
          detail::Mode::kMesh,
          std::make_shared<const DeviceMesh>(std::move(mesh)))) {}

MeshGuard::~MeshGuard() {
  detail::exchange_mode(detail::Mode::kMesh, std::move(outer_));
}

const DeviceMesh& current_mesh() {
  const auto* mesh = detail::mode_value<DeviceMesh>(detail::Mode::kMesh);
  TORCH_CHECK_VALUE(
      mesh != nullptr,
      "current_mesh: this thread has none; pass a mesh, or make one current "
      "with MeshGuard");
  return *mesh;
}

}  // namespace tessera
