"""Plans of parallel modules, functions of shards, cut vocabularies."""
import contextlib
from fnmatch import fnmatchcase
from typing import Any, Callable, Iterator, Mapping, Optional, Sequence, Union

import torch
from torch import nn
from torch.utils import _pytree

from . import _C
from .parallel_style import ParallelStyle, StyledModule
from .styles import ParameterParallel

Style = Union[ParallelStyle, ParameterParallel]
Placements = Union[str, Sequence[_C.Placement]]


def _mesh_dim(mesh: _C.DeviceMesh, asked: Optional[str]) -> int:
    names = list(mesh.dim_names)
    if asked is not None and asked not in names:
        raise ValueError(f"parallelize_module: {mesh} has no dim \"{asked}\"; name one "
                         "of its dims")
    name = "tp" if asked is None else asked
    return names.index(name) if name in names else mesh.ndim - 1


def _modules_at(root: nn.Module, path: str, style: str) -> list[tuple[str, nn.Module]]:
    """Returns the modules that a path with globs names; one that names none is an error."""
    found = [("", root)]
    for part in path.split(".") if path else []:
        above, found = found, []
        for at, module in above:
            found += [(f"{at}.{name}" if at else name, child)
                      for name, child in module.named_children()
                      if fnmatchcase(name, part)]
        if not found:
            names = [f"{at}.{name}" if at else name
                     for at, module in above for name, _ in module.named_children()]
            raise ValueError(
                f"parallelize_module, {style}: no module has the name \"{path}\"; there "
                f"are: {', '.join(names) or 'none'}")
    return found


def _parameters_at(
        root: nn.Module, path: str, style: str) -> list[tuple[str, torch.Tensor]]:
    above, _, last = path.rpartition(".")
    found, names = [], []
    for at, module in _modules_at(root, above, style):
        for name, parameter in module.named_parameters(recurse=False):
            full = f"{at}.{name}" if at else name
            names.append(full)
            if fnmatchcase(name, last):
                found.append((full, parameter))
    if not found:
        raise ValueError(
            f"parallelize_module, {style}: no parameter has the name \"{path}\"; there "
            f"are: {', '.join(names) or 'none'}")
    return found


class _Plan:
    """What all styles of a plan want, before anything is touched."""

    def __init__(self, root: nn.Module, mesh: _C.DeviceMesh, mesh_dim: int,
                 src_data_rank: Optional[int]) -> None:
        self.root, self.mesh, self.mesh_dim = root, mesh, mesh_dim
        self.src_data_rank = src_data_rank
        self.targets: list[StyledModule] = []
        self.parameters: list[tuple[str, torch.Tensor, ParameterParallel]] = []
        self.placed: dict[int, tuple[_C.Placement, str]] = {}

    def add(self, path: str, style: Style) -> None:
        name = type(style).__name__
        if isinstance(style, ParameterParallel):
            for full, parameter in _parameters_at(self.root, path, name):
                self._claim(parameter, style.placement, full, name)
                self.parameters.append((full, parameter, style))
        elif isinstance(style, ParallelStyle):
            style.src_data_rank = self.src_data_rank
            for full, module in _modules_at(self.root, path, name):
                target = StyledModule(module, self.mesh, self.mesh_dim, full, name,
                                      self.src_data_rank)
                style.apply(target)
                for parameter_path, tensor, placement in target._placed:
                    self._claim(tensor, placement, parameter_path, name)
                self.targets.append(target)
        else:
            raise TypeError(
                "parallelize_module: the plan must be a style, or a dict of paths and "
                f"styles; got {type(style).__name__} for \"{path}\"")

    def _claim(self, tensor: torch.Tensor, placement: _C.Placement, path: str,
               style: str) -> None:
        before, by = self.placed.setdefault(id(tensor), (placement, path))
        if before != placement:
            raise ValueError(
                f"parallelize_module, {style}: another style of the plan has placed {path}, "
                f"as {before} by \"{by}\", and this one would as {placement}; name it once")
        if _C.is_dtensor(tensor) and by == path:
            raise ValueError(
                f"parallelize_module, {style}: the parameter is sharded already; got {path}, "
                f"{_C.spec(tensor)}; parallelize a module once")

    def commit(self) -> None:
        for full, parameter, style in self.parameters:
            _C._place_parameter(full, parameter, self.mesh, self.mesh_dim,
                                style.placement, style.layouts())
        for target in self.targets:
            target.commit()


