"""Runs an entry on a sample and compares what comes out."""
import contextlib
import dataclasses

import torch
from torch.utils._pytree import tree_flatten, tree_map


@dataclasses.dataclass
class Outcome:
    """What an entry gives for a sample: outputs, and gradients of its inputs."""

    outputs: list
    strides: list
    wants_grad: list[bool]
    gradients: list | None = None
    # Why there are no gradients, where plain tensors have none.
    refused: str = ""


@dataclasses.dataclass
class Difference:
    phase: str
    kind: str
    text: str


def with_tensors(sample, tensors: list, replaced: list):
    """Returns input, arguments and keywords with other tensors in them."""
    table = {id(old): new for old, new in zip(tensors, replaced)}
    return tree_map(lambda leaf: table.get(id(leaf), leaf),
                    (sample.input, sample.args, sample.kwargs))


def plain_leaves(tensors: list) -> list:
    return [t.detach().clone().requires_grad_(t.requires_grad) for t in tensors]


def call(op, sample, tensors: list, leaves: list):
    """Calls an entry; returns its outputs and those that a gradient starts from."""
    first, args, kwargs = with_tensors(sample, tensors, leaves)
    result = op(first, *args, **kwargs)
    outputs = tree_flatten(result)[0]
    ends = tree_flatten(sample.output_process_fn_grad(result))[0]
    ends = [e for e in ends if isinstance(e, torch.Tensor) and e.requires_grad
            and (e.is_floating_point() or e.is_complex())]
    return outputs, ends


def cotangents(ends: list) -> list:
    """Returns a gradient for each output, the same for the same shapes."""
    draw = torch.Generator().manual_seed(7)
    return [torch.randn(e.shape, dtype=e.dtype, generator=draw) for e in ends]


def gradients(ends: list, leaves: list) -> list:
    wanted = [leaf for leaf in leaves if leaf.requires_grad]
    if not wanted or not ends:
        return []
    return list(torch.autograd.grad(
        ends, wanted, cotangents(ends), allow_unused=True))


def plain_outcome(op, sample, tensors: list) -> Outcome:
    """Runs an entry on plain tensors. A backward that plain tensors refuse is none."""
    leaves = plain_leaves(tensors)
    outputs, ends = call(op, sample, tensors, leaves)
    outcome = outcome_of(outputs, lambda t: t)
    try:
        outcome.gradients = gradients(ends, leaves)
    except Exception as error:
        outcome.refused = str(error)
    return outcome


def outcome_of(outputs: list, full) -> Outcome:
    tensors = [isinstance(o, torch.Tensor) for o in outputs]
    return Outcome(
        [full(o).detach() if is_tensor else o
         for o, is_tensor in zip(outputs, tensors)],
        [tuple(o.stride()) if is_tensor else () for o, is_tensor in zip(outputs, tensors)],
        [is_tensor and o.requires_grad for o, is_tensor in zip(outputs, tensors)])


class ShardedRun:
    """One rank's run of one case, phase by phase."""

    def __init__(self, backend, mesh, op, implicit: bool) -> None:
        self.backend, self.mesh, self.op = backend, mesh, op
        self.implicit = implicit
        self.phase = ""

    def outcome(self, sample, tensors, placements, backward: bool) -> Outcome:
        backend = self.backend
        self.phase = "input"
        leaves = [backend.shard(t, self.mesh, p) for t, p in zip(tensors, placements)]
        self.phase = "forward"
        mixing = backend.implicit_replication if self.implicit else contextlib.nullcontext
        with mixing():
            outputs, ends = call(self.op, sample, tensors, leaves)
            outcome = outcome_of(outputs, self.whole)
            self.phase = "backward"
            if backward:
                found = gradients([self.whole(e) for e in ends], leaves)
                outcome.gradients = [None if g is None else self.whole(g)
                                     for g in found]
        return outcome

    def whole(self, value):
        return self.backend.full(value) if self.backend.is_sharded(value) else value


def value_difference(got, want, rtol: float, atol: float) -> str:
    """Says how two values differ; empty where they do not."""
    if not isinstance(want, torch.Tensor):
        return "" if type(got) is type(want) and got == want else f"{got!r}, not {want!r}"
    if not isinstance(got, torch.Tensor):
        return f"no tensor but {type(got).__name__}"
    if got.dtype != want.dtype or got.shape != want.shape:
        return (f"{got.dtype} {tuple(got.shape)}, "
                f"not {want.dtype} {tuple(want.shape)}")
    if got.layout != want.layout or torch.equal(got, want):
        return "" if got.layout == want.layout else f"{got.layout}, not {want.layout}"
    try:
        torch.testing.assert_close(
            got, want, rtol=rtol, atol=atol, equal_nan=True, check_stride=False)
    except AssertionError as error:
        return " ".join(str(error).split())
    return ""


def differences(got: Outcome, want: Outcome, rtol: float, atol: float,
                values: bool = True) -> list[Difference]:
    """Lists how a sharded outcome differs from the expected one."""
    found = []
    if len(got.outputs) != len(want.outputs):
        text = f"{len(got.outputs)} outputs, not {len(want.outputs)}"
        return [Difference("forward", "wrong", text)]
    for i, (mine, theirs) in enumerate(zip(got.outputs, want.outputs)):
        if not values and isinstance(theirs, torch.Tensor):
            mine, theirs = torch.zeros_like(mine), torch.zeros_like(theirs)
        text = value_difference(mine, theirs, rtol, atol)
        if not text and got.wants_grad[i] != want.wants_grad[i]:
            text = f"requires_grad {got.wants_grad[i]}, not {want.wants_grad[i]}"
        if text:
            found.append(Difference("forward", "wrong", f"output {i}: {text}"))
    if values and want.gradients is not None and not found:
        found += gradient_differences(got.gradients, want.gradients, rtol, atol)
    return found


def gradient_differences(got: list, want: list, rtol, atol) -> list[Difference]:
    if len(got) != len(want):
        text = f"{len(got)} gradients, not {len(want)}"
        return [Difference("backward", "wrong", text)]
    found = []
    for i, (mine, theirs) in enumerate(zip(got, want)):
        if mine is None and theirs is None:
            continue
        # No gradient and a gradient of zeros say the same.
        if mine is None:
            mine = torch.zeros_like(theirs)
        if theirs is None:
            theirs = torch.zeros_like(mine)
        text = value_difference(mine, theirs, rtol, atol)
        if text:
            found.append(Difference("backward", "wrong", f"gradient {i}: {text}"))
    return found
