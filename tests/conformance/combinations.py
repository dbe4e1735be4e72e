"""Which placements the tensors of a sample get."""
import itertools
import random

import torch

from cases import MESHES, Case, Placements
from entries import seed_of

# Products of more choices than this are drawn from, not written out.
WRITTEN_OUT = 4096


def choices_of(tensor: torch.Tensor, mesh: str) -> list[Placements]:
    """Lists every placement of a tensor: copies, shards, addends, strided shards."""
    one = ["R"] + [f"S({d})" for d in range(tensor.dim())]
    if tensor.dtype != torch.bool and tensor.layout == torch.strided:
        one.append("P")
    choices = list(itertools.product(one, repeat=len(MESHES[mesh])))
    if len(MESHES[mesh]) == 2:
        inner = MESHES[mesh][1]
        choices += [(f"SS({d},{inner})", f"S({d})") for d in range(tensor.dim())]
    return choices


def combination_count(tensors: list[torch.Tensor], mesh: str) -> int:
    count = 1
    for tensor in tensors:
        count *= len(choices_of(tensor, mesh))
    return count


def combinations(tensors, mesh: str, count: int, seed: int) -> list[tuple]:
    """Draws `count` different combinations, all of them where there are no more."""
    choices = [choices_of(t, mesh) for t in tensors]
    draw = random.Random(seed)
    total = combination_count(tensors, mesh)
    if total <= WRITTEN_OUT:
        every = list(itertools.product(*choices))
        draw.shuffle(every)
        return every[:count]
    drawn: dict = {}
    while len(drawn) < min(count, total):
        drawn[tuple(draw.choice(c) for c in choices)] = None
    return list(drawn)


def is_uneven(case: Case, tensors) -> bool:
    """Tells whether some shard of a case is smaller than another."""
    for tensor, placements in zip(tensors, case.placements):
        parts = [1] * tensor.dim()
        for placement, size in zip(placements, MESHES[case.mesh]):
            if placement.startswith("S"):
                parts[int(placement.strip("S()").split(",")[0])] *= size
        if any(size % n for size, n in zip(tensor.shape, parts)):
            return True
    return False


def cases_of(name: str, samples: list, numbers: list[int], tensors_of, least: int,
             each: int, seed: int) -> list[Case]:
    """Makes the cases of an entry: at least `each` of every sample on every mesh
    and `least` together, where the arguments allow."""
    places = [(i, mesh) for i in numbers for mesh in MESHES]
    room = {p: combination_count(tensors_of(samples[p[0]]), p[1]) for p in places}
    wanted = {p: min(each, room[p]) for p in places}
    while sum(wanted.values()) < least:
        grown = [p for p in places if wanted[p] < room[p]]
        if not grown:
            break
        for p in grown[:least - sum(wanted.values())]:
            wanted[p] += 1
    cases = []
    for i, mesh in places:
        drawn = combinations(tensors_of(samples[i]), mesh, wanted[i, mesh],
                             seed_of(f"{name}#{i}@{mesh}", seed))
        cases += [Case(name, i, mesh, c) for c in drawn]
    return cases
