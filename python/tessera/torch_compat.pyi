"""Types of tessera.torch_compat; what each name does stands in its docstring."""
from collections import Counter
from contextlib import AbstractContextManager
from types import TracebackType
from typing import Any, Callable, Mapping, Optional, Sequence, TypeVar, Union, overload

import torch
from torch import nn

from . import (ColwiseParallel as ColwiseParallel, CommLog, ParallelStyle as ParallelStyle,
               Placement as Placement, PrepareModuleInput as PrepareModuleInput,
               PrepareModuleInputOutput as PrepareModuleInputOutput,
               PrepareModuleOutput as PrepareModuleOutput,
               RowwiseParallel as RowwiseParallel, SequenceParallel as SequenceParallel,
               loss_parallel as loss_parallel)
from . import DeviceMesh as _Mesh, ImplicitReplication as implicit_replication

_Placements = Sequence[Placement]
_Call = TypeVar("_Call", bound=Callable[..., Any])
_Module = TypeVar("_Module", bound=nn.Module)

class Shard(Placement):
    def __init__(self, dim: int) -> None: ...

class Replicate(Placement):
    def __init__(self) -> None: ...

class Partial(Placement):
    def __init__(self, reduce_op: str = "sum") -> None: ...

class DeviceMesh(_Mesh):
    def __init__(self, device_type: str, mesh: Any, *,
                 mesh_dim_names: Optional[Sequence[str]] = None) -> None: ...
    @property
    def mesh_dim_names(self) -> Optional[tuple[str, ...]]: ...
    @property
    def mesh(self) -> torch.Tensor: ...
    def __getitem__(self, dims: Union[str, Sequence[str]]) -> DeviceMesh: ...
    def __enter__(self) -> DeviceMesh: ...
    def __exit__(self, kind: Optional[type[BaseException]], value: Optional[BaseException],
                 trace: Optional[TracebackType]) -> None: ...
    def get_rank(self) -> int: ...
    def get_coordinate(self) -> Optional[list[int]]: ...
    def get_local_rank(self, mesh_dim: Optional[Union[int, str]] = None) -> int: ...
    def get_group(self, mesh_dim: Optional[Union[int, str]] = None) -> Any: ...

def init_device_mesh(device_type: str, mesh_shape: Sequence[int], *,
                     mesh_dim_names: Optional[Sequence[str]] = None) -> DeviceMesh: ...

class DTensor(torch.Tensor):
    @staticmethod
    def from_local(local_tensor: torch.Tensor, device_mesh: Optional[_Mesh] = None,
                   placements: Optional[_Placements] = None, *, run_check: bool = False,
                   shape: Optional[Sequence[int]] = None,
                   stride: Optional[Sequence[int]] = None,
                   grad_placements: Optional[_Placements] = None) -> DTensor: ...
    @property
    def placements(self) -> tuple[Placement, ...]: ...
    @property
    def device_mesh(self) -> DeviceMesh: ...
    def redistribute(self, device_mesh: Optional[_Mesh] = None,
                     placements: Optional[_Placements] = None, *, async_op: bool = False,
                     forward_dtype: Optional[torch.dtype] = None,
                     backward_dtype: Optional[torch.dtype] = None) -> DTensor: ...
    def to_local(self, *, grad_placements: Optional[_Placements] = None) -> torch.Tensor: ...
    def full_tensor(self, *,
                    grad_placements: Optional[_Placements] = None) -> torch.Tensor: ...

def distribute_tensor(tensor: torch.Tensor, device_mesh: Optional[_Mesh] = None,
                      placements: Optional[_Placements] = None, *,
                      src_data_rank: Optional[int] = 0) -> DTensor: ...
def distribute_module(
    module: nn.Module, device_mesh: Optional[_Mesh] = None,
    partition_fn: Optional[Callable[[str, nn.Module, Any], None]] = None,
    input_fn: Optional[Callable[[nn.Module, Any, Any], Any]] = None,
    output_fn: Optional[Callable[[nn.Module, Any, Any], Any]] = None) -> nn.Module: ...
