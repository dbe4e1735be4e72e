"""Two tensor-parallel stages on ranks {0, 1} and {2, 3}, trained as one program with
PyTorch's own clipping and AdamW; prints whether everything equals the plain run.

Run by pipeline_test.py on threads, and by `tessera run` on processes.
"""
import sys

import tessera
import torch
from torch import nn

STEPS = 3


def stage(seed: int) -> nn.Sequential:
    made = nn.Sequential(nn.Linear(6, 8), nn.ReLU(), nn.Linear(8, 6)).double()
    with torch.no_grad():
        for parameter in made.parameters():
            count = torch.arange(parameter.numel(), dtype=torch.double)
            parameter.copy_((count * 0.7 + seed).sin().view_as(parameter) / 3)
    return made


def cut(made: nn.Sequential, mesh: tessera.DeviceMesh) -> nn.Sequential:
    up, _, down = made
    for parameter, where in ((up.weight, "S(0)"), (up.bias, "S(0)"),
                             (down.weight, "S(1)"), (down.bias, "R")):
        tessera.make_dtensor_(parameter, mesh, where)
    return made


def data() -> torch.Tensor:
    return (torch.arange(30, dtype=torch.double) * 0.9).cos().view(5, 6)


def train(stages, x, move, form) -> tuple:
    """Returns the losses, the norms and the parameters."""
    parameters = [p for made in stages for p in made.parameters()]
    optimizer = torch.optim.AdamW(parameters, lr=0.01, **form)
    losses, norms = [], []
    for _ in range(STEPS):
        optimizer.zero_grad()
        loss = stages[1](move(stages[0](x))).square().mean()
        loss.backward()
        norms.append(torch.nn.utils.clip_grad_norm_(parameters, 0.05))
        optimizer.step()
        losses.append(loss.detach())
    return losses, norms, parameters


def plain(form: dict) -> tuple:
    return train([stage(1), stage(2)], data(), lambda y: y, form)


def parallel(form: dict) -> tuple:
    meshes = [tessera.DeviceMesh("cpu", torch.tensor(ranks)) for ranks in ([0, 1], [2, 3])]
    return train(
        [cut(stage(1), meshes[0]), cut(stage(2), meshes[1])],
        tessera.distribute_tensor(data(), meshes[0], "R"),
        lambda y: tessera.redistribute(y, meshes[1], "R"), form)


def is_equal(got: torch.Tensor, want: torch.Tensor) -> bool:
    """Compares where this rank has a part of the tensor."""
    if tessera.is_dtensor(got):
        if tessera.device_mesh(got).coordinate is None:
            return True
        got = tessera.full_tensor(got.detach())
    return torch.allclose(got.detach(), want.detach(), rtol=1e-12, atol=1e-12)


def differences(form: dict) -> list[str]:
    want = plain(form)
    got = parallel(form)
    return [f"{name} {i}" for name, mine, theirs in
            zip(("loss", "norm", "parameter"), got, want)
            for i, (a, b) in enumerate(zip(mine, theirs)) if not is_equal(a, b)]


def main() -> None:
    for form in ({"foreach": True}, {"foreach": False}, {"fused": True}):
        found = differences(form)
        if found:
            sys.exit(f"rank {tessera.rank()}, {form}: {', '.join(found)} differ")
    print(f"rank {tessera.rank()} of {tessera.world_size()}: equal")


if __name__ == "__main__":
    tessera.run(main)
