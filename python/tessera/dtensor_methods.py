"""The methods of DTensor on sharded tensors, those of torch's DeviceMesh on meshes."""
import threading
import types
from typing import Any, Callable, Optional, Sequence

import torch

from . import _C

Placements = Sequence[_C.Placement]


def _listed(placements: Optional[Placements]) -> Optional[list[_C.Placement]]:
    return None if placements is None else list(placements)


class _Method:
    """An attribute that sharded tensors have and plain ones do not."""

    def __init__(self, get: Callable[[torch.Tensor], Any]) -> None:
        self.get = get

    def __set_name__(self, owner: type, name: str) -> None:
        self.name = name

    def __get__(self, tensor: Optional[torch.Tensor], owner: Any = None) -> Any:
        if tensor is None:
            return self
        if not _C.is_dtensor(tensor):
            raise AttributeError(
                f"'{type(tensor).__name__}' object has no attribute '{self.name}': the "
                "tensor is plain")
        return self.get(tensor)


def _redistribute(tensor: torch.Tensor, device_mesh: Optional[_C.DeviceMesh] = None,
                  placements: Optional[Placements] = None, *, async_op: bool = False,
                  forward_dtype: Optional[torch.dtype] = None,
                  backward_dtype: Optional[torch.dtype] = None) -> torch.Tensor:
    if placements is None:
        raise ValueError("redistribute: placements are needed")
    return _C.redistribute(
        tensor, _C.device_mesh(tensor) if device_mesh is None else device_mesh,
        list(placements), async_op=async_op, forward_dtype=forward_dtype,
        backward_dtype=backward_dtype)


def _bound(fn: Callable[..., Any]) -> Callable[[torch.Tensor], Any]:
    return lambda tensor: types.MethodType(fn, tensor)


def _to_local(tensor: torch.Tensor, *,
              grad_placements: Optional[Placements] = None) -> torch.Tensor:
    return _C.to_local(tensor, grad_placements=_listed(grad_placements))


def _full_tensor(tensor: torch.Tensor, *,
                 grad_placements: Optional[Placements] = None) -> torch.Tensor:
    return _C.full_tensor(tensor, grad_placements=_listed(grad_placements))


_METHODS: dict[str, Callable[[torch.Tensor], Any]] = {
    "redistribute": _bound(_redistribute), "to_local": _bound(_to_local),
    "full_tensor": _bound(_full_tensor), "device_mesh": _C.device_mesh,
    "placements": lambda t: tuple(_C.placements(t)),
    "_local_tensor": lambda t: _C.to_local(t.detach())}


_thread = threading.local()  # the meshes of `with mesh:`


def install() -> None:
    """Gives tensors and meshes the methods."""
    for name, get in _METHODS.items():
        method = _Method(get)
        method.__set_name__(torch.Tensor, name)
        setattr(torch.Tensor, name, method)
    mesh: Any = _C.DeviceMesh
    mesh.mesh_dim_names = property(lambda self: self.dim_names or None)
    mesh.mesh = property(lambda self: self.ranks)
    mesh.get_rank = lambda self: self.rank()
    mesh.get_coordinate = lambda self: self.coordinate
    mesh.get_local_rank = lambda self, mesh_dim=None: self.local_rank(mesh_dim)
    mesh.get_group = lambda self, mesh_dim=None: self.communicator(mesh_dim)
    mesh._flatten = lambda self, mesh_dim_name=None: self.flatten(
        list(self.dim_names), mesh_dim_name or "_".join(self.dim_names))

    def enter(self: _C.DeviceMesh) -> _C.DeviceMesh:
        guard = _C.MeshGuard(self)
        guard.__enter__()
        _thread.__dict__.setdefault("guards", []).append(guard)
        return self

    def leave(self: _C.DeviceMesh, *exception: Any) -> None:
        _thread.guards.pop().__exit__(*exception)

    mesh.__enter__, mesh.__exit__ = enter, leave
