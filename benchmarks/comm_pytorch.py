"""PyTorch's side of `tessera bench comm`: torch.distributed over Gloo processes.

Reads one line from standard input per round and answers each with one line of
JSON: {"large all_gather": seconds, ..., "small barrier": seconds, ...}, each the
slowest rank, median over the repeats. Ends at the end of the input. Arguments:
ranks, MiB of the larger side, repeats, calls in one go at the small size.
"""
import sys
import time

import torch
import torch.distributed as dist
from gloo_ranks import answer_rounds


def collectives(larger, ranks):
    """Returns (name, call) for `larger` elements on the larger side."""
    part = larger // ranks
    ones = torch.ones
    whole, other, piece = ones(larger), ones(larger), ones(part)
    return [
        ("all_gather", lambda: dist.all_gather_into_tensor(whole, piece)),
        ("all_to_all", lambda: dist.all_to_all_single(whole, other)),
        ("all_reduce", lambda: dist.all_reduce(whole)),
        ("reduce_scatter", lambda: dist.reduce_scatter_tensor(piece, whole)),
        ("broadcast", lambda: dist.broadcast(whole, 0)),
        ("barrier", lambda: dist.barrier()),
    ]


def timed(call, repeats, calls):
    """Returns the seconds of one call in each repeat, on the slowest rank."""
    runs = []
    for _ in range(repeats + 2):
        dist.barrier()
        begin = time.perf_counter()
        for _ in range(calls):
            call()
        runs.append((time.perf_counter() - begin) / calls)
    slowest = torch.tensor(runs[2:], dtype=torch.float64)
    dist.all_reduce(slowest, op=dist.ReduceOp.MAX)
    return slowest.tolist()


def measure(ranks, mebibytes, repeats, small_calls):
    seconds = {}
    for name, call in collectives(mebibytes << 18, ranks):
        if name != "barrier":
            seconds["large " + name] = timed(call, repeats, 1)
    for name, call in collectives(ranks, ranks):
        seconds["small " + name] = timed(call, 2 * repeats, small_calls)
    return {name: sorted(runs)[len(runs) // 2] for name, runs in seconds.items()}


def main():
    ranks, *arguments = (int(word) for word in sys.argv[1:5])

    def prepare(rank):
        return {}, torch.no_grad()(lambda: measure(ranks, *arguments))

    answer_rounds(ranks, prepare, combine=lambda found: found[0])


if __name__ == "__main__":
    main()
