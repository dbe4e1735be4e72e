"""Styles of parallel modules, with the arguments of PyTorch's.

A style meets a module at its border: hooks bring what goes in, and what comes out, into
its layouts. Layouts are about one mesh dim, that of the plan; along all others a tensor
stays as it is.
"""
from typing import Any, Callable, Optional, Sequence, Union

import torch
from torch import nn

from . import _C
from .parallel_style import ParallelStyle, Placement, StyledModule

Layouts = Union[Placement, Sequence[Optional[Placement]]]

CONVOLUTIONS = (nn.Conv1d, nn.Conv2d, nn.Conv3d)


def _first(args: tuple, kwargs: dict, fn: Callable[[Any], Any]) -> tuple[tuple, dict]:
    """Maps the first argument, positional or by name."""
    if args:
        return (fn(args[0]), *args[1:]), kwargs
    name = next(iter(kwargs), None)
    return args, kwargs if name is None else {**kwargs, name: fn(kwargs[name])}


class _Layer(ParallelStyle):
    """One input, one result."""
    input_layouts: Optional[Placement]
    output_layouts: Optional[Placement]
    use_local_output: bool

    def _meet(self, target: StyledModule, plain: Placement, wanted: Placement,
              size: Optional[int] = None) -> None:
        target.before(lambda args, kwargs: _first(
            args, kwargs,
            lambda x: target.moved(target.taken(x, plain, size), wanted)))

    def _leave(self, target: StyledModule, layout: Optional[Placement]) -> None:
        def after(result: torch.Tensor) -> torch.Tensor:
            if layout is not None:
                result = target.moved(result, layout)
            return _C.to_local(result) if self.use_local_output else result
        target.after(after)


class ColwiseParallel(_Layer):
    """Cuts a layer by its outputs: Linear and Conv by rows of the weight, Embedding by
    columns. Inputs become replicated, a plain one is this rank's part in `input_layouts`.
    Results stay cut by outputs unless `output_layouts` is given, and are this rank's part,
    a plain tensor, unless use_local_output=False.

    >>> net = tessera.parallelize_module(
    ...     torch.nn.Linear(4, 2), mesh, tessera.ColwiseParallel())
    >>> tessera.placements(net.weight), net(torch.ones(3, 4)).shape
    ([S(0)], torch.Size([3, 2]))
    """

    def __init__(self, *, input_layouts: Optional[Placement] = None,
                 output_layouts: Optional[Placement] = None,
                 use_local_output: bool = True) -> None:
        self.input_layouts = input_layouts or _C.Replicate()
        self.output_layouts = output_layouts
        self.use_local_output = use_local_output

    def apply(self, target: StyledModule) -> None:
        module = target.module
        features = _C.Shard(-1)
        if isinstance(module, nn.Embedding):
            target.shard("weight", _C.Shard(1))
        elif isinstance(module, (nn.Linear, *CONVOLUTIONS)):
            target.shard("weight", _C.Shard(0))
            if target.has("bias"):
                target.shard("bias", _C.Shard(0))
            if isinstance(module, CONVOLUTIONS):
                features = _C.Shard(-len(module.kernel_size) - 1)
        else:
            raise NotImplementedError(
                f"{target.where()}: the style is for Linear, Embedding and Conv1d to 3d; "
                f"got {type(module).__name__}; name the layers in it")
        self._meet(target, self.input_layouts, _C.Replicate())
        self._leave(target, self.output_layouts or features)


