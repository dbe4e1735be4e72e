"""PyTorch's side of `tessera bench redistribute`: DTensor over Gloo processes.

Reads one line from standard input per round and answers each with one line of
JSON: the seconds of every transition (slowest rank, median over the repeats).
Ends at the end of the input. Arguments: ranks, rows (= columns), repeats.
"""
import json
import os
import sys
import tempfile
import time
import warnings

import torch
import torch.distributed as dist
import torch.multiprocessing as mp
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


def worker(rank, ranks, rows, repeats, store, pipes):
    warnings.simplefilter("ignore")
    torch.set_num_threads(1)
    dist.init_process_group(
        "gloo", init_method="file://" + store, rank=rank, world_size=ranks)
    mesh = init_device_mesh("cpu", (ranks,))
    pipe = pipes[rank]
    pipe.send("ready")
    while pipe.recv():
        with torch.no_grad():
            pipe.send(measure(mesh, rank, ranks, rows, repeats))
    dist.destroy_process_group()


def slowest(results):
    """Returns the median over repeats of the slowest rank."""
    answer = {}
    for name in results[0]:
        by_repeat = sorted(max(runs) for runs in zip(*(r[name] for r in results)))
        answer[name] = by_repeat[len(by_repeat) // 2]
    return answer


def main():
    ranks, rows, repeats = (int(word) for word in sys.argv[1:4])
    os.environ.setdefault("TORCH_CPP_LOG_LEVEL", "ERROR")
    os.environ.setdefault("TORCH_LOGS", "-all")
    context = mp.get_context("fork")
    ours, theirs = zip(*(context.Pipe() for _ in range(ranks)))
    with tempfile.TemporaryDirectory() as folder:
        store = os.path.join(folder, "store")
        workers = [
            context.Process(
                target=worker, args=(r, ranks, rows, repeats, store, theirs),
                daemon=True)
            for r in range(ranks)
        ]
        for process in workers:
            process.start()
        for pipe in ours:
            pipe.recv()
        print(json.dumps({"torch": torch.__version__}), flush=True)
        for _ in sys.stdin:
            for pipe in ours:
                pipe.send(True)
            print(json.dumps(slowest([pipe.recv() for pipe in ours])), flush=True)
        for pipe in ours:
            pipe.send(False)
        for process in workers:
            process.join(30)


if __name__ == "__main__":
    main()
