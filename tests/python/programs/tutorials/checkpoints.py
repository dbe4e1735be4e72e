"""Training is saved on one mesh and goes on, on another."""
import torch
import torch.distributed.checkpoint as dcp
from torch.distributed.device_mesh import init_device_mesh
from torch.distributed.tensor import Replicate, Shard, distribute_tensor
from torch.distributed.tensor.parallel import (ColwiseParallel, RowwiseParallel,
                                               parallelize_module)
from torch import nn


def make(mesh, first, second):
    torch.manual_seed(2)
    net = nn.Sequential(nn.Linear(6, 16), nn.GELU(), nn.Linear(16, 6))
    return parallelize_module(net, mesh, {"0": first(), "2": second()})


def train(net, steps):
    optimizer = torch.optim.SGD(net.parameters(), lr=0.1)
    x = torch.arange(24.0).reshape(4, 6).sin()
    losses = []
    for _ in range(steps):
        loss = (net(x) - x).square().mean()
        loss.backward()
        optimizer.step()
        optimizer.zero_grad()
        losses.append(loss.item())
    return losses


def main():
    mesh = init_device_mesh("cpu", (4,), mesh_dim_names=("tp",))
    net = make(mesh, ColwiseParallel, RowwiseParallel)
    extra = distribute_tensor(torch.arange(10.0), mesh, [Shard(0)])
    losses = train(net, 3)
    dcp.save({"model": net.state_dict(), "extra": extra}, checkpoint_id=FOLDER)  # noqa: F821
    losses += train(net, 2)

    grid = init_device_mesh("cpu", (2, 2), mesh_dim_names=("dp", "tp"))
    torch.manual_seed(9)
    again = parallelize_module(
        nn.Sequential(nn.Linear(6, 16), nn.GELU(), nn.Linear(16, 6)), grid["tp"],
        {"0": ColwiseParallel(), "2": RowwiseParallel()})
    state = {"model": again.state_dict(),
             "extra": distribute_tensor(torch.zeros(10), grid, [Shard(0), Replicate()])}
    dcp.load(state, checkpoint_id=FOLDER)  # noqa: F821
    again.load_state_dict(state["model"])
    losses += train(again, 2)
    assert losses[5:] == losses[3:5] or max(
        abs(a - b) for a, b in zip(losses[5:], losses[3:5])) < 1e-6
    return losses + [state["extra"].full_tensor().sum().item()]
