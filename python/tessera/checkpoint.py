"""Checkpoints: state of any layout in files, and back into any other.

A state is a dict of tensors, numbers, texts, bytes, None, and of lists and dicts of
them. Every rank of the world calls save() and load() with the same names.

>>> import tempfile
>>> path = tempfile.mkdtemp() + "/step_100"
>>> w = tessera.distribute_tensor(torch.arange(6.0), mesh, "S(0)")
>>> tessera.checkpoint.save({"w": w, "step": 100}, path)
>>> state = {"w": tessera.zeros([6], mesh, "R"), "step": 0}
>>> tessera.checkpoint.load(state, path)
>>> state["step"], state["w"].sum().item()
(100, 15.0)
"""
import builtins
import contextlib
import json
import os
import re
from typing import Any, Callable, ContextManager, Iterator, Mapping, Optional, Sequence, Union

import torch
from torch import nn

from . import _C, torch_dtensor

Entry = _C._checkpoint.Entry
Handle = _C._checkpoint.Handle
Path = Union[str, os.PathLike]
Progress = Callable[[int, int], Any]

__all__ = ["Entry", "Handle", "full_state_dict", "latest", "list", "load", "random_state_dict", "save",
           "save_async", "save_step", "save_step_async", "state_dict", "verify"]


def save(state: dict, path: Path, format: str = "tessera", overwrite: bool = False,
         progress: Optional[Progress] = None) -> None:
    """Writes a checkpoint, as "tessera", "dcp" or "safetensors".

    What is wrong on one rank is raised on all, and the path stays as it was; a
    checkpoint that is there is replaced with `overwrite` only, once the new one is
    complete. `progress` is called with the bytes that this rank has written, and of
    how many.

    >>> import tempfile
    >>> path = tempfile.mkdtemp() + "/a"
    >>> tessera.checkpoint.save({"step": 7, "rates": [0.1, 0.2]}, path, format="dcp")
    >>> tessera.checkpoint.save({"w": torch.ones(3)}, path, overwrite=True,
    ...                         progress=lambda bytes, total: print(bytes, "of", total))
    12 of 12
    """
    with _inside(_other_world(state)):
        _C._checkpoint.save(state, path, format, overwrite, progress)


def save_step(state: dict, folder: Path, step: int, keep: int = 0,
              format: str = "tessera", overwrite: bool = False,
              progress: Optional[Progress] = None) -> str:
    """Saves to FOLDER/step_000000000100, makes it the latest, and removes all but the
    newest `keep` (0: removes none). Returns the path.

    >>> import tempfile
    >>> folder = tempfile.mkdtemp()
    >>> path = tessera.checkpoint.save_step({"n": 1}, folder, 100, keep=3)
    >>> tessera.checkpoint.latest(folder) == path
    True
    """
    with _inside(_other_world(state)):
        return _C._checkpoint.save_step(
            state, folder, step, keep, format, overwrite, progress)


def save_async(state: dict, path: Path, format: str = "tessera",
               overwrite: bool = False) -> Handle:
    """Saves as save() does, but returns when this rank's bytes are copied: what changes
    afterwards is not in the checkpoint. A thread writes them beside the program.

    One save is under way at a time: where the one before is not complete, this waits
    for it, and raises what went wrong there instead of beginning.

    >>> import tempfile
    >>> path = tempfile.mkdtemp() + "/a"
    >>> weight = torch.ones(3)
    >>> handle = tessera.checkpoint.save_async({"w": weight}, path)
    >>> weight += 1  # the next step
    >>> handle.wait()
    >>> state = {"w": torch.zeros(3)}
    >>> tessera.checkpoint.load(state, path)
    >>> state["w"]
    tensor([1., 1., 1.])
    """
    world = _other_world(state)
    with _inside(world):
        return _C._checkpoint.save_async(state, path, format, overwrite, world)


def save_step_async(state: dict, folder: Path, step: int, keep: int = 0,
                    format: str = "tessera", overwrite: bool = False) -> Handle:
    """Does as save_step(), beside the program as save_async() does. The path is
    Handle.path.

    >>> import tempfile
    >>> folder = tempfile.mkdtemp()
    >>> handle = tessera.checkpoint.save_step_async({"n": 1}, folder, 100, keep=3)
    >>> handle.wait()
    >>> tessera.checkpoint.latest(folder) == handle.path
    True
    """
    world = _other_world(state)
    with _inside(world):
        return _C._checkpoint.save_step_async(
            state, folder, step, keep, format, overwrite, world)


