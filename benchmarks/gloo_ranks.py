"""Gloo processes that measure in rounds: what PyTorch's sides of benchmarks share.

Scripts that travel inside the program carry this text where they import it
(benchmarks/CMakeLists.txt).
"""
import json
import os
import sys
import tempfile
import warnings
from multiprocessing.connection import Connection
from typing import Any, Callable

import torch
import torch.distributed as dist
import torch.multiprocessing as mp

Measure = Callable[[], Any]
# On a rank: makes ready, returns what to say about it and how to measure a round.
Prepare = Callable[[int], tuple[dict[str, Any], Measure]]


def work(rank: int, ranks: int, prepare: Prepare, store: str, pipe: Connection) -> None:
    warnings.simplefilter("ignore")
    torch.set_num_threads(1)
    dist.init_process_group(
        "gloo", init_method="file://" + store, rank=rank, world_size=ranks)
    ready, measure = prepare(rank)
    pipe.send(ready)
    while pipe.recv():
        pipe.send(measure())
    dist.destroy_process_group()


def answer_rounds(
        ranks: int, prepare: Prepare, combine: Callable[[list[Any]], Any]) -> None:
    """Prints one line of JSON when all ranks are ready: PyTorch's version and what
    rank 0 says. Then answers each line of the input with one: what `combine` makes of
    the ranks' measurements. Ends at the end of the input."""
    os.environ.setdefault("TORCH_CPP_LOG_LEVEL", "ERROR")
    os.environ.setdefault("TORCH_LOGS", "-all")
    context = mp.get_context("fork")
    ours, theirs = zip(*(context.Pipe() for _ in range(ranks)))
    with tempfile.TemporaryDirectory() as folder:
        store = os.path.join(folder, "store")
        workers = [
            context.Process(
                target=work, args=(r, ranks, prepare, store, theirs[r]), daemon=True)
            for r in range(ranks)
        ]
        for process in workers:
            process.start()
        ready = [pipe.recv() for pipe in ours][0]
        print(json.dumps({"torch": torch.__version__, **ready}), flush=True)
        for _ in sys.stdin:
            for pipe in ours:
                pipe.send(True)
            print(json.dumps(combine([pipe.recv() for pipe in ours])), flush=True)
        for pipe in ours:
            pipe.send(False)
        for process in workers:
            process.join(30)
