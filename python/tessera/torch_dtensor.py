"""torch.distributed.tensor.DTensor to sharded tensors and back, without copies.

Local memory is shared, and meshes are remembered, so that a tensor that went there
and back has the mesh it had. The groups are those of torch.distributed's world:
the first conversion after init_process_group() is made by all of its ranks.
"""
from typing import TYPE_CHECKING, Any, Optional

import torch
import torch.distributed as dist

from . import _C

if TYPE_CHECKING:
    from torch.distributed.device_mesh import DeviceMesh as TorchMesh
    from torch.distributed.tensor import DTensor

_REDUCE_OPS = ("sum", "avg", "max", "min", "product")


class _Meshes:
    """The meshes of one world of torch.distributed, as both sides know them."""

    def __init__(self, group: Any) -> None:
        self.group = group
        whole = _C.DeviceMesh.from_group([_C.from_process_group(group)], "cpu")
        self.world = whole.world()
        self.ours: dict["TorchMesh", _C.DeviceMesh] = {}
        self.torch: dict[_C.DeviceMesh, "TorchMesh"] = {}

    def remember(self, mesh: _C.DeviceMesh, torch_mesh: "TorchMesh") -> None:
        self.ours[torch_mesh] = mesh
        self.torch[mesh] = torch_mesh


_meshes: Optional[_Meshes] = None


def _current(call: str) -> _Meshes:
    global _meshes
    if not dist.is_available() or not dist.is_initialized():
        raise ValueError(
            f"{call}: torch.distributed is not running; call "
            "init_process_group() first")
    if _meshes is None or _meshes.group is not dist.group.WORLD:
        _meshes = _Meshes(dist.group.WORLD)
    return _meshes


def known_world() -> Optional[_C.World]:
    """Returns the world of the running torch.distributed, once something was
    converted in it."""
    if _meshes is None or not dist.is_initialized() or \
            _meshes.group is not dist.group.WORLD:
        return None
    return _meshes.world


def _our_mesh(torch_mesh: "TorchMesh") -> _C.DeviceMesh:
    meshes = _current("from_torch")
    if torch_mesh not in meshes.ours:
        coordinate = torch_mesh.get_coordinate()
        if coordinate is None:
            raise ValueError(
                f"from_torch, rank {dist.get_rank()}: this rank is outside "
                f"{torch_mesh}; convert on the ranks of the mesh only")
        ranks = torch_mesh.mesh
        groups = []
        for dim in range(ranks.dim()):
            line = list(coordinate)
            line[dim] = slice(None)
            groups.append(meshes.world.communicator(ranks[tuple(line)].tolist()))
        names = list(torch_mesh.mesh_dim_names or [])
        meshes.remember(
            _C.DeviceMesh.from_group(groups, torch_mesh.device_type, ranks, names),
            torch_mesh)
    return meshes.ours[torch_mesh]


def _torch_mesh(mesh: _C.DeviceMesh) -> "TorchMesh":
    from torch.distributed.device_mesh import DeviceMesh as TorchMesh
    meshes = _current("to_torch")
    if mesh not in meshes.torch:
        if mesh.world().size() != dist.get_world_size() or \
                mesh.world().rank() != dist.get_rank():
            raise ValueError(
                f"to_torch({mesh}): the ranks of the mesh are not those of "
                "torch.distributed; make the mesh of "
                "from_process_group(dist.group.WORLD)")
        meshes.remember(mesh, TorchMesh(
            mesh.device_type, mesh.ranks, mesh_dim_names=mesh.dim_names or None))
    return meshes.torch[mesh]


def _our_placement(placement: Any) -> _C.Placement:
    from torch.distributed.tensor import placement_types as kinds
    kind = type(placement)
    if kind is kinds._StridedShard:
        return _C.StridedShard(placement.dim, placement.split_factor)
    if kind is kinds.Shard:
        return _C.Shard(placement.dim)
    if kind is kinds.Replicate:
        return _C.Replicate()
    if kind is kinds.Partial and placement.reduce_op in _REDUCE_OPS:
        return _C.Partial(placement.reduce_op)
    raise ValueError(
        f"from_torch: {placement!r} has no counterpart; redistribute() the DTensor "
        "to Shard, Replicate or Partial(sum) first")


def _torch_placement(placement: _C.Placement) -> Any:
    from torch.distributed.tensor import placement_types as kinds
    if placement.is_replicate():
        return kinds.Replicate()
    if placement.is_partial():
        return kinds.Partial(placement.reduce_op)
    if placement.kind == "shard" and placement.order == -1:
        return kinds.Shard(placement.dim)
    if placement.kind == "strided_shard" and placement.order == -1:
        return kinds._StridedShard(placement.dim,
                                   split_factor=placement.split_factor)
    raise ValueError(
        f"to_torch: {placement} has no counterpart in DTensor; redistribute() to "
        "Shard, StridedShard, Replicate or Partial first")


def _check_order(dtensor: "DTensor") -> None:
    spec = dtensor._spec
    order = getattr(spec, "shard_order", None)
    if order and order != spec.compute_default_shard_order(spec.placements):
        raise ValueError(
            f"from_torch({spec}): dims are cut in another order than the mesh's; "
            "redistribute() the DTensor to the default order first")


def from_torch(dtensor: "DTensor") -> torch.Tensor:
    """Returns a DTensor of torch.distributed as a sharded tensor.

    Shares the memory of the shard, the mesh and the groups; gradients go back to the
    DTensor. All ranks of the process group make the first conversion together.

    >>> tessera.from_torch(torch.ones(2))
    Traceback (most recent call last):
    TypeError: from_torch: a DTensor is needed; got Tensor
    """
    from torch.distributed.tensor import DTensor
    if not isinstance(dtensor, DTensor):
        raise TypeError(
            f"from_torch: a DTensor is needed; got {type(dtensor).__name__}")
    _check_order(dtensor)
    return _C.from_local(
        dtensor.to_local(), _our_mesh(dtensor.device_mesh),
        [_our_placement(p) for p in dtensor.placements],
        shape=list(dtensor.shape), stride=list(dtensor.stride()))


def to_torch(tensor: torch.Tensor) -> "DTensor":
    """Returns a sharded tensor as a DTensor of torch.distributed.

    Shares the memory of the shard, the mesh and the groups; gradients go back to the
    sharded tensor. The mesh is one that from_torch() met, or one of the world of
    from_process_group(dist.group.WORLD).

    >>> tessera.to_torch(tessera.ones([2], mesh, "S(0)"))
    Traceback (most recent call last):
    ValueError: to_torch: torch.distributed is not running; call ...
    """
    from torch.distributed.tensor import DTensor
    spec = _C.spec(tensor)
    return DTensor.from_local(
        _C.to_local(tensor), _torch_mesh(spec.mesh),
        [_torch_placement(p) for p in spec.placements],
        run_check=False, shape=tensor.shape, stride=tensor.stride())
