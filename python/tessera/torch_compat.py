"""The names and calling conventions of torch.distributed.tensor, for programs that were
written with it: docs/reference/coming_from_dtensor.md says what differs.

Importing this module gives sharded tensors the methods of DTensor (redistribute, to_local,
full_tensor, placements, device_mesh) and meshes those of torch's DeviceMesh.

>>> import tessera.torch_compat as dt
>>> t = dt.distribute_tensor(torch.ones(4), mesh, [dt.Shard(0)])
>>> isinstance(t, dt.DTensor), t.redistribute(placements=[dt.Replicate()]).to_local()
(True, tensor([1., 1., 1., 1.]))
"""
import types
from typing import Any, Callable, Mapping, Optional, Sequence, Union

import torch
import torch.distributed as dist
from torch import nn

from . import _C, checkpoint as _checkpoint, dtensor_methods, modules, parallel, torch_dtensor
from .comm_debug_mode import CommDebugMode
from .parallel import loss_parallel
from .parallel_style import ParallelStyle
from .styles import (ColwiseParallel, PrepareModuleInput, PrepareModuleInputOutput,
                     PrepareModuleOutput, RowwiseParallel, SequenceParallel)
from .torch_fsdp import FSDPModule, MixedPrecisionPolicy, fully_shard

Placement = _C.Placement
Placements = Sequence[_C.Placement]
implicit_replication = _C.ImplicitReplication

__all__ = [
    "ColwiseParallel", "CommDebugMode", "DTensor", "DeviceMesh", "FSDPModule",
    "MixedPrecisionPolicy", "ParallelStyle", "Partial", "Placement", "PrepareModuleInput",
    "PrepareModuleInputOutput", "PrepareModuleOutput", "Replicate", "RowwiseParallel",
    "SequenceParallel", "Shard", "checkpoint", "distribute_module", "distribute_tensor",
    "empty", "full", "fully_shard", "implicit_replication", "init_device_mesh", "local_map",
    "loss_parallel", "ones", "parallelize_module", "rand", "randn", "zeros"]


# --- types: what they make is ours, and isinstance() knows it

class _Kind(type):
    """A class whose objects are placements of one kind."""
    make: Callable[..., _C.Placement]
    kinds: tuple[str, ...]

    def __call__(cls, *args: Any, **kwargs: Any) -> Any:
        return cls.make(*args, **kwargs)

    def __instancecheck__(cls, value: Any) -> bool:
        return type(value) is _C.Placement and value.kind in cls.kinds


class Shard(metaclass=_Kind):
    """Cuts a tensor dim.

    >>> import tessera.torch_compat as dt
    >>> isinstance(dt.Shard(0), dt.Shard), dt.Shard(0).dim
    (True, 0)
    """
    make, kinds = _C.Shard, ("shard", "strided_shard", "ragged_shard")


class Replicate(metaclass=_Kind):
    """Holds the whole tensor on every rank.

    >>> import tessera.torch_compat as dt
    >>> dt.Replicate() == tessera.Replicate()
    True
    """
    make, kinds = _C.Replicate, ("replicate",)


class Partial(metaclass=_Kind):
    """Holds one addend on every rank.

    >>> import tessera.torch_compat as dt
    >>> dt.Partial("max").reduce_op
    'max'
    """
    make, kinds = _C.Partial, ("partial",)


class _Mesh(type):
    def __call__(cls, device_type: str, mesh: Any, *,
                 mesh_dim_names: Optional[Sequence[str]] = None) -> Any:
        ranks = torch.as_tensor(mesh)
        if dist.is_available() and dist.is_initialized():
            from torch.distributed.device_mesh import DeviceMesh as TorchMesh
            return torch_dtensor._our_mesh(TorchMesh(
                device_type, ranks,
                mesh_dim_names=tuple(mesh_dim_names) if mesh_dim_names else None))
        return _C.DeviceMesh(device_type, ranks, list(mesh_dim_names or []))

    def __instancecheck__(cls, value: Any) -> bool:
        return isinstance(value, _C.DeviceMesh)


