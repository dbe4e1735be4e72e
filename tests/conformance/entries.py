"""The entries of PyTorch's OpInfo database that are tested, and their samples."""
import json
import pathlib
import random
import zlib

import torch
from torch.testing._internal import common_methods_invocations
from torch.testing._internal.common_device_type import toleranceOverride
from torch.utils._pytree import tree_flatten

LISTS = json.loads(pathlib.Path(__file__).with_name("entries.json").read_text())
DTYPE = torch.float32
# What assert_close grants float32 where an entry asks for nothing else.
RTOL, ATOL = 1.3e-6, 1e-5


def call_without_seed(op, *args, **kwargs):
    return op(*args, **kwargs)


# The database seeds torch inside its random entries; here the caller seeds.
common_methods_invocations.wrapper_set_seed = call_without_seed


def name_of(op) -> str:
    """'linspace.tensor_overload': unique within the database."""
    return f"{op.name}.{op.variant_test_name}" if op.variant_test_name else op.name


def all_entries() -> dict:
    """Returns the entries that support float32 on the CPU, by name."""
    entries = {}
    for op in common_methods_invocations.op_db:
        if DTYPE in op.supported_dtypes("cpu"):
            assert name_of(op) not in entries, name_of(op)
            entries[name_of(op)] = op
    for kind, names in LISTS.items():
        unknown = [name for name in names if name not in entries]
        assert not unknown, f"entries.json, {kind}: not in the database: {unknown}"
    return entries


def kind_of(name: str) -> str:
    """'excluded', 'random', 'empty', 'sparse', or 'plain': compared with torch."""
    for kind in ("excluded", "random", "empty", "sparse"):
        if name in LISTS[kind]:
            return kind
    return "plain"


def seed_of(name: str, seed: int) -> int:
    return (zlib.crc32(name.encode()) + seed) % 2**31


def tolerances(op) -> tuple[float, float]:
    """Returns the entry's own tolerances: the widest it asks for on the CPU."""
    rtol, atol = RTOL, ATOL
    for info in op.decorators:
        if getattr(info, "device_type", None) not in (None, "cpu"):
            continue
        for decorator in getattr(info, "decorators", [info]):
            if isinstance(decorator, toleranceOverride) and DTYPE in decorator.d:
                rtol = max(rtol, decorator.d[DTYPE].rtol)
                atol = max(atol, decorator.d[DTYPE].atol)
    return rtol, atol


def tensors_of(sample) -> list[torch.Tensor]:
    """Returns the tensors of a sample, each once, in the order they are found."""
    found = []
    for leaf in tree_flatten((sample.input, sample.args, sample.kwargs))[0]:
        if isinstance(leaf, torch.Tensor) and all(leaf is not t for t in found):
            found.append(leaf)
    return found


def all_samples(name: str, op, seed: int) -> list:
    """Makes the samples of an entry: the same ones for the same seed."""
    torch.manual_seed(seed_of(name, seed))
    random.seed(seed_of(name, seed))
    return list(op.sample_inputs("cpu", DTYPE, requires_grad=op.supports_autograd))


def features(sample) -> frozenset:
    """What is particular about a sample: shapes, dtypes, the values of its numbers."""
    found = {("arguments", len(sample.args), tuple(sorted(sample.kwargs)))}
    leaves = tree_flatten((sample.input, sample.args, sample.kwargs))[0]
    for place, leaf in enumerate(leaves):
        if isinstance(leaf, torch.Tensor):
            found |= {("dims", place, leaf.dim()), ("shape", place, tuple(leaf.shape)),
                      ("dtype", place, leaf.dtype),
                      ("layout", place, leaf.layout),
                      ("dense", place, leaf.layout == torch.strided
                       and leaf.is_contiguous())}
        else:
            found.add(("value", place, repr(leaf)))
    for key, value in sample.kwargs.items():
        if not isinstance(value, torch.Tensor):
            found.add(("keyword", key, repr(value)))
    found.add(("shapes", tuple(tuple(leaf.shape) for leaf in leaves
                               if isinstance(leaf, torch.Tensor))))
    return frozenset(found)


def chosen_samples(samples: list, limit: int) -> list[int]:
    """Chooses at most `limit` samples: next always the one with most that is new."""
    if len(samples) <= limit:
        return list(range(len(samples)))
    open_ones = {i: features(s) for i, s in enumerate(samples)}
    seen: set = set()
    chosen = []
    while len(chosen) < limit:
        best = max(open_ones, key=lambda i: (len(open_ones[i] - seen), -i))
        seen |= open_ones.pop(best)
        chosen.append(best)
    return sorted(chosen)
