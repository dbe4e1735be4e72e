// Calls whose tensors live on several meshes of one world.
//
// Note [Tensors of several meshes]
// An optimizer's list may hold parameters of a mesh and of its sub-meshes, or
// of the meshes of a pipeline's stages. An operator on lists then runs once per
// mesh, on the elements that live there, in the order of their first elements,
// which is the same on all ranks. Beside that only values without dims meet:
// norms, learning rates, flags. They are brought to the mesh of the tensors
// that they meet, or, among themselves, to one that holds all of their ranks. A
// value of a sub-mesh is known to every rank of the mesh that it was cut from,
// since each of these has a sub-mesh of its own; every other value travels.
#pragma once

#include <vector>

#include <tensor/call/op_call.h>
#include <tessera/comm/device_mesh.h>

namespace tessera::detail::inline tensor_layer {

/// Returns a mesh of all ranks that hold or know values of these meshes: the
/// one that they were cut from, or the union of their ranks in ascending order.
DeviceMesh common_mesh(const std::vector<DeviceMesh>& meshes);

/// Returns a tensor without dims as a replicated one of another mesh. Every
/// rank of both meshes calls.
at::Tensor value_on(const at::Tensor& value, const DeviceMesh& mesh);

/// Tells whether a call has tensors of several meshes that can meet, so that
/// run_on_several_meshes() runs it.
bool meets_on_several_meshes(const OpCall& call);

/// Runs such a call as calls on one mesh each.
void run_on_several_meshes(const OpCall& call);

}  // namespace tessera::detail::inline tensor_layer
