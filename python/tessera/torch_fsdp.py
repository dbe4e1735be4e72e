"""fully_shard of torch.distributed.fsdp, for programs that were written with it: it is called
for each block and then for the whole, with the sub-mesh of the data-parallel dim. Inside a
forward the parameters are what they were before: plain tensors, or tensor-parallel ones on
their own sub-mesh. tessera.fully_shard gathers a group by one call, and ahead.
"""
import contextlib
import dataclasses
import threading
from typing import Any, Callable, Iterator, Optional, Sequence

import torch
from torch import nn
from torch.utils import _pytree

from . import _C

Placements = list[_C.Placement]


@dataclasses.dataclass(frozen=True)
class MixedPrecisionPolicy:
    """The dtypes of a fully sharded module, as in torch.distributed.fsdp.

    >>> import tessera.torch_compat as dt
    >>> dt.MixedPrecisionPolicy(param_dtype=torch.bfloat16).reduce_dtype is None
    True
    """
    param_dtype: Optional[torch.dtype] = None
    reduce_dtype: Optional[torch.dtype] = None
    output_dtype: Optional[torch.dtype] = None
    cast_forward_inputs: bool = True


class _Fsdp(type):
    def __instancecheck__(cls, value: Any) -> bool:
        return isinstance(value, nn.Module) and hasattr(value, "_tessera_fsdp")


class FSDPModule(metaclass=_Fsdp):
    """A module that fully_shard was called for; its class stays as it is.

    >>> import tessera.torch_compat as dt
    >>> isinstance(dt.fully_shard(torch.nn.Linear(2, 2), mesh=mesh), dt.FSDPModule)
    True
    """


class _Member:
    """A parameter of a group: its shard, and how it was before."""

    def __init__(self, before: torch.Tensor, shard: nn.Parameter,
                 cut_dims: Sequence[int]) -> None:
        self.places: list[tuple[nn.Module, str]] = []
        self.shard, self.cut_dims = shard, cut_dims
        self.inner = _C.spec(before) if _C.is_dtensor(before) else None

    def put(self, value: torch.Tensor) -> None:
        """Makes it what the modules see under the parameter's names."""
        for owner, name in self.places:
            owner._parameters[name] = value  # type: ignore[assignment]

    def gathered(self, policy: MixedPrecisionPolicy) -> torch.Tensor:
        placements = list(_C.placements(self.shard))
        gradient = list(placements)
        for dim in self.cut_dims:
            placements[dim], gradient[dim] = _C.Replicate(), _C.Partial("avg")
        inner = self.inner
        if inner is not None:  # what is left of the order of cuts
            kept = list(inner.placements)
            placements[len(self.cut_dims):] = gradient[len(self.cut_dims):] = kept
        whole = _C.redistribute(
            self.shard, placements, forward_dtype=policy.param_dtype,
            backward_dtype=policy.reduce_dtype)
        local = _C.to_local(whole, grad_placements=gradient)
        if inner is None:
            return local
        return _C.from_local(local, inner.mesh, kept, shape=list(self.shard.shape))


class _Saved:
    """A view of a gathered parameter that autograd needs: gathered again when it does."""

    def __init__(self, member: _Member, policy: MixedPrecisionPolicy,
                 view: torch.Tensor) -> None:
        self.member, self.policy = member, policy
        self.spec = _C.spec(view) if _C.is_dtensor(view) else None
        part = _local(view)
        self.geometry = part.shape, part.stride(), part.storage_offset()

    @torch.no_grad()
    def unpacked(self) -> torch.Tensor:
        part = _local(self.member.gathered(self.policy)).as_strided(*self.geometry)
        if self.spec is None:
            return part
        return _C.from_local(part, self.spec.mesh, self.spec.placements,
                             shape=self.spec.shape, stride=self.spec.strides)


def _local(tensor: torch.Tensor) -> torch.Tensor:
    return _C.to_local(tensor.detach()) if _C.is_dtensor(tensor) else tensor


_thread = threading.local()  # how many calls of fully sharded modules are under way


class _Group:
    """The parameters that one call of fully_shard cut."""

    def __init__(self, module: nn.Module, mesh: _C.DeviceMesh,
                 policy: MixedPrecisionPolicy, reshard: Optional[bool]) -> None:
        self.mesh, self.policy, self.reshard = mesh, policy, reshard
        self.members: list[_Member] = []
        self.storages: dict[int, _Member] = {}  # of what is gathered now
        self.calls: list[Any] = []  # that are under way: what each saves for its backward
        module.register_forward_pre_hook(self.before, prepend=True, with_kwargs=True)
        module.register_forward_hook(self.after, always_call=True)

    def before(self, module: nn.Module, args: tuple[Any, ...],
               kwargs: dict[str, Any]) -> tuple[tuple[Any, ...], dict[str, Any]]:
        is_root = _thread.__dict__.setdefault("depth", 0) == 0
        _thread.depth += 1
        saving: Any = contextlib.nullcontext()
        if not is_root if self.reshard is None else self.reshard:
            saving = torch.autograd.graph.saved_tensors_hooks(self.pack, self.unpack)
        self.calls.append(saving)
        saving.__enter__()
        if len(self.calls) == 1:
            self.gather()
        dtype = self.policy.param_dtype if self.policy.cast_forward_inputs else None
        return _cast(args, dtype), _cast(kwargs, dtype)

    def after(self, module: nn.Module, args: Any, result: Any) -> Any:
        self.calls.pop().__exit__(None, None, None)
        _thread.depth -= 1
        if not self.calls:
            self.storages.clear()
            for member in self.members:
                member.put(member.shard)
        return _cast(result, self.policy.output_dtype)

    def gather(self) -> None:
        for member in self.members:
            value = member.gathered(self.policy)
            member.put(value)
            self.storages[_local(value).untyped_storage().data_ptr()] = member

    def pack(self, tensor: torch.Tensor) -> Any:
        part = _local(tensor)
        if part.layout is not torch.strided or part.numel() == 0:
            return tensor
        member = self.storages.get(part.untyped_storage().data_ptr())
        return tensor if member is None else _Saved(member, self.policy, tensor)

    @staticmethod
    def unpack(packed: Any) -> torch.Tensor:
        return packed.unpacked() if isinstance(packed, _Saved) else packed


