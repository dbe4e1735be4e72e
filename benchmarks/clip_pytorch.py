"""PyTorch's side of `tessera bench clip`: clip_grad_norm_ of DTensors over Gloo processes.

Reads one line from standard input per round and answers each with one line of JSON: the
seconds of a call on the slowest rank and of CPU on all ranks, the norm before the first one
and the sum of all magnitudes after the last. Ends at the end of the input. Arguments:
ranks, tensors, rows, columns, calls.
"""
import sys
import time

import torch
import torch.distributed as dist
from gloo_ranks import answer_rounds
from torch.distributed.device_mesh import init_device_mesh
from torch.distributed.tensor import Shard, distribute_tensor

MAX_NORM = 0.5


def value(number, rows, columns):
    """Returns the values that the other side clips, too."""
    count = torch.arange(rows * columns, dtype=torch.float64)
    return (count * 0.7390851 + number).sin().reshape(rows, columns).float()


def parameter_with(gradient, mesh):
    cut = distribute_tensor(gradient, mesh, [Shard(0)], src_data_rank=None)
    p = torch.zeros_like(cut).requires_grad_()
    p.grad = cut
    return p


def prepare(ranks, tensors, rows, columns, calls):
    mesh = init_device_mesh("cpu", (ranks,))

    def clip(parameters):
        return torch.nn.utils.clip_grad_norm_(parameters, MAX_NORM)

    def measure():
        parameters = [parameter_with(value(i, rows, columns), mesh)
                      for i in range(tensors)]
        norm = clip(parameters).full_tensor().item()
        dist.barrier()
        cpu, begin = time.process_time(), time.perf_counter()
        for _ in range(calls):
            clip(parameters).full_tensor()
        dist.barrier()
        seconds = (time.perf_counter() - begin) / calls
        cpu = (time.process_time() - cpu) / calls
        total = sum(p.grad.full_tensor().abs().double().sum().item()
                    for p in parameters)
        return {"seconds": seconds, "cpu_seconds": cpu, "norm": norm, "sum": total}

    return {}, measure


def combine(answers):
    return {**answers[0], "seconds": max(a["seconds"] for a in answers),
            "cpu_seconds": sum(a["cpu_seconds"] for a in answers)}


def main():
    ranks, *sizes = (int(word) for word in sys.argv[1:])
    answer_rounds(ranks, lambda _: prepare(ranks, *sizes), combine)


if __name__ == "__main__":
    main()
