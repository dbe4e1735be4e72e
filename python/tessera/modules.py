"""Modules and optimizers of Python on a mesh."""
from typing import Any, Callable, Iterable, Mapping, Optional, Union

import torch
from torch import nn

from . import _C

PartitionFn = Callable[[str, nn.Module, _C.DeviceMesh], None]
InputFn = Callable[[nn.Module, Any, _C.DeviceMesh], Any]
OutputFn = Callable[[nn.Module, Any, _C.DeviceMesh], Any]


def distribute_module(
        module: nn.Module, mesh: _C.DeviceMesh,
        partition_fn: Optional[PartitionFn] = None,
        input_fn: Optional[InputFn] = None,
        output_fn: Optional[OutputFn] = None) -> nn.Module:
    """Puts a module on a mesh, its parameters in place, and returns it.

    partition_fn(name, submodule, mesh) shards what it wants by make_dtensor_; what
    is still plain then is replicated. input_fn(module, args, mesh) maps the
    arguments of forward(), output_fn(module, result, mesh) its result.

    >>> def cut(name, part, mesh):
    ...     if isinstance(part, torch.nn.Linear):
    ...         tessera.make_dtensor_(part.weight, mesh, [tessera.Shard(0)])
    >>> net = tessera.distribute_module(torch.nn.Linear(4, 2), mesh, cut)
    >>> tessera.placements(net.weight), tessera.placements(net.bias)
    ([S(0)], [R])
    """
    everywhere = [_C.Replicate()] * mesh.ndim
    for name, part in module.named_modules():
        if partition_fn:
            partition_fn(name, part, mesh)
        for tensor in [*part.parameters(False), *part.buffers(False)]:
            if not _C.is_dtensor(tensor):
                _C.make_dtensor_(tensor, mesh, everywhere)
    for name, parameter in module.named_parameters():
        _C.name_tensor(parameter, name)
    if input_fn:
        module.register_forward_pre_hook(
            lambda part, args: input_fn(part, args, mesh))
    if output_fn:
        module.register_forward_hook(
            lambda part, args, result: output_fn(part, result, mesh))
    return module


def distribute_optimizer(optimizer: torch.optim.Optimizer) -> None:
    """Gives the state of sharded parameters the layout of its parameter.

    Needed only where the optimizer stepped before they were sharded.

    >>> w = torch.ones(4, requires_grad=True)
    >>> optimizer = torch.optim.Adam([w])
    >>> w.sum().backward()
    >>> optimizer.step()
    >>> tessera.make_dtensor_(w, mesh, [tessera.Shard(0)])
    >>> tessera.distribute_optimizer(optimizer)
    >>> tessera.placements(optimizer.state[w]["exp_avg"])
    [S(0)]
    """
    for parameter, state in optimizer.state.items():
        if not _C.is_dtensor(parameter):
            continue
        mesh, placements = _C.device_mesh(parameter), _C.placements(parameter)
        for key, value in state.items():
            if (isinstance(value, torch.Tensor) and not _C.is_dtensor(value)
                    and value.shape == parameter.shape and value.dim() > 0):
                state[key] = _C.distribute_tensor(value, mesh, placements)


def materialize(module: Union[nn.Module, torch.Tensor]) -> None:
    """Gives what was made under a DeferredInit its values, whole and plain, in place.

    Takes a module or one tensor; what has values already stays.

    >>> with tessera.DeferredInit():
    ...     layer = torch.nn.Linear(2, 2)
    >>> tessera.materialize(layer)
    >>> layer(torch.ones(1, 2)).shape
    torch.Size([1, 2])
    """
    if isinstance(module, torch.Tensor):
        _C._materialize(module)
        return
    for tensor in [*module.parameters(), *module.buffers()]:
        _C._materialize(tensor)


Named = Union[nn.Module, Mapping[str, torch.Tensor],
              Iterable[tuple[str, torch.Tensor]]]


def check_replicas(tensors: Named, *, tolerance: float = 0.0) -> None:
    """Compares values and gradients over the ranks that should hold them alike.

    Takes a module, a dict, or pairs of name and tensor; all ranks give the same. A
    difference is the same error on all of them.

    >>> tessera.check_replicas({"w": tessera.ones([2], mesh, "R")})
    """
    if isinstance(tensors, nn.Module):
        tensors = [*tensors.named_parameters(), *tensors.named_buffers()]
    elif isinstance(tensors, Mapping):
        tensors = tensors.items()
    _C._check_replicas(list(tensors), tolerance)
