"""What a style of parallel modules is applied to, and what a style is."""
from typing import Any, Callable, Optional

import torch
from torch import nn

from . import _C

Placement = _C.Placement
Hook = tuple[str, Callable[..., Any]]


class StyledModule:
    """A module that a path of a plan names; says where a style is applied.

    A style of your own that overrides apply() calls shard(), before() and after();
    nothing is touched until all styles of the plan have said what they do.

    >>> target = tessera.StyledModule(torch.nn.Linear(2, 2), mesh)
    >>> target.ranks, target.has("weight"), target.has("scale")
    (1, True, False)
    """

    module: nn.Module
    mesh: _C.DeviceMesh
    mesh_dim: int
    path: str
    style: str
    src_data_rank: Optional[int]

    def __init__(self, module: nn.Module, mesh: _C.DeviceMesh,
                 mesh_dim: Optional[int] = None, path: str = "",
                 style: str = "a style", src_data_rank: Optional[int] = 0) -> None:
        self.module, self.mesh, self.path, self.style = module, mesh, path, style
        self.mesh_dim = mesh.ndim - 1 if mesh_dim is None else mesh_dim
        self.src_data_rank = src_data_rank
        self._placed: list[tuple[str, torch.Tensor, Placement]] = []
        self._hooks: list[Hook] = []

    @property
    def ranks(self) -> int:
        """How many ranks the mesh dim of the plan has."""
        return self.mesh.size(self.mesh_dim)

    def where(self) -> str:
        """What an error message of the style begins with."""
        names = self.mesh.dim_names
        dim = names[self.mesh_dim] if names else f"dim {self.mesh_dim}"
        return (f"parallelize_module, {self.style} of \"{self.path}\" on {dim} of "
                f"{self.mesh}")

    def has(self, parameter: str) -> bool:
        """Tells whether the module itself has a parameter of that name."""
        return self.module._parameters.get(parameter) is not None

    def shard(self, parameter: str, placement: Placement) -> None:
        """Places a parameter of the module itself."""
        tensor = self.module._parameters.get(parameter)
        if tensor is None:
            raise ValueError(
                f"{self.where()}: the module has no parameter \"{parameter}\"; it has "
                f"{', '.join(self.module._parameters) or 'none'}")
        path = f"{self.path}.{parameter}" if self.path else parameter
        self._placed.append((path, tensor, placement))

    def replicate(self) -> None:
        """Makes whole what no style has placed of the module's own parameters."""
        named = {id(tensor) for _, tensor, _ in self._placed}
        for name, tensor in self.module.named_parameters():
            if not _C.is_dtensor(tensor) and id(tensor) not in named:
                path = f"{self.path}.{name}" if self.path else name
                self._placed.append((path, tensor, _C.Replicate()))

    def before(self, fn: Callable[[tuple, dict], tuple[tuple, dict]]) -> None:
        """Maps the arguments of forward(): fn(args, kwargs) returns both."""
        self._hooks.append(("before", fn))

    def after(self, fn: Callable[[Any], Any]) -> None:
        """Maps the result of forward()."""
        self._hooks.append(("after", fn))

    def along(self, layout: Placement) -> list[Placement]:
        """Placements with `layout` in the plan's mesh dim, whole in all others."""
        placements = [_C.Replicate()] * self.mesh.ndim
        placements[self.mesh_dim] = layout
        return placements

    def taken(self, tensor: Any, layout: Placement,
              size: Optional[int] = None) -> torch.Tensor:
        """Returns a sharded tensor as it is; a plain one is this rank's part of one in
        `layout`, whose cut dim has `size` elements: without it, all parts are taken to
        be as large as this one."""
        if not isinstance(tensor, torch.Tensor):
            raise TypeError(
                f"{self.where()}: a tensor was expected; got {type(tensor).__name__}")
        if _C.is_dtensor(tensor):
            if _C.device_mesh(tensor) != self.mesh:
                raise ValueError(
                    f"{self.where()}: the tensor is on {_C.device_mesh(tensor)}; "
                    "redistribute() it to the mesh of the plan")
            return tensor
        if self.mesh.size() != self.ranks:
            raise ValueError(
                f"{self.where()}: the input is plain, and what it is in other dims of the "
                f"mesh is not known; got shape {list(tensor.shape)}; from_local() or "
                "distribute_tensor() it")
        shape = list(tensor.shape)
        if size is not None and layout.is_shard():
            shape[layout.dim] = size
        return _C.from_local(tensor, self.mesh, self.along(layout),
                             shape=None if size is None else shape)

    def moved(self, tensor: torch.Tensor, layout: Placement) -> torch.Tensor:
        """Brings a sharded tensor into a layout along the plan's mesh dim."""
        if layout.is_shard() and layout.dim < 0:
            layout = layout.with_dim(layout.dim + tensor.dim())
        placements = list(_C.placements(tensor))
        if placements[self.mesh_dim] == layout:
            return tensor
        placements[self.mesh_dim] = layout
        return _C.redistribute(tensor, placements)

    def commit(self) -> None:
        """Does what the style said; for the library."""
        for path, tensor, placement in self._placed:
            _C.make_dtensor_(tensor, self.mesh, self.along(placement),
                             src_data_rank=self.src_data_rank)
            _C.name_tensor(tensor, path)
        for when, fn in self._hooks:
            if when == "before":
                self.module.register_forward_pre_hook(
                    lambda _, args, kwargs, fn=fn: fn(args, kwargs), with_kwargs=True)
            elif when == "after":
                self.module.register_forward_hook(
                    lambda _, args, result, fn=fn: fn(result))
            else:
                fn()


class ParallelStyle:
    """A way to make a module parallel. One of your own overrides one of two functions:

    _apply(module, device_mesh), as in PyTorch, changes the module and returns it;
    apply(target) says what to do to a StyledModule, and serves meshes of several dims.

    >>> class Halved(tessera.ParallelStyle):
    ...     def apply(self, target):
    ...         target.shard("weight", tessera.Shard(0))
    >>> net = tessera.parallelize_module(torch.nn.Linear(4, 2, bias=False), mesh, Halved())
    >>> tessera.placements(net.weight)
    [S(0)]
    """

    src_data_rank: Optional[int] = 0

    def apply(self, target: StyledModule) -> None:
        if type(self)._apply is ParallelStyle._apply:
            raise NotImplementedError(
                f"{target.where()}: the style has neither apply() nor _apply(); "
                "override one of them")
        target._hooks.append(
            ("now", lambda: self._apply(target.module, target.mesh)))

    def _apply(self, module: nn.Module, device_mesh: _C.DeviceMesh) -> nn.Module:
        target = StyledModule(module, device_mesh, style=type(self).__name__,
                              src_data_rank=self.src_data_rank)
        self.apply(target)
        target.commit()
        return module

    def __repr__(self) -> str:
        values = ", ".join(f"{k}={v}" for k, v in vars(self).items())
        return f"{type(self).__name__}({values})"