class RowwiseParallel(_Layer):
    """Cuts a layer by its inputs: Linear and Conv by columns of the weight, Embedding by
    rows, that is by vocabulary. Each rank has a partial value of the result, which becomes
    `output_layouts`: Replicate() without it. A plain input is this rank's part in
    `input_layouts`: cut by features, or for an Embedding whole.

    >>> net = tessera.parallelize_module(
    ...     torch.nn.Linear(4, 2), mesh, tessera.RowwiseParallel())
    >>> tessera.placements(net.weight), tessera.placements(net.bias)
    ([S(1)], [R])
    """

    def __init__(self, *, input_layouts: Optional[Placement] = None,
                 output_layouts: Optional[Placement] = None,
                 use_local_output: bool = True) -> None:
        self.input_layouts = input_layouts
        self.output_layouts = output_layouts or _C.Replicate()
        self.use_local_output = use_local_output

    def apply(self, target: StyledModule) -> None:
        module = target.module
        if isinstance(module, nn.Embedding):
            target.shard("weight", _C.Shard(0))
            self._meet(target, self.input_layouts or _C.Replicate(), _C.Replicate())
        elif isinstance(module, nn.Linear) or (
                isinstance(module, CONVOLUTIONS) and module.groups == 1):
            target.shard("weight", _C.Shard(1))
            if target.has("bias"):
                target.shard("bias", _C.Replicate())
            dim, size = -1, module.weight.shape[1]
            if isinstance(module, CONVOLUTIONS):
                dim = -len(module.kernel_size) - 1
            cut = _C.Shard(dim)
            plain = self.input_layouts or cut
            # The layer knows how many features there are, also where ranks have
            # different numbers of them.
            self._meet(target, plain, cut, size if plain == cut else None)
        else:
            raise NotImplementedError(
                f"{target.where()}: the style is for Linear, Embedding and Conv1d to 3d "
                f"without groups; got {module}; name the layers in it")
        self._leave(target, self.output_layouts)


class SequenceParallel(_Layer):
    """Keeps a layer whole and gives each rank a part of the sequence: norms and dropout.

    >>> norm = tessera.parallelize_module(
    ...     torch.nn.LayerNorm(4), mesh, tessera.SequenceParallel())
    >>> tessera.placements(norm(torch.ones(2, 3, 4)))
    [S(1)]
    """

    def __init__(self, *, sequence_dim: int = 1,
                 use_local_output: bool = False) -> None:
        self.sequence_dim = sequence_dim
        self.use_local_output = use_local_output

    def apply(self, target: StyledModule) -> None:
        target.replicate()
        cut = _C.Shard(self.sequence_dim)
        self._meet(target, cut, cut)
        self._leave(target, None)


def _listed(layouts: Optional[Layouts]) -> Optional[tuple[Optional[Placement], ...]]:
    if layouts is None:
        return None
    return (layouts,) if isinstance(layouts, Placement) else tuple(layouts)


def _brought(target: StyledModule, value: Any, layout: Optional[Placement],
             desired: Optional[Placement], local: bool) -> Any:
    if layout is None:
        return value
    value = target.taken(value, layout)
    if desired is not None:
        value = target.moved(value, desired)
    return _C.to_local(value) if local else value


class PrepareModuleInput(ParallelStyle):
    """Brings what goes into a module into a layout: plain tensors are this rank's part in
    `input_layouts` and become `desired_input_layouts`; None leaves an argument alone.

    >>> style = tessera.PrepareModuleInput(
    ...     input_layouts=(tessera.Shard(0), None),
    ...     desired_input_layouts=(tessera.Replicate(), None))
    """

    def __init__(self, *, input_layouts: Optional[Layouts] = None,
                 desired_input_layouts: Optional[Layouts] = None,
                 input_kwarg_layouts: Optional[dict[str, Placement]] = None,
                 desired_input_kwarg_layouts: Optional[dict[str, Placement]] = None,
                 use_local_output: bool = False) -> None:
        self.input_layouts = _listed(input_layouts)
        self.desired_input_layouts = _listed(desired_input_layouts)
        self.input_kwarg_layouts = input_kwarg_layouts or {}
        self.desired_input_kwarg_layouts = desired_input_kwarg_layouts or {}
        self.use_local_output = use_local_output
        for layouts, desired in (
                (self.input_layouts or (), self.desired_input_layouts or ()),
                (self.input_kwarg_layouts, self.desired_input_kwarg_layouts)):
            if len(layouts) != len(desired):
                raise ValueError(
                    "PrepareModuleInput: there must be a desired layout per input layout; "
                    f"got {len(layouts)} and {len(desired)}")

    def apply(self, target: StyledModule) -> None:
        def before(args: tuple, kwargs: dict) -> tuple[tuple, dict]:
            if self.input_layouts is not None:
                if len(args) != len(self.input_layouts):
                    raise ValueError(
                        f"{target.where()}: there must be an input layout per argument; "
                        f"got {len(self.input_layouts)} and {len(args)}")
                args = tuple(
                    _brought(target, x, layout, desired, self.use_local_output)
                    for x, layout, desired in zip(
                        args, self.input_layouts, self.desired_input_layouts or ()))
            kwargs = {
                name: _brought(target, x, self.input_kwarg_layouts.get(name),
                               self.desired_input_kwarg_layouts.get(name),
                               self.use_local_output)
                for name, x in kwargs.items()}
            return args, kwargs
        target.before(before)


