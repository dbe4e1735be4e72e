"""PyTorch's side of `tessera bench redistribute`: DTensor over Gloo processes.

Reads one line from standard input per round and answers each with one line of
JSON: the seconds of every transition (slowest rank, median over the repeats).
Ends at the end of the input. Arguments: ranks, rows (= columns), repeats.
"""
import sys
import time

import torch
import torch.distributed as dist
from gloo_ranks import answer_rounds
from torch.distributed.device_mesh import init_device_mesh
from torch.distributed.tensor import DTensor, Partial, Replicate, Shard

TRANSITIONS = [
    ("S0->R", Shard(0), Replicate()),
    ("S0->S1", Shard(0), Shard(1)),
    ("P->R", Partial(), Replicate()),
    ("P->S0", Partial(), Shard(0)),
]


def measure(mesh, rank, ranks, rows, repeats):
    """Returns the seconds of each transition, as this rank saw them."""
    seconds = {}
    for name, source, target in TRANSITIONS:
        whole = torch.arange(rows * rows, dtype=torch.float32).view(rows, rows)
        local = whole if source.is_partial() else whole.chunk(ranks)[rank].clone()
        tensor = DTensor.from_local(local, mesh, [source])
        runs = []
        for _ in range(repeats + 2):
            dist.barrier()
            begin = time.perf_counter()
            result = tensor.redistribute(mesh, [target]).to_local()
            if hasattr(result, "wait"):
                result = result.wait()
            runs.append(time.perf_counter() - begin)
        seconds[name] = runs[2:]
    return seconds


def slowest(results):
    """Returns the median over repeats of the slowest rank."""
    answer = {}
    for name in results[0]:
        by_repeat = sorted(max(runs) for runs in zip(*(r[name] for r in results)))
        answer[name] = by_repeat[len(by_repeat) // 2]
    return answer


def main():
    ranks, rows, repeats = (int(word) for word in sys.argv[1:4])

    def prepare(rank):
        mesh = init_device_mesh("cpu", (ranks,))
        return {}, torch.no_grad()(lambda: measure(mesh, rank, ranks, rows, repeats))

    answer_rounds(ranks, prepare, combine=slowest)


if __name__ == "__main__":
    main()