def parallelize_module(
    module: nn.Module, device_mesh: Optional[_Mesh] = None,
    parallelize_plan: Union[ParallelStyle, Mapping[str, ParallelStyle], None] = None, *,
    src_data_rank: Optional[int] = 0) -> nn.Module: ...

class MixedPrecisionPolicy:
    param_dtype: Optional[torch.dtype]
    reduce_dtype: Optional[torch.dtype]
    output_dtype: Optional[torch.dtype]
    cast_forward_inputs: bool
    def __init__(self, param_dtype: Optional[torch.dtype] = None,
                 reduce_dtype: Optional[torch.dtype] = None,
                 output_dtype: Optional[torch.dtype] = None,
                 cast_forward_inputs: bool = True) -> None: ...

class FSDPModule(nn.Module): ...

def fully_shard(module: _Module, *, mesh: Optional[_Mesh] = None,
                reshard_after_forward: Optional[bool] = None,
                shard_placement_fn: Optional[
                    Callable[[nn.Parameter], Optional[Placement]]] = None,
                mp_policy: MixedPrecisionPolicy = ...,
                ignored_params: Optional[set[nn.Parameter]] = None) -> _Module: ...
@overload
def local_map(func: _Call, out_placements: Any = None,
              in_placements: Optional[Sequence[Optional[_Placements]]] = None,
              in_grad_placements: Optional[Sequence[Optional[_Placements]]] = None,
              device_mesh: Optional[_Mesh] = None, *,
              redistribute_inputs: bool = False) -> _Call: ...
@overload
def local_map(func: None = None, out_placements: Any = None,
              in_placements: Optional[Sequence[Optional[_Placements]]] = None,
              in_grad_placements: Optional[Sequence[Optional[_Placements]]] = None,
              device_mesh: Optional[_Mesh] = None, *, redistribute_inputs: bool = False,
              ) -> Callable[[_Call], _Call]: ...
def zeros(*size: Any, dtype: Optional[torch.dtype] = None, layout: torch.layout = ...,
          requires_grad: bool = False, device_mesh: Optional[_Mesh] = None,
          placements: Optional[_Placements] = None) -> DTensor: ...
def ones(*size: Any, dtype: Optional[torch.dtype] = None, layout: torch.layout = ...,
         requires_grad: bool = False, device_mesh: Optional[_Mesh] = None,
         placements: Optional[_Placements] = None) -> DTensor: ...
def empty(*size: Any, dtype: Optional[torch.dtype] = None, layout: torch.layout = ...,
          requires_grad: bool = False, device_mesh: Optional[_Mesh] = None,
          placements: Optional[_Placements] = None) -> DTensor: ...
def rand(*size: Any, dtype: Optional[torch.dtype] = None, layout: torch.layout = ...,
         requires_grad: bool = False, device_mesh: Optional[_Mesh] = None,
         placements: Optional[_Placements] = None) -> DTensor: ...
def randn(*size: Any, dtype: Optional[torch.dtype] = None, layout: torch.layout = ...,
          requires_grad: bool = False, device_mesh: Optional[_Mesh] = None,
          placements: Optional[_Placements] = None) -> DTensor: ...
def full(size: Sequence[int], fill_value: Union[bool, int, float, complex], *,
         dtype: Optional[torch.dtype] = None, layout: torch.layout = ...,
         requires_grad: bool = False, device_mesh: Optional[_Mesh] = None,
         placements: Optional[_Placements] = None) -> DTensor: ...

class _Checkpoint:
    def save(self, state_dict: dict[str, Any], *, checkpoint_id: Any) -> None: ...
    def load(self, state_dict: dict[str, Any], *, checkpoint_id: Any) -> None: ...

checkpoint: _Checkpoint

class CommDebugMode(AbstractContextManager["CommDebugMode"]):
    log: CommLog
    def __init__(self) -> None: ...
    def __exit__(self, kind: Optional[type[BaseException]], value: Optional[BaseException],
                 trace: Optional[TracebackType]) -> None: ...
    def get_total_counts(self) -> int: ...
    def get_comm_counts(self) -> Counter[Any]: ...
    @property
    def comm_module_counts(self) -> dict[str, dict[str, Counter[Any]]]: ...