def _cast(values: Any, dtype: Optional[torch.dtype]) -> Any:
    if dtype is None:
        return values
    return _pytree.tree_map(
        lambda value: value.to(dtype) if isinstance(value, torch.Tensor)
        and value.is_floating_point() else value, values)


def _shard_of(parameter: torch.Tensor, path: str, mesh: _C.DeviceMesh,
              choose: Optional[Callable[..., Any]]) -> nn.Parameter:
    """Cuts a parameter along the last dim of `mesh`; what it is cut by already comes first."""
    placements = [_C.Replicate()] * mesh.ndim
    local, grid = parameter.detach(), mesh
    inner: Placements = []
    if _C.is_dtensor(parameter):
        own = _C.device_mesh(parameter)
        if own == mesh or set(own.dim_names) & set(mesh.dim_names):
            raise ValueError(
                f"fully_shard, {path} on {mesh}: the parameter is on this mesh already; got "
                f"{_C.spec(parameter)}; give fully_shard the sub-mesh of another dim")
        grid = _C.DeviceMesh.concatenate([mesh, own])
        inner = list(_C.placements(parameter))
        local = _C.to_local(parameter.detach())
    whole = _C.from_local(local, grid, placements + inner, shape=list(parameter.shape))
    if parameter.dim() > 0:
        chosen = (choose(parameter) if choose else None) or _C.Shard(0)
        shard = chosen.with_dim(chosen.dim % parameter.dim())
        same = [m for m, p in enumerate(inner) if p.is_shard(shard.dim)]
        for order, m in enumerate(same):
            inner[m] = inner[m].with_order(order)
        placements[-1] = shard.with_order(len(same)) if same else shard
    cut = _C.redistribute(whole, placements + inner)
    return nn.Parameter(cut.detach(), parameter.requires_grad)


def _own_parameters(module: nn.Module, path: str = "") -> Iterator[
        tuple[nn.Module, str, str, nn.Parameter]]:
    """What lies in no module that fully_shard was called for before."""
    for name, parameter in module._parameters.items():
        if parameter is not None:
            yield module, name, path + name, parameter
    for name, child in module._modules.items():
        if child is not None and not hasattr(child, "_tessera_fsdp"):
            yield from _own_parameters(child, f"{path}{name}.")


def fully_shard(module: nn.Module, *, mesh: Optional[_C.DeviceMesh] = None,
                reshard_after_forward: Optional[bool] = None,
                shard_placement_fn: Optional[Callable[..., Any]] = None,
                mp_policy: MixedPrecisionPolicy = MixedPrecisionPolicy(),
                ignored_params: Optional[set[nn.Parameter]] = None) -> nn.Module:
    """Cuts the parameters of a module along the last dim of a mesh, the sub-mesh of the
    data-parallel dims; copies lie along a dim before it. Gradients are averages over the
    mesh, since each rank has a loss of its own. Returns the module.

    >>> import tessera.torch_compat as dt
    >>> net = dt.fully_shard(torch.nn.Linear(4, 2), mesh=mesh)
    >>> net.weight.placements, type(net(torch.ones(3, 4))).__name__
    ((S(0),), 'Tensor')
    """
    if hasattr(module, "_tessera_fsdp"):
        raise ValueError("fully_shard: the module is fully sharded already; call it once "
                         "for each module")
    if mesh is None:
        mesh = _C.init_device_mesh("cpu", [_C.init().size()])
    if mesh.ndim > 2:
        raise ValueError(f"fully_shard: the mesh must have one dim, or two with copies along "
                         f"the first; got {mesh}")
    group = _Group(module, mesh, mp_policy, reshard_after_forward)
    ignored = {id(parameter) for parameter in ignored_params or ()}
    members: dict[int, _Member] = {}
    for owner, name, path, parameter in list(_own_parameters(module)):
        if id(parameter) in ignored:
            continue
        if id(parameter) not in members:
            shard = _shard_of(parameter, path, mesh, shard_placement_fn)
            members[id(parameter)] = _Member(parameter, shard, range(mesh.ndim))
        members[id(parameter)].places.append((owner, name))
    group.members = list(members.values())
    for member in group.members:
        member.put(member.shard)
    module._tessera_fsdp = group  # type: ignore[assignment]
    return module
