"""PyTorch's side of `tessera bench dispatch`: what DTensor adds to an operator.

Reads one line from standard input per round and answers each with one line of
JSON. Ends at the end of the input.

    dispatch_pytorch.py hits BATCHES CALLS DEVICE
        two Gloo processes; per operator the median seconds of a call on plain
        shards and how much longer the same call on DTensors takes
    dispatch_pytorch.py misses SAMPLES LENGTHS SECONDS
        one process, a process group that sends nothing; the same for the first
        call with a new shape, on meshes of 1 to 3 dims, and for a step on
        sequences of ever new length. A row, and the lengths, take SECONDS at
        most: a row is then the median of fewer samples, the lengths are left
        out.
"""
import json
import os
import sys
import time
import warnings

import torch
import torch.distributed as dist
from gloo_ranks import answer_rounds
from torch.distributed.device_mesh import DeviceMesh, init_device_mesh
from torch.distributed.tensor import DTensor, Replicate, Shard, ones
from torch.distributed.tensor.debug import CommDebugMode

RANKS = 2
SIZE = 16
COLUMNS = 16
WARM_UP = 50


def linear_and_backward(x, weight, bias, gradient):
    torch.nn.functional.linear(x, weight, bias).backward(gradient)
    weight.grad = None
    bias.grad = None


