"""PyTorch's earlier API for sharded tensors, on the same parts: specs say which boxes a
tensor is cut into and who holds them, a ShardedTensor has the shards of this rank. Its Shard
is a type, not the placement. docs/07_sharded_tensor.md

>>> spec = tessera.sharded_tensor.ChunkShardingSpec(0, ["rank:0/cpu"])
>>> t = tessera.sharded_tensor.shard_tensor(torch.arange(4.0), spec)
>>> (t * 2).local_tensor()
tensor([0., 2., 4., 6.])
"""
from abc import ABC, abstractmethod
from dataclasses import dataclass, field
from typing import Any, Optional, Union

import torch
from torch import nn

from . import _C
from ._C._sharded_tensor import *  # noqa: F403

_family = _C._sharded_tensor
ShardingSpec = _family.ShardingSpec
ProcessGroup = _family.ProcessGroup


class Sharder(ABC):
    """Shards a whole module in a way of its own.

    >>> class Freeze(tessera.sharded_tensor.Sharder):
    ...     def shard(self, module):
    ...         return module.requires_grad_(False)
    """

    @abstractmethod
    def shard(self, module: nn.Module) -> nn.Module:
        """Returns the module that takes the place of this one."""


@dataclass
class ShardingPlan:
    """How a module is sharded: specs by paths of parameters, or Sharders by paths of
    modules; specs of outputs by paths of modules; modules whose output is this rank's shard.

    >>> spec = tessera.sharded_tensor.ChunkShardingSpec(0, ["rank:0/cpu"])
    >>> plan = tessera.sharded_tensor.ShardingPlan({"weight": spec}, return_local_tensor=[""])
    """

    plan: dict[str, Union[ShardingSpec, Sharder]]
    output_plan: dict[str, ShardingSpec] = field(default_factory=dict)
    return_local_tensor: list[str] = field(default_factory=list)


class ShardingPlanner(ABC):
    """Makes a plan for a module.

    >>> class Nothing(tessera.sharded_tensor.ShardingPlanner):
    ...     def build_plan(self, module):
    ...         return tessera.sharded_tensor.ShardingPlan({})
    """

    @abstractmethod
    def build_plan(self, module: nn.Module) -> ShardingPlan:
        """Returns the plan."""


def reshard_output(output: Union[nn.Module, torch.Tensor], spec: ShardingSpec,
                   process_group: Optional[ProcessGroup] = None) -> Any:
    """Cuts a tensor with placements as the spec says; of a module the result of every call.

    >>> spec = tessera.sharded_tensor.ChunkShardingSpec(0, ["rank:0/cpu"])
    >>> tessera.placements(
    ...     tessera.sharded_tensor.reshard_output(tessera.ones([4], mesh, "S(0)"), spec))
    [S(0)]
    """
    if isinstance(output, nn.Module):
        output.register_forward_hook(
            lambda _, args, result: reshard_output(result, spec, process_group))
        return output
    return _family._reshard_output(output, spec, process_group)


def collect_local_shard(output: Union[nn.Module, torch.Tensor]) -> Any:
    """Returns this rank's shard, plain; of a module the result of every call.

    >>> tessera.sharded_tensor.collect_local_shard(tessera.ones([2], mesh, "S(0)"))
    tensor([1., 1.])
    """
    if isinstance(output, nn.Module):
        output.register_forward_hook(lambda _, args, result: collect_local_shard(result))
        return output
    return _family._collect_local_shard(output)


def _check(module: nn.Module, plan: ShardingPlan) -> None:
    """Names what a plan asks for and the module has not, before anything changes."""
    modules, parameters = dict(module.named_modules()), dict(module.named_parameters())
    for path, entry in plan.plan.items():
        known, what = ((modules, "module") if isinstance(entry, Sharder)
                       else (parameters, "parameter"))
        if not isinstance(entry, (Sharder, ShardingSpec)):
            raise TypeError(
                f"shard_module: \"{path}\" must have a ShardingSpec or a Sharder; got "
                f"{type(entry).__name__}")
        if path not in known:
            raise ValueError(
                f"shard_module: \"{path}\" names no {what}; there are "
                f"{', '.join(filter(None, known)) or 'none'}")
    for path in [*plan.output_plan, *plan.return_local_tensor]:
        if path not in modules:
            raise ValueError(
                f"shard_module: \"{path}\" names no module; there are "
                f"{', '.join(filter(None, modules)) or 'none'}")


def shard_module(module: nn.Module, plan: ShardingPlan, src_rank: int = 0,
                 process_group: Optional[ProcessGroup] = None) -> nn.Module:
    """Shards a module by a plan, its parameters in place, and returns it. Sharders run first;
    what the plan says about outputs becomes hooks.

    >>> st = tessera.sharded_tensor
    >>> spec = st.ChunkShardingSpec(0, ["rank:0/cpu"])
    >>> net = st.shard_module(torch.nn.Linear(2, 4), st.ShardingPlan({"weight": spec}))
    >>> tessera.is_dtensor(net.weight)
    True
    """
    _check(module, plan)
    for path, entry in plan.plan.items():
        if isinstance(entry, Sharder):
            above, _, name = path.rpartition(".")
            if not name:
                raise ValueError("shard_module: a Sharder replaces a module inside; name one")
            setattr(module.get_submodule(above), name,
                    entry.shard(module.get_submodule(path)))
    for path, entry in plan.plan.items():
        if isinstance(entry, ShardingSpec):
            above, _, name = path.rpartition(".")
            _family.shard_parameter(
                module.get_submodule(above), name, entry, src_rank, process_group)
    for path, spec in plan.output_plan.items():
        reshard_output(module.get_submodule(path), spec, process_group)
    for path in plan.return_local_tensor:
        collect_local_shard(module.get_submodule(path))
    return module


__all__ = sorted(
    [name for name in vars(_family) if not name.startswith("_")]
    + ["Sharder", "ShardingPlan", "ShardingPlanner", "collect_local_shard",
       "reshard_output", "shard_module"])