def load(state: dict, path: Path, strict: bool = True, convert_dtype: bool = False,
         only: Sequence[str] = (), follow_links: bool = False) -> None:
    """Reads a checkpoint of any format: into the tensors of a dict, whatever their
    layout, and its numbers and texts into the dict.

    Names that one of the two lacks are an error unless strict=False, other dtypes
    unless convert_dtype=True. `only` names what is loaded, `*` for any text. With
    `follow_links` files may be symbolic links, as in the cache of Hugging Face.

    >>> import tempfile
    >>> path = tempfile.mkdtemp() + "/a"
    >>> tessera.checkpoint.save({"model": {"w": torch.ones(2)}, "step": 7}, path)
    >>> state = {"model": {"w": torch.zeros(2)}, "step": 0}
    >>> tessera.checkpoint.load(state, path, only=["model.*"])
    >>> state
    {'model': {'w': tensor([1., 1.])}, 'step': 0}
    """
    globs = [only] if isinstance(only, str) else only
    linked = builtins.list(_find_linked(state))
    entries: dict[str, Entry] = {}

    def prepare() -> None:  # what it raises on one rank is raised on all
        if linked:
            entries.update(_asked_for(path, globs, follow_links))
        for prefix, part in linked:
            part.prepare(prefix, entries)

    try:
        with _inside(_other_world(state)):
            _C._checkpoint.load(state, path, strict, convert_dtype, globs, follow_links,
                                prepare)
    except BaseException:
        for _, part in linked:
            part.undo()
        raise
    for prefix, part in linked:
        part.receive(prefix, entries)


def list(path: Path, follow_links: bool = False) -> "builtins.list[Entry]":
    """Returns what a checkpoint holds; `follow_links` as in load(). Not collective.

    >>> import tempfile
    >>> path = tempfile.mkdtemp() + "/a"
    >>> tessera.checkpoint.save({"w": torch.ones(3), "step": 7}, path)
    >>> [(e.name, e.shape, e.value) for e in tessera.checkpoint.list(path)]
    [('w', [3], ''), ('step', [], '7')]
    """
    return _C._checkpoint.list(os.fspath(path), follow_links)


def verify(path: Path, follow_links: bool = False) -> "builtins.list[str]":
    """Reads all of a checkpoint and raises at the first thing that is damaged; returns
    what has no checksums to be checked by. `follow_links` as in load(). Not collective.

    >>> import tempfile
    >>> path = tempfile.mkdtemp() + "/a"
    >>> tessera.checkpoint.save({"w": torch.ones(3)}, path)
    >>> tessera.checkpoint.verify(path)
    []
    """
    return _C._checkpoint.verify(os.fspath(path), follow_links)


def latest(folder: Path) -> Optional[str]:
    """Returns the path of the latest checkpoint of save_step(), or None.

    >>> import tempfile
    >>> tessera.checkpoint.latest(tempfile.mkdtemp())
    """
    return _C._checkpoint.latest(os.fspath(folder))


def state_dict(module: nn.Module,
               optimizer: Optional[torch.optim.Optimizer] = None) -> dict:
    """Returns the state of a module by name; with an optimizer
    {"model": ..., "optimizer": {"state": {name: ...}, "param_groups": [...]}}, where
    parameters have their names in the module, as PyTorch's get_optimizer_state_dict
    has it.

    What load() reads into it reaches both. State that a new optimizer does not have
    yet is made by load(), sharded as its parameter.

    >>> import tempfile
    >>> path = tempfile.mkdtemp() + "/a"
    >>> net = torch.nn.Linear(2, 2)
    >>> optimizer = torch.optim.SGD(net.parameters(), lr=0.1)
    >>> tessera.checkpoint.save(tessera.checkpoint.state_dict(net, optimizer), path)
    >>> optimizer.param_groups[0]["lr"] = 5.0
    >>> tessera.checkpoint.load(tessera.checkpoint.state_dict(net, optimizer), path)
    >>> optimizer.param_groups[0]["lr"]
    0.1
    """
    model = dict(module.state_dict())
    extra = [name for name in model if name.split(".")[-1] == "_extra_state"]
    if extra:
        raise NotImplementedError(
            f"checkpoint.state_dict: {extra[0]!r} comes from get_extra_state(), which "
            "load() cannot give back; put it into the dict by yourself")
    if optimizer is None:
        return model
    return {"model": model, "optimizer": _OptimizerState(module, optimizer)}


