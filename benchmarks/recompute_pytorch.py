"""PyTorch's side of `tessera bench recompute`: torch.utils.checkpoint, one process.

Reads one line from standard input per round and answers each with one line of JSON: for
each way of running the blocks the seconds of CPU of a step (median over the repeats), the most
bytes that it held and its loss. Ends at the end of the input. Arguments: rows, width,
blocks, repeats.
"""
import json
import sys
import time

import torch
from torch import nn
from torch.profiler import ProfilerActivity, profile
from torch.utils.checkpoint import checkpoint


def value(shape, shift):
    """Returns the values that the other side computes with, too."""
    count = torch.arange(torch.Size(shape).numel(), dtype=torch.float64)
    return (count * 0.7390851 + shift).sin().mul(0.05).reshape(shape).float()


class Block(nn.Module):
    def __init__(self, width, shift):
        super().__init__()
        self.norm = nn.LayerNorm(width)
        self.up = nn.Linear(width, 4 * width)
        self.down = nn.Linear(4 * width, width)
        with torch.no_grad():
            for p in (self.up.weight, self.up.bias, self.down.weight, self.down.bias):
                p.copy_(value(p.shape, shift))

    def forward(self, x):
        return x + self.down(nn.functional.gelu(self.up(self.norm(x))))


WAYS = {
    "plain": lambda block, x: block(x),
    "reentrant": lambda block, x: checkpoint(block, x, use_reentrant=True),
    "not reentrant": lambda block, x: checkpoint(block, x, use_reentrant=False),
}


def step(blocks, x, run):
    x.grad = None
    for block in blocks:
        block.zero_grad(set_to_none=False)  # gradients stay where they are
    h = x
    for block in blocks:
        h = run(block, h)
    loss = h.square().mean()
    del h
    loss.backward()
    return loss.item()


def peak_of(body):
    """Returns the most bytes that the body held beyond what was there before."""
    with profile(activities=[ProfilerActivity.CPU], profile_memory=True) as profiler:
        body()
    events = [e for e in profiler.profiler.kineto_results.events()
              if e.name() == "[memory]"]
    now = most = 0
    for event in sorted(events, key=lambda e: e.start_ns()):
        now += event.nbytes()
        most = max(most, now)
    return most


def measure(blocks, x, repeats):
    answer = {}
    for name, run in WAYS.items():
        loss = step(blocks, x, run)
        peak = peak_of(lambda run=run: step(blocks, x, run))
        seconds = []
        for _ in range(repeats):
            begin = time.process_time()
            step(blocks, x, run)
            seconds.append(time.process_time() - begin)
        answer[name] = {"seconds": sorted(seconds)[len(seconds) // 2],
                        "peak": peak, "loss": loss}
    return answer


def main():
    rows, width, count, repeats = (int(word) for word in sys.argv[1:5])
    torch.set_num_threads(1)
    blocks = [Block(width, 0.1 * i) for i in range(count)]
    x = value((rows, width), 0.5).mul(20).requires_grad_()
    print(json.dumps({"torch": torch.__version__}), flush=True)
    for _ in sys.stdin:
        print(json.dumps(measure(blocks, x, repeats)), flush=True)


if __name__ == "__main__":
    main()
