"""PyTorch's side of `tessera bench train`: the GPT of examples/gpt.h on DTensor.

Tensor parallelism by parallelize_module over Gloo processes, with data parallelism
around it where DP is more than 1. Prints one line of JSON when all ranks are ready:
PyTorch's version and the losses of the first WARM_UP steps, then reads one line from
standard input per round and answers each with one line: the seconds of a step over
STEPS of them, on the slowest rank. Ends at the end of the input.

    train_pytorch.py DP TP BATCH VOCABULARY LENGTH WIDTH HEADS HIDDEN LAYERS
                     WARM_UP STEPS
"""
import sys
import time
from typing import NamedTuple

import torch
import torch.distributed as dist
import torch.nn.functional as F
from gloo_ranks import Measure, answer_rounds
from gpt_model import Gpt, batch_of, set_values
from torch import nn
from torch.distributed.device_mesh import DeviceMesh, init_device_mesh
from torch.distributed.tensor import DTensor, Replicate
from torch.distributed.tensor.parallel import (
    ColwiseParallel, PrepareModuleInput, RowwiseParallel, parallelize_module)
from torch.distributed.tensor.parallel.ddp import _pre_dp_module_transform

LEARNING_RATE = 1e-3
BATCHES = 8  # different ones, used in turn


class Options(NamedTuple):
    dp: int
    tp: int
    batch: int
    vocabulary: int
    length: int
    width: int
    heads: int
    hidden: int
    layers: int
    warm_up: int
    steps: int


# The first line makes the input of attention a DTensor once for q, k and v, so that
# their gradients are added up in one reduction instead of three.
PLAN = {
    "blocks.*.attention": PrepareModuleInput(
        input_layouts=Replicate(), desired_input_layouts=Replicate()),
    "blocks.*.attention.[qkv]": ColwiseParallel(),
    "blocks.*.attention.o": RowwiseParallel(),
    "blocks.*.mlp.up": ColwiseParallel(),
    "blocks.*.mlp.down": RowwiseParallel(),
}


class Training:
    """One rank's model, optimizer and part of the data."""

    def __init__(self, o: Options):
        self.o = o
        mesh = init_device_mesh("cpu", (o.dp, o.tp), mesh_dim_names=("dp", "tp"))
        self.dp_group = mesh.get_group("dp")
        self.model = self.new_model(mesh)
        # No other form of AdamW was faster here. It takes either sharded or plain
        # parameters in one group.
        sharded = [p for p in self.model.parameters() if isinstance(p, DTensor)]
        plain = [p for p in self.model.parameters() if not isinstance(p, DTensor)]
        self.optimizer = torch.optim.AdamW(
            [{"params": group} for group in (sharded, plain) if group],
            lr=LEARNING_RATE, fused=True)
        part = mesh.get_local_rank("dp")
        self.batches = [
            [t.chunk(o.dp)[part] for t in batch_of(o, number)]
            for number in range(BATCHES)
        ]
        self.done = 0

    def new_model(self, mesh: DeviceMesh) -> nn.Module:
        model = Gpt(self.o)
        set_values(model)
        parallelize_module(model, mesh["tp"], PLAN)
        if self.o.dp == 1:
            return model
        # DDP reduces gradients in buckets during backward. Of the other ways tried none
        # was faster: one reduction of all gradients after backward took as long,
        # fully_shard about 1.4 times as long. DTensors on both mesh dims would reduce
        # every gradient by itself.
        _pre_dp_module_transform(model)
        return nn.parallel.DistributedDataParallel(model, process_group=self.dp_group)

    def step(self) -> torch.Tensor:
        inputs, targets = self.batches[self.done % BATCHES]
        self.done += 1
        self.optimizer.zero_grad()
        loss = F.cross_entropy(self.model(inputs).flatten(0, 1), targets.flatten())
        loss.backward()
        self.optimizer.step()
        return loss.detach()

    def warm_up(self) -> list[float]:
        """Makes the first steps; returns their losses, means over the whole batch."""
        losses = torch.stack([self.step() for _ in range(self.o.warm_up)])
        dist.all_reduce(losses, group=self.dp_group)
        return (losses / self.o.dp).tolist()

    def seconds_of_a_step(self) -> float:
        dist.barrier()
        begin = time.perf_counter()
        for _ in range(self.o.steps):
            self.step()
        dist.barrier()
        return (time.perf_counter() - begin) / self.o.steps


def main() -> None:
    o = Options(*(int(word) for word in sys.argv[1:]))

    def prepare(rank: int) -> tuple[dict[str, list[float]], Measure]:
        training = Training(o)
        return {"losses": training.warm_up()}, training.seconds_of_a_step

    answer_rounds(o.dp * o.tp, prepare, combine=max)


if __name__ == "__main__":
    main()