def full_state_dict(state: dict, rank: int = 0) -> dict:
    """Returns a state with every tensor whole, as a plain one on the CPU, on one rank of
    the world; an empty dict on all others, which never hold more than their shards.

    Collective: all ranks pass the same names and layouts. PyTorch has it as
    get_model_state_dict() with full_state_dict and cpu_offload.

    >>> net = torch.nn.Linear(4, 2)
    >>> handle = tessera.fully_shard(net, mesh)
    >>> whole = tessera.checkpoint.full_state_dict(tessera.checkpoint.state_dict(net))
    >>> {name: tuple(tensor.shape) for name, tensor in whole.items()}
    {'weight': (2, 4), 'bias': (2,)}
    """
    with _inside(_other_world(state)):
        return _C._checkpoint.full_state_dict(state, rank)


def random_state_dict() -> dict:
    """Returns this rank's random state, which load() sets: the program draws on as if
    it had not stopped.

    >>> sorted(tessera.checkpoint.random_state_dict())
    ['operations', 'seed', 'streams']
    """
    return _RandomState()


class _Linked(dict):
    """A dict that stands for an object, which load() fills too. `entries` are those of
    the checkpoint that are loaded, by name; `prefix` begins the names of the dict."""

    def prepare(self, prefix: str, entries: Mapping[str, Entry]) -> None:
        """Adds what the checkpoint has and the object has not yet."""

    def undo(self) -> None:
        """Takes back what prepare() added, after an error."""

    def receive(self, prefix: str, entries: Mapping[str, Entry]) -> None:
        """Gives the object what was read."""
        raise NotImplementedError


class _RandomState(_Linked):
    def __init__(self) -> None:
        state = _C.random_state()
        super().__init__(
            seed=_signed(state.seed), operations=_signed(state.operations),
            streams=[[name, _signed(n)] for name, n in sorted(state.streams.items())])

    def receive(self, prefix: str, entries: Mapping[str, Entry]) -> None:
        if any(prefix + name in entries for name in self):
            _C.set_random_state(_C.RandomState(
                seed=self["seed"] % 2**64, operations=self["operations"] % 2**64,
                streams={name: n % 2**64 for name, n in self["streams"]}))


class _OptimizerState(_Linked):
    def __init__(self, module: nn.Module, optimizer: torch.optim.Optimizer) -> None:
        names = {parameter: name for name, parameter in module.named_parameters()}
        for i, group in enumerate(optimizer.param_groups):
            for j, parameter in enumerate(group["params"]):
                if parameter not in names:
                    raise ValueError(
                        f"checkpoint.state_dict: parameter {j} of group {i} of the "
                        "optimizer is no parameter of the module; names come from the "
                        "module, so pass the one that holds all of them")
        self._optimizer = optimizer
        self._names = names
        self._found: dict[tuple[str, str], dict[str, Entry]] = {}
        self._parameters = {names[p]: (p, group) for group in optimizer.param_groups
                            for p in group["params"]}
        super().__init__()
        self._read()

    def _read(self) -> None:
        """Takes what the optimizer has now."""
        self["state"] = {name: dict(self._optimizer.state[parameter])
                         for name, (parameter, _) in self._parameters.items()
                         if self._optimizer.state.get(parameter)}
        self["param_groups"] = [
            {**group, "params": [self._names[p] for p in group["params"]]}
            for group in self._optimizer.param_groups]

    def _fields_in(self, start: str, entries: Mapping[str, Entry]
                   ) -> dict[tuple[str, str], dict[str, Entry]]:
        """Returns the entries of each field of each parameter, by what follows."""
        found: dict[tuple[str, str], dict[str, Entry]] = {}
        for full_name, entry in entries.items():
            if not full_name.startswith(start):
                continue
            words = full_name[len(start):].split(".")
            names = [n for n in range(1, len(words))
                     if ".".join(words[:n]) in self._parameters]
            if names:
                key = ".".join(words[:names[-1]]), words[names[-1]]
                rest = ".".join(words[names[-1] + 1:])
                found.setdefault(key, {})[rest] = entry
        return found

    def undo(self) -> None:
        self._read()

    def prepare(self, prefix: str, entries: Mapping[str, Entry]) -> None:
        self._read()
        self._found = self._fields_in(prefix + "state.", entries)
        for (name, field), below in self._found.items():
            fields = self["state"].setdefault(name, {})
            fields[field] = _make_field(field, below, fields.get(field),
                                        *self._parameters[name])
        for group in self["param_groups"]:
            for option, value in group.items():
                if value is None or isinstance(value, bool):
                    group[option] = None  # may become either
        for i, group in enumerate(self["param_groups"]):
            entry = entries.get(f"{prefix}param_groups.{i}.params")
            if entry and set(json.loads(entry.value)) != set(group["params"]):
                raise ValueError(
                    f"checkpoint.load: group {i} of the optimizer has the parameters "
                    f"{group['params']}, and the checkpoint {entry.value}; make the "
                    "groups as they were, or name what to load with `only`")

    def receive(self, prefix: str, entries: Mapping[str, Entry]) -> None:
        for name, field in self._found:
            parameter, _ = self._parameters[name]
            self._optimizer.state[parameter][field] = self["state"][name][field]
        for i, group in enumerate(self._optimizer.param_groups):
            for option, value in self["param_groups"][i].items():
                if (option != "params"
                        and f"{prefix}param_groups.{i}.{option}" in entries):
                    group[option] = value