def operators():
    """Returns name, (shape, placement, requires_grad) per operand, call."""
    rows = ((SIZE, SIZE), Shard(0), False)
    whole = ((SIZE, SIZE), Replicate(), False)
    vector = ((SIZE,), Replicate(), False)
    return [
        ("add", [rows, rows], torch.add),
        ("add_", [rows, rows], lambda a, b: a.add_(b)),
        ("mul by a number", [rows], lambda a: a * 0.5),
        ("mm", [rows, whole], torch.mm),
        ("t", [rows], lambda a: a.t()),
        ("view", [rows], lambda a: a.view(-1, 4, SIZE // 4)),
        ("softmax", [rows], lambda a: torch.softmax(a, 1)),
        ("sum", [rows], lambda a: torch.sum(a, 1)),
        ("cat", [rows, rows], lambda a, b: torch.cat([a, b], 1)),
        ("layer_norm", [rows, vector, vector],
         lambda a, w, b: torch.nn.functional.layer_norm(a, (SIZE,), w, b)),
        ("linear, backward",
         [whole, ((SIZE, SIZE), Shard(0), True), ((SIZE,), Shard(0), True),
          ((SIZE, SIZE), Shard(1), False)], linear_and_backward),
    ]


def plain_of(tensors):
    return [t.detach().to_local().clone().requires_grad_(t.requires_grad)
            for t in tensors]


def seconds_of(call, tensors, calls):
    begin = time.perf_counter()
    for _ in range(calls):
        call(*tensors)
    return time.perf_counter() - begin


def pair(call, plain, sharded, calls, plain_first):
    """Returns the seconds of a plain call and what the sharded one adds."""
    if plain_first:
        a = seconds_of(call, plain, calls)
        b = seconds_of(call, sharded, calls)
    else:
        b = seconds_of(call, sharded, calls)
        a = seconds_of(call, plain, calls)
    return a / calls, (b - a) / calls


def communicates(call, tensors):
    mode = CommDebugMode()
    with mode:
        call(*tensors)
    return mode.get_total_counts() > 0


def measure(mesh, batches, calls, device):
    """Returns the pairs of each operator on this rank, [] where it communicates."""
    found = {}
    for name, operands, call in operators():
        sharded = [
            ones(shape, device_mesh=mesh, placements=[placement])
            .requires_grad_(requires_grad)
            for shape, placement, requires_grad in operands
        ]
        plain = plain_of(sharded)
        found[name] = []
        if communicates(call, sharded):
            continue
        seconds_of(call, sharded, WARM_UP)
        seconds_of(call, plain, WARM_UP)
        for i in range(batches):
            found[name].append(pair(call, plain, sharded, calls, i % 2 == 0))
            if device == "cuda":
                torch.cuda.synchronize()
    return found


def middle(values):
    values = sorted(values)
    return values[len(values) // 2]


def medians(pairs):
    if not pairs:
        return {"communicates": True}
    plain, extra = zip(*pairs)
    return {"plain": middle(plain), "extra": middle(extra), "samples": len(pairs)}


def answer_hits(batches, calls, device):
    def prepare(rank):
        mesh = DeviceMesh(device, list(range(RANKS)))

        def after_the_others():
            dist.barrier()
            return measure(mesh, batches, calls, device)

        return {}, after_the_others

    def combine(found):
        return {name: medians(sum((f[name] for f in found), [])) for name in found[0]}

    answer_rounds(RANKS, prepare, combine)


def misses():
    """Returns name, placements of the operands, second operand square, call."""
    r, s0, s1 = Replicate(), Shard(0), Shard(1)

    def view(a, _):
        return a.view(-1, 4, COLUMNS // 4)

    return [
        ("add", [s0], [s0], False, torch.add),
        ("mm", [s0], [r], True, torch.mm),
        ("view", [s0], [s0], False, view),
        ("add", [s0, s1], [s0, s1], False, torch.add),
        ("mm", [s0, r], [r, s1], True, torch.mm),
        ("view", [s0, s1], [s0, s1], False, view),
        ("mm", [s0, s1, r], [r, s0, s1], True, torch.mm),
    ]


def first_call(mesh, rows, first, second, square, call, plain_first):
    sharded = [
        ones((rows, COLUMNS), device_mesh=mesh, placements=first),
        ones((COLUMNS if square else rows, COLUMNS), device_mesh=mesh,
             placements=second),
    ]
    return pair(call, plain_of(sharded), sharded, 1, plain_first)


def measure_misses(samples, seconds):
    found = {}
    for name, first, second, square, call in misses():
        mesh = init_device_mesh("cpu", (2,) * len(first))
        limit = time.perf_counter() + seconds
        pairs = []
        for i in range(-2, samples):
            pairs.append(first_call(
                mesh, 4 * (i + 3), first, second, square, call, i % 2 == 0))
            if i > 0 and time.perf_counter() > limit:
                break
        found[f"{name} {len(first)}"] = medians(pairs[2:])
    return found


def measure_lengths(lengths, seconds):
    def step(x, weight):
        return torch.softmax(torch.mm(torch.add(x, x), weight), 1)

    mesh = init_device_mesh("cpu", (2,))
    limit = time.perf_counter() + seconds
    extra = []
    for i in range(-2, lengths):
        extra.append(first_call(
            mesh, 4 + i, [Shard(0)], [Replicate()], True, step, i % 2 == 0)[1])
        if time.perf_counter() > limit:
            return None
    tenth = max(1, lengths // 10)
    return {"first": middle(extra[2:2 + tenth]), "last": middle(extra[-tenth:])}


def answer_misses(samples, lengths, seconds):
    from torch.testing._internal.distributed.fake_pg import FakeStore

    warnings.simplefilter("ignore")
    torch.set_num_threads(1)
    dist.init_process_group("fake", rank=0, world_size=8, store=FakeStore())
    print(json.dumps({"torch": torch.__version__}), flush=True)
    for _ in sys.stdin:
        found = measure_misses(samples, seconds)
        found["lengths"] = measure_lengths(lengths, seconds)
        print(json.dumps(found), flush=True)


def main():
    os.environ.setdefault("TORCH_CPP_LOG_LEVEL", "ERROR")
    os.environ.setdefault("TORCH_LOGS", "-all")
    if sys.argv[1] == "misses":
        answer_misses(int(sys.argv[2]), int(sys.argv[3]), float(sys.argv[4]))
    else:
        answer_hits(int(sys.argv[2]), int(sys.argv[3]), sys.argv[4])


if __name__ == "__main__":
    main()
