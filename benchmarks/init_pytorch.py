"""PyTorch's side of `tessera bench init`: a GPT of examples/gpt.h made on meta, sharded
by fully_shard over Gloo processes, and filled by to_empty and reset_parameters.

Reads one line from standard input per round and answers each with one line of JSON: the
seconds of the slowest rank and of CPU on all ranks, the most bytes that a process held
beyond what was there before, whether the values are those of one rank and whether ranks
hold the same ones. Ends at the end of the input. Arguments: ranks, width, layers, vocabulary.
"""
import ctypes
import gc
import sys
import time

import torch
import torch.distributed as dist
from gloo_ranks import answer_rounds
from torch import nn
from torch.distributed.device_mesh import init_device_mesh
from torch.distributed.fsdp import fully_shard

SEED = 11
LENGTH = 512


class Attention(nn.Module):
    def __init__(self, width):
        super().__init__()
        self.q, self.k, self.v, self.o = (nn.Linear(width, width) for _ in range(4))


class Mlp(nn.Module):
    def __init__(self, width):
        super().__init__()
        self.up, self.down = nn.Linear(width, 4 * width), nn.Linear(4 * width, width)


class Block(nn.Module):
    def __init__(self, width):
        super().__init__()
        self.norm1, self.attention = nn.LayerNorm(width), Attention(width)
        self.norm2, self.mlp = nn.LayerNorm(width), Mlp(width)


class Gpt(nn.Module):
    def __init__(self, width, layers, vocabulary):
        super().__init__()
        self.tokens = nn.Embedding(vocabulary, width)
        self.positions = nn.Parameter(torch.empty(LENGTH, width))
        self.blocks = nn.ModuleList(Block(width) for _ in range(layers))
        self.norm = nn.LayerNorm(width)
        self.head = nn.Linear(width, vocabulary, bias=False)
        self.reset_parameters()

    def reset_parameters(self):
        nn.init.normal_(self.positions)


def make_sharded(mesh, sizes):
    torch.manual_seed(SEED)
    with torch.device("meta"):
        model = Gpt(*sizes)
    for block in model.blocks:
        fully_shard(block, mesh=mesh)
    fully_shard(model, mesh=mesh)
    model.to_empty(device="cpu")
    for module in model.modules():
        if hasattr(module, "reset_parameters"):
            module.reset_parameters()
    return model


def make_whole(sizes):
    """The same initialisers in the same order, on one rank."""
    torch.manual_seed(SEED)
    model = Gpt(*sizes)
    torch.manual_seed(SEED)
    for module in model.modules():
        if hasattr(module, "reset_parameters"):
            module.reset_parameters()
    return model


def status_bytes(name):
    with open("/proc/self/status", encoding="ascii") as status:
        lines = [line.split() for line in status]
    return next(int(words[1]) << 10 for words in lines if words[0] == name + ":")


def equals_whole(model, sizes, rank, ranks):
    whole = make_whole(sizes)
    return all(
        torch.equal(mine.to_local(), parts[rank]) if rank < len(parts) else True
        for mine, parts in zip(
            model.parameters(),
            (p.detach().chunk(ranks) for p in whole.parameters())))


def ranks_hold_the_same(model, rank, ranks):
    mine = model.blocks[0].attention.q.weight.to_local().detach().clone()
    first = mine.clone()
    dist.broadcast(first, 0)
    flag = torch.tensor(int(ranks > 1 and torch.equal(first, mine)))
    dist.broadcast(flag, ranks - 1)
    return bool(flag)


def prepare(rank, ranks, sizes):
    mesh = init_device_mesh("cpu", (ranks,))
    make_sharded(mesh, [64, 1, 64])  # what is loaded and made once

    def measure():
        gc.collect()
        ctypes.CDLL(None).malloc_trim(0)  # each round gets its memory anew
        dist.barrier()
        before = status_bytes("VmRSS")
        with open("/proc/self/clear_refs", "w", encoding="ascii") as peak:
            peak.write("5")
        dist.barrier()
        cpu, begin = time.process_time(), time.perf_counter()
        model = make_sharded(mesh, sizes)
        dist.barrier()
        seconds = time.perf_counter() - begin
        cpu = time.process_time() - cpu
        return {
            "seconds": seconds,
            "cpu_seconds": cpu,
            "peak_bytes": status_bytes("VmHWM") - before,
            "shard_bytes": sum(p.to_local().nbytes for p in model.parameters()),
            "model_bytes": sum(p.nbytes for p in model.parameters()),
            "equals_one_rank": equals_whole(model, sizes, rank, ranks),
            "ranks_hold_the_same": ranks_hold_the_same(model, rank, ranks),
        }

    return {}, measure


def combine(answers):
    most = {key: max(a[key] for a in answers)
            for key in ("seconds", "peak_bytes", "shard_bytes", "model_bytes")}
    return {**most,
            "cpu_seconds": sum(a["cpu_seconds"] for a in answers),
            "equals_one_rank": all(a["equals_one_rank"] for a in answers),
            "ranks_hold_the_same": answers[0]["ranks_hold_the_same"]}


def main():
    ranks, *sizes = (int(word) for word in sys.argv[1:])
    answer_rounds(ranks, lambda rank: prepare(rank, ranks, sizes), combine)


if __name__ == "__main__":
    main()