class DeviceMesh(metaclass=_Mesh):
    """An arrangement of ranks: those of torch.distributed, where that is running.

    >>> import tessera.torch_compat as dt
    >>> dt.DeviceMesh("cpu", [[0]], mesh_dim_names=("dp", "tp")).mesh_dim_names
    ('dp', 'tp')
    """


def init_device_mesh(device_type: str, mesh_shape: Sequence[int], *,
                     mesh_dim_names: Optional[Sequence[str]] = None) -> _C.DeviceMesh:
    """Arranges all ranks row-major.

    >>> import tessera.torch_compat as dt
    >>> dt.init_device_mesh("cpu", (1,), mesh_dim_names=("tp",)).get_local_rank("tp")
    0
    """
    if not (dist.is_available() and dist.is_initialized()):
        _C.init()
        return _C.init_device_mesh(device_type, list(mesh_shape), list(mesh_dim_names or []))
    ranks = torch.arange(torch.Size(mesh_shape).numel()).reshape(tuple(mesh_shape))
    return DeviceMesh(device_type, ranks, mesh_dim_names=mesh_dim_names)


class _Sharded(type(torch.Tensor)):
    def __instancecheck__(cls, value: Any) -> bool:
        return isinstance(value, torch.Tensor) and _C.is_dtensor(value)


class DTensor(torch.Tensor, metaclass=_Sharded):
    """A sharded tensor: a torch.Tensor whose data are shards on the ranks of a mesh.

    >>> import tessera.torch_compat as dt
    >>> t = dt.DTensor.from_local(torch.ones(2), mesh, [dt.Shard(0)])
    >>> t.shape, t.placements, t.device_mesh == mesh
    (torch.Size([2]), (S(0),), True)
    """

    @staticmethod
    def from_local(local_tensor: torch.Tensor,
                   device_mesh: Optional[_C.DeviceMesh] = None,
                   placements: Optional[Placements] = None, *, run_check: bool = False,
                   shape: Optional[Sequence[int]] = None,
                   stride: Optional[Sequence[int]] = None,
                   grad_placements: Optional[Placements] = None) -> torch.Tensor:
        mesh = _mesh(device_mesh)
        return _C.from_local(
            local_tensor, mesh, _or_whole(placements, mesh), run_check=run_check,
            shape=None if shape is None else list(shape),
            stride=None if stride is None else list(stride),
            grad_placements=_listed(grad_placements))


def _mesh(mesh: Optional[_C.DeviceMesh]) -> _C.DeviceMesh:
    return _C.current_mesh() if mesh is None else mesh


def _listed(placements: Optional[Placements]) -> Optional[list[_C.Placement]]:
    return None if placements is None else list(placements)


def _or_whole(placements: Optional[Placements],
              mesh: _C.DeviceMesh) -> list[_C.Placement]:
    return [_C.Replicate()] * mesh.ndim if placements is None else list(placements)


# --- functions

def distribute_tensor(tensor: torch.Tensor, device_mesh: Optional[_C.DeviceMesh] = None,
                      placements: Optional[Placements] = None, *,
                      src_data_rank: Optional[int] = 0) -> torch.Tensor:
    """Shards a tensor that holds the global value.

    >>> import tessera.torch_compat as dt
    >>> dt.distribute_tensor(torch.ones(2), device_mesh=mesh).placements
    (R,)
    """
    mesh = _mesh(device_mesh)
    return _C.distribute_tensor(tensor, mesh, _or_whole(placements, mesh),
                                src_data_rank=src_data_rank)