def _make_field(field: str, below: Mapping[str, Entry], old: Any,
                parameter: torch.Tensor, group: dict) -> Any:
    """Returns what load() fills with a field, whose entries are named by what follows
    its name: "" is the field itself, "0" the first of a list, "a" one of a dict."""
    if "" in below:
        return _make_value(field, below[""], old, parameter, group)
    parts: dict[str, dict[str, Entry]] = {}
    for rest, entry in below.items():
        part, _, further = rest.partition(".")
        parts.setdefault(part, {})[further] = entry
    made = {part: _make_field(field, its, None, parameter, group)
            for part, its in parts.items()}
    if set(made) == {str(i) for i in range(len(made))}:
        return [made[str(i)] for i in range(len(made))]
    return made


def _make_value(field: str, entry: Entry, old: Any, parameter: torch.Tensor,
                group: dict) -> Optional[torch.Tensor]:
    """Returns the tensor that there is, or memory for one: like the parameter where
    the shapes are equal, else whole on each rank of its mesh."""
    if entry.dtype is None:
        return None  # a value, which takes its place
    shape = builtins.list(entry.shape)
    if isinstance(old, torch.Tensor) and builtins.list(old.shape) == shape:
        return old
    if field != "step" and builtins.list(parameter.shape) == shape:
        return torch.zeros_like(parameter, dtype=entry.dtype, requires_grad=False,
                                memory_format=torch.preserve_format)
    if _C.is_dtensor(parameter) and shape:
        mesh = _C.device_mesh(parameter)
        return _C.zeros(shape, mesh, [_C.Replicate()] * mesh.ndim, dtype=entry.dtype)
    on_device = field != "step" or group.get("capturable") or group.get("fused")
    return torch.zeros(shape, dtype=entry.dtype,
                       device=parameter.device if on_device else "cpu")


def _find_tensor(state: Any) -> Optional[torch.Tensor]:
    """Returns a sharded tensor of a state, if there is one."""
    if isinstance(state, torch.Tensor):
        return state if _C.is_dtensor(state) else None
    if isinstance(state, dict):
        state = state.values()
    elif not isinstance(state, (builtins.list, tuple)):
        return None
    return next((t for t in map(_find_tensor, state) if t is not None), None)


def _other_world(state: Any) -> Optional[_C.World]:
    """The world of the tensors of a state, if it is not that of init(): inside a
    torch.distributed job, where no launcher of ours has told each process its rank,
    only they know it."""
    tensor = _find_tensor(state)
    world = _C.device_mesh(tensor).world() if tensor is not None else None
    if world is None and _C.world_size() == 1:
        world = torch_dtensor.known_world()
    return None if world is None or world == _C.init() else world


def _inside(world: Optional[_C.World]) -> ContextManager[object]:
    return _C.RankGuard(world, "checkpoint") if world else contextlib.nullcontext()


def _find_linked(state: Any, prefix: str = "") -> Iterator[tuple[str, _Linked]]:
    if isinstance(state, _Linked):
        yield prefix, state
    elif isinstance(state, dict):
        for name, value in state.items():
            yield from _find_linked(value, f"{prefix}{name}.")
    elif isinstance(state, (builtins.list, tuple)):
        for i, value in enumerate(state):
            yield from _find_linked(value, f"{prefix}{i}.")


def _asked_for(path: Path, globs: Sequence[str],
               follow_links: bool) -> "dict[str, Entry]":
    try:
        entries = list(path, follow_links)
    except Exception:  # load() finds it too, and tells all ranks
        return {}
    patterns = [re.compile(".*".join(map(re.escape, glob.split("*"))), re.DOTALL)
                for glob in globs]
    return {entry.name: entry for entry in entries
            if not globs or any(p.fullmatch(entry.name) for p in patterns)}


def _signed(bits: int) -> int:
    return bits - 2**64 if bits >= 2**63 else bits
