"""PyTorch's side of `tessera bench checkpoint`: torch.distributed.checkpoint over
Gloo processes, with its own defaults (a file per rank, fsync of every file); its folder
is brought to the disk too, as ours is.

Reads one line from standard input per round and answers each with one line of JSON:
{"save": {"seconds": s, "cpu_seconds": s}, "load": ...}, seconds of the slowest rank and
of CPU on all ranks. Values that were loaded and differ from those saved end it. Files
are made below TMPDIR. Arguments: ranks, MiB of all tensors, tensors.
"""
import os
import shutil
import sys
import tempfile
import time

import torch
import torch.distributed as dist
import torch.distributed.checkpoint as dcp
from gloo_ranks import answer_rounds
from torch.distributed.device_mesh import init_device_mesh
from torch.distributed.tensor import DTensor, Shard

COLUMNS = 1024


def make_state(mesh, rank, ranks, tensors, rows):
    """Returns tensors cut by rows, with the values that bench_checkpoint.h names."""
    part = -(-rows // ranks)
    begin, end = min(part * rank, rows), min(part * (rank + 1), rows)
    state = {}
    for t in range(tensors):
        values = torch.arange(begin * COLUMNS, end * COLUMNS, dtype=torch.int64)
        values.mul_(7919).add_(t).remainder_(16777213)
        state[f"layers.{t}.weight"] = DTensor.from_local(
            values.view(-1, COLUMNS).to(torch.float32), mesh, [Shard(0)],
            run_check=False, shape=(rows, COLUMNS), stride=(COLUMNS, 1))
    return state


def sync_folder(path):
    folder = os.open(path, os.O_RDONLY)
    os.fsync(folder)
    os.close(folder)


def touch_file_memory(path, mebibytes):
    """As in raw_files.h: the memory of the next files has just been in use."""
    zeros = bytes(1 << 20)
    with open(path, "xb", buffering=0) as file:
        for _ in range(mebibytes):
            file.write(zeros)
        os.remove(path)


def measured(body):
    """Returns the seconds of a call on this rank, of the clock and of CPU."""
    dist.barrier()
    cpu, begin = time.process_time(), time.perf_counter()
    body()
    seconds = time.perf_counter() - begin
    dist.barrier()
    return {"seconds": seconds, "cpu_seconds": time.process_time() - cpu}


def one_round(path, rank, mebibytes, saved, loaded):
    """Saves, loads and compares, as bench_checkpoint_worker.cpp does."""
    def save():
        dcp.save(saved, checkpoint_id=path)
        dist.barrier()
        if rank == 0:
            sync_folder(path)

    if rank == 0:
        os.sync()
        touch_file_memory(path + ".touched", mebibytes)
    took = {"save": measured(save)}
    for tensor in loaded.values():
        tensor.to_local().zero_()
    took["load"] = measured(lambda: dcp.load(loaded, checkpoint_id=path))
    for name, tensor in saved.items():
        if not torch.equal(tensor.to_local(), loaded[name].to_local()):
            raise RuntimeError(f"{name} was loaded with other values than were saved")
    dist.barrier()
    if rank == 0:
        shutil.rmtree(path)
    return took


def combine(ranks):
    return {what: {"seconds": max(r[what]["seconds"] for r in ranks),
                   "cpu_seconds": sum(r[what]["cpu_seconds"] for r in ranks)}
            for what in ranks[0]}


def main():
    ranks, mebibytes, tensors = (int(word) for word in sys.argv[1:4])
    rows = (mebibytes << 18) // (COLUMNS * tensors)

    def prepare(rank):
        mesh = init_device_mesh("cpu", (ranks,))
        path = os.path.join(folder, "checkpoint")
        # What is done for the first time is not counted.
        small = [make_state(mesh, rank, ranks, 1, ranks) for _ in range(2)]
        one_round(path, rank, mebibytes, *small)
        saved, loaded = (
            make_state(mesh, rank, ranks, tensors, rows) for _ in range(2))
        total = torch.stack(
            [t.to_local().sum(dtype=torch.float64) for t in saved.values()]).sum()
        dist.all_reduce(total)
        return {"sum": total.item()}, lambda: one_round(
            path, rank, mebibytes, saved, loaded)

    with tempfile.TemporaryDirectory() as folder:
        answer_rounds(ranks, prepare, combine)


if __name__ == "__main__":
    main()
