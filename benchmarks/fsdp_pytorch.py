"""PyTorch's side of `tessera bench fsdp`: the GPT of examples/gpt.h under fully_shard.

Each block is a group, the rest the root group, over Gloo processes. Prints one line of
JSON when all ranks are ready: PyTorch's version, the losses of the first WARM_UP steps,
calls and bytes of one step, and the most bytes a rank held above its model. Then reads one
line from standard input per round and answers each with one line: the seconds of a step
over STEPS of them, on the slowest rank. Ends at the end of the input.

    fsdp_pytorch.py RANKS COPIES BF16 MICRO_BATCHES KEEP BATCH VOCABULARY LENGTH WIDTH
                    HEADS HIDDEN LAYERS WARM_UP STEPS

COPIES: of the shards, on a mesh of two dims (HSDP); 1 for none. KEEP is what is kept
between micro-batches: 0 shards, 1 whole gradients, 2 those and gathered weights.
"""
import sys
import time
from typing import Any, NamedTuple

import torch
import torch.distributed as dist
import torch.nn.functional as F
from gloo_ranks import Measure, answer_rounds
from gpt_model import Gpt, batch_of, set_values
from torch.distributed.device_mesh import init_device_mesh
from torch.distributed.fsdp import MixedPrecisionPolicy, fully_shard

LEARNING_RATE = 1e-3
BATCHES = 8  # different ones, used in turn


class Options(NamedTuple):
    ranks: int
    copies: int
    bf16: int
    micro_batches: int
    keep: int
    batch: int
    vocabulary: int
    length: int
    width: int
    heads: int
    hidden: int
    layers: int
    warm_up: int
    steps: int


def memory(word: str) -> int:
    """Returns bytes of this process: VmRSS now, VmHWM at most since forget_peak()."""
    with open("/proc/self/status", encoding="utf-8") as status:
        return next(int(line.split()[1]) << 10 for line in status
                    if line.startswith(word))


def forget_peak() -> None:
    with open("/proc/self/clear_refs", "w", encoding="utf-8") as file:
        file.write("5")


class Traffic:
    """Counts calls and what a rank sends in them, as Tessera's CommLog does."""

    def __init__(self) -> None:
        self.calls = self.bytes = 0
        for name, times in (  # fully_shard calls the first two since PyTorch 2.13
                ("all_gather_single", 1), ("reduce_scatter_single", 1),
                ("all_gather_into_tensor", 1), ("reduce_scatter_tensor", 1),
                ("all_reduce", 2)):
            if hasattr(dist, name):
                setattr(dist, name, self.counting(getattr(dist, name), times))

    def counting(self, call: Any, times: int) -> Any:
        def counted(*args: Any, **kwargs: Any) -> Any:
            tensors = [t for t in (*args, *kwargs.values())
                       if isinstance(t, torch.Tensor)]
            size = dist.get_world_size(kwargs.get("group"))
            if size > 1:
                self.calls += 1
                held = max(t.numel() * t.element_size() for t in tensors)
                self.bytes += times * (held - held // size)
            return call(*args, **kwargs)
        return counted


class Training:
    """One rank's model, optimizer and part of the data."""

    def __init__(self, o: Options):
        self.o = o
        shards = o.ranks // o.copies
        mesh = (init_device_mesh("cpu", (o.copies, shards),
                                 mesh_dim_names=("replicate", "dp"))
                if o.copies > 1 else
                init_device_mesh("cpu", (shards,), mesh_dim_names=("dp",)))
        policy = (MixedPrecisionPolicy(
            param_dtype=torch.bfloat16, reduce_dtype=torch.float32)
            if o.bf16 else MixedPrecisionPolicy())
        self.model = Gpt(o)
        set_values(self.model)
        for block in self.model.blocks:
            fully_shard(block, mesh=mesh, mp_policy=policy)
        fully_shard(self.model, mesh=mesh, mp_policy=policy)
        self.optimizer = torch.optim.AdamW(
            self.model.parameters(), lr=LEARNING_RATE, fused=True)
        self.batches = [
            [t.chunk(o.ranks)[dist.get_rank()] for t in batch_of(o, number)]
            for number in range(BATCHES)
        ]
        self.done = 0

    def step(self) -> torch.Tensor:
        parts = self.o.micro_batches
        batch = self.batches[self.done % BATCHES]
        self.done += 1
        self.optimizer.zero_grad()
        total = torch.zeros(())
        for number, (inputs, targets) in enumerate(
                zip(*(t.chunk(parts) for t in batch))):
            is_last = number + 1 == parts
            if self.o.keep > 0:
                self.model.set_requires_gradient_sync(is_last)
            if self.o.keep > 1:
                self.model.set_reshard_after_backward(is_last)
                for block in self.model.blocks:
                    block.set_reshard_after_forward(is_last)
            logits = self.model(inputs).flatten(0, 1)
            loss = F.cross_entropy(logits.float(), targets.flatten()) / parts
            loss.backward()
            total += loss.detach()
        self.optimizer.step()
        return total

    def warm_up(self) -> list[float]:
        """Makes the first steps; returns their losses, means over the whole batch."""
        losses = torch.stack([self.step() for _ in range(self.o.warm_up)])
        dist.all_reduce(losses)
        return (losses / self.o.ranks).tolist()

    def seconds_of_a_step(self) -> float:
        dist.barrier()
        begin = time.perf_counter()
        for _ in range(self.o.steps):
            self.step()
        dist.barrier()
        return (time.perf_counter() - begin) / self.o.steps


def main() -> None:
    o = Options(*(int(word) for word in sys.argv[1:]))

    def prepare(rank: int) -> tuple[dict[str, Any], Measure]:
        training = Training(o)
        held = memory("VmRSS")
        forget_peak()
        losses = training.warm_up()
        peak = torch.tensor(memory("VmHWM") - held)
        dist.all_reduce(peak, op=dist.ReduceOp.MAX)
        traffic = Traffic()
        training.step()
        ready = {"losses": losses, "calls": traffic.calls, "bytes": traffic.bytes,
                 "peak_bytes": peak.item()}
        return ready, training.seconds_of_a_step

    answer_rounds(o.ranks, prepare, combine=max)


if __name__ == "__main__":
    main()
