"""What DTensor's programs count collectives with."""
import contextlib
import functools
import threading
from collections import Counter
from typing import Any

import torch
from torch import nn

from . import _C, torch_dtensor

_COLLECTIVES = {"all_reduce": "all_reduce", "all_gather": "all_gather_into_tensor",
                "reduce_scatter": "reduce_scatter_tensor",
                "all_to_all": "all_to_all_single", "broadcast": "broadcast"}


def _collective(kind: str) -> Any:
    import torch.distributed._functional_collectives  # noqa: F401  (defines the names)
    name = _COLLECTIVES.get(kind)
    return kind if name is None else getattr(torch.ops.c10d_functional, name)


_thread = threading.local()  # the modes that are on


def _modes() -> list["CommDebugMode"]:
    return _thread.__dict__.setdefault("modes", [])


@functools.cache
def _watch_calls() -> None:
    """Lets modes see calls of modules, with the hooks around them: hooks of all modules
    would run inside of those."""
    call_plain = nn.Module.__call__

    def __call__(self: nn.Module, *args: Any, **kwargs: Any) -> Any:
        modes = list(_modes())
        if not modes:
            return call_plain(self, *args, **kwargs)
        for mode in modes:
            mode._begin(self)
        try:
            return call_plain(self, *args, **kwargs)
        finally:
            for mode in modes:
                mode._end()

    nn.Module.__call__ = __call__


class CommDebugMode:
    """Counts this rank's collectives inside `with`, by kind and by the module that ran:
    forward passes by path, backward passes under "Global". `log` is the CommLog.

    >>> import tessera.torch_compat as dt
    >>> with dt.CommDebugMode() as mode:
    ...     y = dt.ones(2, device_mesh=mesh) + 1
    >>> mode.get_total_counts(), dict(mode.get_comm_counts())
    (0, {})
    """

    def __init__(self) -> None:
        self.log = _C.CommLog()
        self._spans: list[tuple[str, int, int]] = []
        self._open: list[tuple[str, int]] = []
        self._names: dict[int, str] = {}

    def __enter__(self) -> "CommDebugMode":
        _watch_calls()
        self._spans, self._open = [], []
        # A log belongs to a rank: in torch.distributed that of the program's group.
        world = torch_dtensor.known_world()
        with _C.RankGuard(world) if world else contextlib.nullcontext():
            self.log.__enter__()
        _modes().append(self)
        return self

    def __exit__(self, *exception: Any) -> None:
        _modes().remove(self)
        self.log.__exit__(*exception)

    def _begin(self, module: nn.Module) -> None:
        if not self._open:
            root = type(module).__name__
            self._names = {id(part): f"{root}.{name}" if name else root
                           for name, part in module.named_modules()}
        name = self._names.get(id(module), type(module).__name__)
        self._open.append((name, self.log.count))

    def _end(self) -> None:
        self._spans.append((*self._open.pop(), self.log.count))

    def get_total_counts(self) -> int:
        return self.log.count

    def get_comm_counts(self) -> Counter[Any]:
        """Counts by collective: those of torch.ops.c10d_functional."""
        return Counter(_collective(e.kind) for e in self.log.entries)

    @property
    def comm_module_counts(self) -> dict[str, dict[str, Counter[Any]]]:
        """Counts by path, "forward" and "backward", and collective."""
        entries = self.log.entries
        counts = {"Global": {"forward": Counter[Any](), "backward": Counter[Any]()}}
        for entry in entries:
            when = "backward" if entry.in_backward else "forward"
            counts["Global"][when][_collective(entry.kind)] += 1
        for name, begin, end in self._spans:
            of = counts.setdefault(
                name, {"forward": Counter[Any](), "backward": Counter[Any]()})
            of["forward"].update(_collective(e.kind) for e in entries[begin:end])
        return counts

    def __repr__(self) -> str:
        return f"CommDebugMode(get_total_counts()={self.get_total_counts()})"
