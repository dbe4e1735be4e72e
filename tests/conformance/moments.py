"""Random entries draw from the distribution that torch draws from."""
import math

import torch

from comparison import call, plain_leaves

DRAWS = 200
SAMPLES = 3
# Standard errors that two means may lie apart.
SIGMAS = 6


def moments(outputs: list) -> list[float]:
    """Returns the mean and the mean square of each floating output."""
    found = []
    for value in outputs:
        if isinstance(value, torch.Tensor) and value.numel():
            wide = value.detach().abs() if value.is_complex() else value.detach()
            wide = wide.to(torch.float64)
            found += [wide.mean().item(), wide.square().mean().item()]
    return found


def drawn(entry, number: int, backend) -> list[list[float]]:
    """Returns the moments of as many draws, by torch or by a backend's one rank."""
    sample, tensors = entry.samples[number], entry.tensors[number]
    found: list = []
    if backend is None:
        for draw in range(DRAWS):
            torch.manual_seed(draw)
            found.append(moments(
                call(entry.op, sample, tensors, plain_leaves(tensors))[0]))
        return found

    def body(rank: int) -> None:
        run = entry.sharded(backend.mesh((1,)))
        for draw in range(DRAWS):
            backend.seed(draw)
            outcome = run.outcome(sample, tensors, [("R",)] * len(tensors), None)
            found.append(moments(outcome.outputs))
    backend.run_world(1, body)
    return found


def moment_differences(entry) -> list[str]:
    """Lists the samples whose draws differ from torch's in mean or mean square."""
    numbers = sorted(entry.expected)
    found = []
    for number in numbers[:: max(1, len(numbers) // SAMPLES)][:SAMPLES]:
        ours, theirs = (torch.tensor(drawn(entry, number, b), dtype=torch.float64)
                        for b in (entry.backend, None))
        if ours.numel() == 0:
            continue
        error = ((ours.var(0) + theirs.var(0)) / DRAWS).sqrt()
        apart = (ours.mean(0) - theirs.mean(0)).abs()
        room = SIGMAS * error + 1e-6 * (1 + theirs.mean(0).abs())
        for place in (apart > room).nonzero().flatten().tolist():
            name = ("mean", "mean square")[place % 2]
            found.append(
                f"sample {number}, output {place // 2}: {name} "
                f"{ours.mean(0)[place]:.6g}, torch's {theirs.mean(0)[place]:.6g}, "
                f"{apart[place] / max(error[place].item(), math.ulp(1)):.1f} "
                f"standard errors apart")
    return found