class PrepareModuleOutput(ParallelStyle):
    """Brings what leaves a module into a layout, as PrepareModuleInput does what goes in.

    >>> style = tessera.PrepareModuleOutput(
    ...     output_layouts=tessera.Partial(), desired_output_layouts=tessera.Replicate())
    """

    def __init__(self, *, output_layouts: Layouts, desired_output_layouts: Layouts,
                 use_local_output: bool = True) -> None:
        self.output_layouts = _listed(output_layouts) or ()
        self.desired_output_layouts = _listed(desired_output_layouts) or ()
        self.use_local_output = use_local_output
        if len(self.output_layouts) != len(self.desired_output_layouts):
            raise ValueError(
                "PrepareModuleOutput: there must be a desired layout per output layout; "
                f"got {len(self.output_layouts)} and {len(self.desired_output_layouts)}")

    def apply(self, target: StyledModule) -> None:
        def after(result: Any) -> Any:
            results = tuple(result) if isinstance(result, (tuple, list)) else (result,)
            if len(results) != len(self.output_layouts):
                raise ValueError(
                    f"{target.where()}: there must be an output layout per result; got "
                    f"{len(self.output_layouts)} and {len(results)}")
            brought = tuple(
                _brought(target, x, layout, desired, self.use_local_output)
                for x, layout, desired in zip(
                    results, self.output_layouts, self.desired_output_layouts))
            return brought if isinstance(result, (tuple, list)) else brought[0]
        target.after(after)


class PrepareModuleInputOutput(ParallelStyle):
    """PrepareModuleInput and PrepareModuleOutput of one module.

    >>> style = tessera.PrepareModuleInputOutput(
    ...     input_layouts=tessera.Shard(1), desired_input_layouts=tessera.Replicate(),
    ...     output_layouts=tessera.Replicate(), desired_output_layouts=tessera.Shard(1))
    """

    def __init__(self, *, input_layouts: Optional[Layouts] = None,
                 desired_input_layouts: Optional[Layouts] = None,
                 input_kwarg_layouts: Optional[dict[str, Placement]] = None,
                 desired_input_kwarg_layouts: Optional[dict[str, Placement]] = None,
                 use_local_input: bool = False, output_layouts: Layouts,
                 desired_output_layouts: Layouts,
                 use_local_output: bool = True) -> None:
        self.prepare_module_input = PrepareModuleInput(
            input_layouts=input_layouts, desired_input_layouts=desired_input_layouts,
            input_kwarg_layouts=input_kwarg_layouts,
            desired_input_kwarg_layouts=desired_input_kwarg_layouts,
            use_local_output=use_local_input)
        self.prepare_module_output = PrepareModuleOutput(
            output_layouts=output_layouts,
            desired_output_layouts=desired_output_layouts,
            use_local_output=use_local_output)

    def apply(self, target: StyledModule) -> None:
        self.prepare_module_input.apply(target)
        self.prepare_module_output.apply(target)


class ParameterParallel:
    """Places one parameter of a module of your own, by its path, and says in which layouts
    the calls that multiply with it should be, wherever they are made.

    >>> class Scale(torch.nn.Module):
    ...     def __init__(self):
    ...         super().__init__()
    ...         self.up = torch.nn.Parameter(torch.ones(4, 6))
    ...     def forward(self, x):
    ...         return x @ self.up
    >>> net = tessera.parallelize_module(Scale(), mesh, {"up": tessera.ParameterParallel(
    ...     tessera.Shard(1), input_layouts=tessera.Replicate())})
    >>> tessera.placements(net(torch.ones(2, 4)))
    [S(1)]
    """

    def __init__(self, placement: Optional[Placement] = None, *,
                 input_layouts: Optional[Placement] = None,
                 output_layouts: Optional[Placement] = None) -> None:
        self.placement = placement or _C.Replicate()
        self.input_layouts, self.output_layouts = input_layouts, output_layouts

    def layouts(self) -> "_C.CallLayouts":
        """In which layouts the calls that use the parameter should be."""
        return _C.CallLayouts(input=self.input_layouts, output=self.output_layouts)