def distribute_module(
        module: nn.Module, device_mesh: Optional[_C.DeviceMesh] = None,
        partition_fn: Optional[modules.PartitionFn] = None,
        input_fn: Optional[modules.InputFn] = None,
        output_fn: Optional[modules.OutputFn] = None) -> nn.Module:
    """Puts a module on a mesh.

    >>> import tessera.torch_compat as dt
    >>> dt.distribute_module(torch.nn.Linear(2, 2), mesh).weight.placements
    (R,)
    """
    return modules.distribute_module(
        module, _mesh(device_mesh), partition_fn, input_fn, output_fn)


def parallelize_module(
        module: nn.Module, device_mesh: Optional[_C.DeviceMesh] = None,
        parallelize_plan: Union[ParallelStyle, Mapping[str, ParallelStyle], None] = None, *,
        src_data_rank: Optional[int] = 0) -> nn.Module:
    """Makes a module parallel by a plan.

    >>> import tessera.torch_compat as dt
    >>> dt.parallelize_module(torch.nn.Linear(2, 2), mesh, dt.ColwiseParallel()).bias.placements
    (S(0),)
    """
    return parallel.parallelize_module(
        module, device_mesh, parallelize_plan, src_data_rank=src_data_rank)


def local_map(func: Optional[Callable[..., Any]] = None, out_placements: Any = None,
              in_placements: Optional[Sequence[Optional[Placements]]] = None,
              in_grad_placements: Optional[Sequence[Optional[Placements]]] = None,
              device_mesh: Optional[_C.DeviceMesh] = None, *,
              redistribute_inputs: bool = False) -> Callable[..., Any]:
    """Makes a function of shards one of sharded tensors.

    >>> import tessera.torch_compat as dt
    >>> f = dt.local_map(torch.neg, [dt.Shard(0)], device_mesh=mesh)
    >>> f(dt.ones(2, device_mesh=mesh, placements=[dt.Shard(0)])).placements
    (S(0),)
    """
    return parallel.local_map(
        func, out_placements, in_placements, in_grad_placements, device_mesh,
        redistribute_inputs=redistribute_inputs)


def _factory(name: str, filled: bool = False) -> Callable[..., torch.Tensor]:
    make = getattr(_C, name)

    def factory(*size: Any, dtype: Optional[torch.dtype] = None,
                layout: torch.layout = torch.strided, requires_grad: bool = False,
                device_mesh: Optional[_C.DeviceMesh] = None,
                placements: Optional[Placements] = None, **fill: Any) -> torch.Tensor:
        if layout is not torch.strided:
            raise ValueError(f"{name}: the layout must be strided; got {layout}")
        mesh = _mesh(device_mesh)
        value: tuple[Any, ...] = ()
        if filled:
            value = (fill.pop("fill_value") if "fill_value" in fill else size[1],)
            size = size[:1]
        if fill:
            raise TypeError(f"{name}: there is no argument {next(iter(fill))}")
        sizes = size[0] if len(size) == 1 and isinstance(size[0], Sequence) else size
        return make(list(sizes), *value, mesh, _or_whole(placements, mesh), dtype=dtype,
                    requires_grad=requires_grad)

    factory.__name__ = name
    factory.__doc__ = f"""{name}(*size, dtype, requires_grad, device_mesh, placements), as
    tessera.{name}.

    >>> import tessera.torch_compat as dt
    >>> dt.{name}((4, 2), {'3, ' if filled else ''}device_mesh=mesh).shape
    torch.Size([4, 2])
    """
    return factory


zeros, ones, empty = _factory("zeros"), _factory("ones"), _factory("empty")
rand, randn, full = _factory("rand"), _factory("randn"), _factory("full", filled=True)


def _save(state_dict: dict[str, Any], *, checkpoint_id: Any) -> None:
    _checkpoint.save(state_dict, checkpoint_id, format="dcp", overwrite=True)


def _load(state_dict: dict[str, Any], *, checkpoint_id: Any) -> None:
    _checkpoint.load(state_dict, checkpoint_id)


# Of torch.distributed.checkpoint, with its files.
checkpoint = types.SimpleNamespace(save=_save, load=_load)


dtensor_methods.install()
