"""Runs an entry on a sample and compares what comes out."""
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
    # What the gradients started from.
    cotangents: list = dataclasses.field(default_factory=list)
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


def gradients(ends: list, leaves: list, starts: list) -> list:
    wanted = [leaf for leaf in leaves if leaf.requires_grad]
    if not wanted or not ends:
        return []
    return list(torch.autograd.grad(ends, wanted, starts, allow_unused=True))


def plain_outcome(op, sample, tensors: list, starts: list | None = None) -> Outcome:
    """Runs an entry on plain tensors; gradients start from `starts`, else from random
    ones. A backward that plain tensors refuse is none."""
    leaves = plain_leaves(tensors)
    outputs, ends = call(op, sample, tensors, leaves)
    outcome = outcome_of(outputs, lambda t: t)
    outcome.cotangents = cotangents(ends) if starts is None else starts
    try:
        outcome.gradients = gradients(ends, leaves, outcome.cotangents)
    except Exception as error:
        outcome.refused = str(error)
    return outcome


def outcome_of(outputs: list, full) -> Outcome:
    tensors = [isinstance(o, torch.Tensor) for o in outputs]
    return Outcome(
        [full(o).detach() if is_tensor else o
         for o, is_tensor in zip(outputs, tensors)],
        [tuple(o.stride()) if is_tensor and o.layout == torch.strided else ()
         for o, is_tensor in zip(outputs, tensors)],
        [is_tensor and o.requires_grad for o, is_tensor in zip(outputs, tensors)])


class ShardedRun:
    """One rank's run of one case, phase by phase."""

    def __init__(self, backend, mesh, op, guard) -> None:
        self.backend, self.mesh, self.op = backend, mesh, op
        # Makes what the calls run under.
        self.guard = guard
        self.phase = ""

    def outcome(self, sample, tensors, placements, plain: Outcome | None) -> Outcome:
        """Runs forward and, where `plain` tensors have gradients, backward."""
        backend = self.backend
        self.phase = "input"
        leaves = [backend.shard(t, self.mesh, p) for t, p in zip(tensors, placements)]
        if not all(backend.represents(*pair) for pair in zip(leaves, tensors)):
            raise ValueError("an input is not what it was made of")
        self.phase = "forward"
        with self.guard():
            outputs, ends = call(self.op, sample, tensors, leaves)
            outcome = outcome_of(outputs, self.whole)
            self.phase = "backward"
            if plain and plain.gradients is not None:
                ends = [self.whole(e) for e in ends]
                outcome.cotangents = plain.cotangents
                # Other shapes are a difference of the outputs, found later.
                if [e.shape for e in ends] == [c.shape for c in plain.cotangents]:
                    outcome.gradients = [
                        None if g is None else self.whole(g)
                        for g in gradients(ends, leaves, plain.cotangents)]
        return outcome

    def whole(self, value):
        return self.backend.full(value) if self.backend.is_sharded(value) else value


def value_difference(got, want, rtol: float, atol: float) -> str:
    """Says how two values differ; empty where they do not."""
    if not isinstance(want, torch.Tensor):
        same = type(got) is type(want) and got == want
        return "" if same else f"{got!r}, not {want!r}"
    if not isinstance(got, torch.Tensor):
        return f"no tensor but {type(got).__name__}"
    if got.dtype != want.dtype or got.shape != want.shape:
        return (f"{got.dtype} {tuple(got.shape)}, "
                f"not {want.dtype} {tuple(want.shape)}")
    if got.layout != want.layout:
        return f"{got.layout}, not {want.layout}"
    if got.dtype == torch.complex32:
        got, want = torch.view_as_real(got), torch.view_as_real(want)
    if torch.equal(got, want):
        return ""
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


def in_double(sample, tensors: list) -> tuple:
    """Returns a sample and its tensors with float32 made float64."""
    wide = [t.detach().double().requires_grad_(t.requires_grad)
            if t.dtype == torch.float32 else t for t in tensors]
    first, args, kwargs = with_tensors(sample, tensors, wide)
    made = type(sample)(first, args=args, kwargs=kwargs,
                        output_process_fn_grad=sample.output_process_fn_grad)
    return made, wide


def double_outcome(op, sample, tensors: list, plain: Outcome) -> Outcome:
    """Runs in float64 what gave `plain`."""
    starts = [c.to(torch.complex128 if c.is_complex() else torch.float64)
              for c in plain.cotangents]
    return plain_outcome(op, *in_double(sample, tensors), starts)


# A result may be off by as many times what plain float32 is off.
ROUNDING = 8


def is_rounding(got: Outcome, want: Outcome, truth: Outcome, rtol, atol) -> bool:
    """Tells whether results that differ are both as near to float64's: sums in
    another order, magnified where the function is steep."""
    pairs = [(got.outputs, want.outputs, truth.outputs)]
    if want.gradients:
        if not (got.gradients and truth.gradients):
            return False
        pairs.append((got.gradients, want.gradients, truth.gradients))
    return all(is_near(*triple, rtol, atol) for triples in pairs
               for triple in zip(*triples))


def is_near(mine, theirs, true, rtol: float, atol: float) -> bool:
    if not value_difference(mine, theirs, rtol, atol) or (mine is None):
        return True
    if (theirs is None or true is None or mine.shape != theirs.shape
            or mine.dtype != theirs.dtype
            or true.dtype not in (torch.float64, torch.complex128)):
        return False
    own = (theirs.to(true.dtype) - true).abs()
    error = (mine.to(true.dtype) - true).abs()
    room = atol + rtol * true.abs() + ROUNDING * own.max()
    return bool((error <= room).all())


def gradient_differences(got: list, want: list, rtol, atol) -> list[Difference]:
    if got is None or len(got) != len(want):
        text = f"{len(got or [])} gradients, not {len(want)}"
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