def parallelize_module(
        module: nn.Module, mesh: Optional[_C.DeviceMesh] = None,
        plan: Union[Style, Mapping[str, Style], None] = None, *,
        mesh_dim: Optional[str] = None,
        src_data_rank: Optional[int] = 0) -> nn.Module:
    """Makes a module parallel by a plan, in place, and returns it.

    The plan is one style, for the module itself, or a dict of paths and styles; parts of a
    path may be globs. It is checked as a whole before anything is touched. What it does not
    name stays as it is: distribute_module(module, mesh) replicates that.

    >>> net = torch.nn.Sequential(torch.nn.Linear(4, 8), torch.nn.Linear(8, 4))
    >>> net = tessera.parallelize_module(net, mesh, {
    ...     "0": tessera.ColwiseParallel(), "1": tessera.RowwiseParallel()})
    >>> net(torch.ones(2, 4)).shape, tessera.placements(net[1].weight)
    (torch.Size([2, 4]), [S(1)])
    """
    on = _C.current_mesh() if mesh is None else mesh
    if plan is None:
        raise ValueError("parallelize_module: there is no plan; give a style, or a dict of "
                         "paths and styles")
    wanted = _Plan(module, on, _mesh_dim(on, mesh_dim), src_data_rank)
    for path, style in (plan if isinstance(plan, Mapping) else {"": plan}).items():
        wanted.add(path, style)
    wanted.commit()
    return module


@contextlib.contextmanager
def loss_parallel() -> Iterator[None]:
    """Inside `with`, cross entropy works on logits that are cut along their classes, and
    plain targets are taken as replicated: PyTorch's name for LossParallel.

    >>> logits = tessera.ones([2, 4], mesh, "S(1)", requires_grad=True)
    >>> with tessera.loss_parallel():
    ...     torch.nn.functional.cross_entropy(logits, torch.tensor([0, 1])).backward()
    """
    with _C.LossParallel(), _C.ImplicitReplication():
        yield


def _per_result(out_placements: Any) -> list[Optional[Placements]]:
    """A tuple has placements, or None, per result; anything else is for one result."""
    if isinstance(out_placements, tuple) and not all(
            isinstance(p, _C.Placement) for p in out_placements):
        return list(out_placements)
    return [out_placements]


def local_map(
        fn: Optional[Callable[..., Any]] = None, out_placements: Any = None,
        in_placements: Optional[Sequence[Optional[Placements]]] = None,
        in_grad_placements: Optional[Sequence[Optional[Placements]]] = None,
        mesh: Optional[_C.DeviceMesh] = None, *, redistribute_inputs: bool = False,
        out_shapes: Optional[Sequence[Sequence[int]]] = None) -> Callable[..., Any]:
    """Returns a function of sharded tensors that calls `fn` on this rank's parts and puts
    its results together; without `fn` a decorator. Differentiable.

    There are placements per argument and per result, None where it is no sharded tensor;
    a tuple of `out_placements` is for several results. Without in_placements arguments are
    taken as they come, without mesh that of the first one counts; a call without sharded
    arguments is just made.

    >>> @tessera.local_map(out_placements=[tessera.Shard(0)])
    ... def twice(part):
    ...     return 2 * part
    >>> twice(tessera.ones([2], mesh, "S(0)")).sum().item()
    4.0
    """
    if fn is None:
        return lambda function: local_map(
            function, out_placements, in_placements, in_grad_placements, mesh,
            redistribute_inputs=redistribute_inputs, out_shapes=out_shapes)

    def mapped(*args: Any, **kwargs: Any) -> Any:
        values, structure = _pytree.tree_flatten(args)
        for what, given in (("in_placements", in_placements),
                            ("in_grad_placements", in_grad_placements)):
            if given is not None and len(given) != len(values):
                raise ValueError(
                    f"local_map: there must be an entry of {what} per argument; got "
                    f"{len(given)} for {len(values)}")
        sharded = [i for i, value in enumerate(values)
                   if isinstance(value, torch.Tensor) and _C.is_dtensor(value)]
        if not sharded:
            return fn(*args, **kwargs)
        wanted = _per_result(out_placements)
        results: list[Any] = []
        result_structure: Any = None

        def on_parts(parts: list[torch.Tensor]) -> list[torch.Tensor]:
            nonlocal results, result_structure
            local = list(values)
            for i, part in zip(sharded, parts):
                local[i] = part
            results, result_structure = _pytree.tree_flatten(
                fn(*_pytree.tree_unflatten(local, structure), **kwargs))
            if len(results) != len(wanted):
                raise ValueError(
                    "local_map: there must be out_placements per result; got "
                    f"{len(wanted)} for {len(results)}")
            for i, (result, placements) in enumerate(zip(results, wanted)):
                if isinstance(result, torch.Tensor) != (placements is not None):
                    raise ValueError(
                        f"local_map: result {i} is {type(result).__name__} and its "
                        f"out_placements are {placements}; a tensor needs some, anything "
                        "else None")
            return [r for r, p in zip(results, wanted) if p is not None]

        put_together = iter(_C._local_map(
            on_parts, [values[i] for i in sharded],
            [p for p in wanted if p is not None],
            [_C.placements(values[i]) if in_placements is None else in_placements[i]
             for i in sharded],
            [] if in_grad_placements is None
            else [in_grad_placements[i] for i in sharded],
            _C.device_mesh(values[sharded[0]]) if mesh is None else mesh,
            redistribute_inputs, list(out_shapes or [])))
        return _pytree.tree_unflatten(
            [r if p is None else next(put_together) for r, p in zip(results, wanted)],
            result_structure)

    return mapped
