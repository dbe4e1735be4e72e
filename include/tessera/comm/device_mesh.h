// DeviceMesh: a mesh shape whose ranks are real, with a communicator per dim.
#pragma once

#include <cstdint>
#include <iosfwd>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include <ATen/core/Tensor.h>
#include <c10/core/DeviceType.h>
#include <tessera/comm/communicator.h>
#include <tessera/comm/world.h>
#include <tessera/export.h>
#include <tessera/layout/mesh_shape.h>

namespace tessera {

class DeviceMesh;
namespace detail::inline comm_layer {
/// Returns the mesh that slice() cut a mesh from; another one itself.
DeviceMesh root_of(const DeviceMesh& mesh);
}  // namespace detail::inline comm_layer

/// A handle to a mesh of this rank's world; copies share its communicators,
/// which are made when first asked for.
class TESSERA_API DeviceMesh {
 public:
  /// Arranges ranks as an integer tensor does. A rank that occurs twice or lies
  /// outside the world is an error. A mesh need not hold this rank, and its
  /// devices need not be there until a tensor is to have data on them.
  DeviceMesh(
      c10::DeviceType device_type, const at::Tensor& ranks,
      std::vector<std::string> dim_names = {});
  /// Arranges ranks as a mesh shape says.
  DeviceMesh(c10::DeviceType device_type, MeshShape shape);
  /// Makes a mesh of ready groups of one world, one per dim; `ranks` may be
  /// omitted for one group.
  static DeviceMesh from_group(
      const std::vector<Communicator>& groups, c10::DeviceType device_type,
      const at::Tensor& ranks = {}, std::vector<std::string> dim_names = {});

  c10::DeviceType device_type() const;
  const MeshShape& mesh_shape() const;
  int64_t ndim() const;
  int64_t size() const;
  int64_t size(int64_t dim) const;
  std::vector<int64_t> shape() const;
  const std::vector<std::string>& dim_names() const;
  /// Returns the ranks as an int64 tensor of the mesh's shape.
  at::Tensor ranks() const;
  /// Returns this rank's coordinate, or nothing when it is not in the mesh.
  const std::optional<std::vector<int64_t>>& coordinate() const;
  /// Returns this rank's place along one dim; the dim may be left out when
  /// there is only one.
  int64_t local_rank() const;
  int64_t local_rank(int64_t dim) const;
  int64_t local_rank(const std::string& dim) const;

  /// Returns the sub-mesh of the named dims that holds this rank.
  DeviceMesh operator[](const std::string& dim) const;
  DeviceMesh slice(const std::vector<std::string>& dims) const;
  /// Merges neighbouring dims into one; the name defaults to the names joined
  /// with "_".
  DeviceMesh flatten(
      const std::vector<std::string>& dims, std::string name = "") const;
  DeviceMesh unflatten(
      int64_t dim, const std::vector<int64_t>& sizes,
      const std::vector<std::string>& names = {}) const;
  DeviceMesh unflatten(
      const std::string& dim, const std::vector<int64_t>& sizes,
      const std::vector<std::string>& names = {}) const;
  static DeviceMesh concatenate(const std::vector<DeviceMesh>& meshes);

  /// Returns the group of this rank along one dim; an error on a rank outside.
  Communicator communicator() const;
  Communicator communicator(int64_t dim) const;
  Communicator communicator(const std::string& dim) const;
  /// Returns the group of this rank along several dims, ascending: the ranks
  /// that differ from it in these dims only, row-major.
  Communicator communicator_over(const std::vector<int64_t>& dims) const;
  /// Returns the group of all ranks of the mesh, row-major.
  Communicator whole() const;
  const World& world() const;

  /// Compares ranks, arrangement, names, device type and world.
  friend TESSERA_API bool operator==(const DeviceMesh& a, const DeviceMesh& b);
  size_t hash() const;

 private:
  struct State;
  friend DeviceMesh detail::root_of(const DeviceMesh& mesh);
  explicit DeviceMesh(std::shared_ptr<State> state);
  DeviceMesh(c10::DeviceType device_type, MeshShape shape, World world);
  DeviceMesh with_shape(MeshShape shape) const;
  int64_t only_dim(const char* call) const;
  void check_member(const char* call) const;
  std::shared_ptr<State> state_;
};

/// Arranges ranks 0 .. product(shape)-1 row-major.
/// Example: init_device_mesh(at::kCPU, {2, 2}, {"dp", "tp"}).
TESSERA_API DeviceMesh init_device_mesh(
    c10::DeviceType device_type, const std::vector<int64_t>& shape,
    std::vector<std::string> dim_names = {});

/// Prints "mesh(dp=2, tp=4)", with the device type where it is not cpu.
TESSERA_API std::string to_string(const DeviceMesh& mesh);
TESSERA_API std::ostream& operator<<(std::ostream& out, const DeviceMesh& mesh);

/// Makes a mesh the current one of this thread while it lives; calls that name
/// no mesh use it.
class TESSERA_API MeshGuard {
 public:
  explicit MeshGuard(DeviceMesh mesh);
  ~MeshGuard();
  MeshGuard(const MeshGuard&) = delete;
  MeshGuard& operator=(const MeshGuard&) = delete;

 private:
  std::shared_ptr<const void> outer_;
};

/// Returns the innermost MeshGuard's mesh; an error when there is none.
TESSERA_API const DeviceMesh& current_mesh();

}  // namespace tessera
