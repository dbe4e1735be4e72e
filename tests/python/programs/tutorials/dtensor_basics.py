"""DTensors by hand: ways in and out, products, a module that is cut by a function."""
import torch
from torch import nn
from torch.distributed.device_mesh import init_device_mesh
from torch.distributed.tensor import (DTensor, Partial, Replicate, Shard,
                                      distribute_module, distribute_tensor, ones, zeros)

MESH_SHAPE = (4,)


class Net(nn.Module):
    def __init__(self):
        super().__init__()
        self.net1, self.net2 = nn.Linear(10, 32), nn.Linear(32, 5)

    def forward(self, x):
        return self.net2(torch.relu(self.net1(x)))


def main():
    mesh = init_device_mesh("cpu", MESH_SHAPE, mesh_dim_names=("tp",))
    found = []

    big = torch.arange(80.0).reshape(8, 10).sin()
    rows = distribute_tensor(big, device_mesh=mesh, placements=[Shard(0)])
    assert isinstance(rows, DTensor) and not isinstance(big, DTensor)
    assert rows.placements == (Shard(0),) and isinstance(rows.placements[0], Shard)
    assert rows.shape == (8, 10) and rows.to_local().shape == (2, 10)
    columns = rows.redistribute(mesh, [Shard(1)])
    assert columns.placements[0].is_shard(dim=1)
    product = columns @ distribute_tensor(big.t(), mesh, [Shard(0)])
    found.append(product.sum().full_tensor().item())

    part = DTensor.from_local(rows.to_local(), mesh, [Shard(0)], run_check=False)
    assert torch.equal(part.full_tensor(), big) and part.device_mesh == mesh
    addends = DTensor.from_local(torch.ones(3) * mesh.get_local_rank(), mesh, [Partial()])
    found.append(addends.redistribute(placements=[Replicate()]).to_local().sum().item())
    blank = zeros(3, 4, device_mesh=mesh, placements=[Shard(0)])
    filled = blank + ones((3, 4), device_mesh=mesh, placements=[Shard(1)])
    found.append(filled.sum().full_tensor().item())

    def cut(name, module, device_mesh):
        if isinstance(module, nn.Linear):
            for key, value in module.named_parameters():
                module.register_parameter(key, nn.Parameter(
                    distribute_tensor(value, device_mesh, [Shard(0)])))

    torch.manual_seed(0)
    net = distribute_module(
        Net(), mesh, cut,
        input_fn=lambda m, args, mesh: DTensor.from_local(args[0], mesh, [Replicate()]),
        output_fn=lambda m, result, mesh: result.full_tensor())
    optimizer = torch.optim.AdamW(net.parameters(), lr=0.01)
    for _ in range(3):
        optimizer.zero_grad()
        loss = net(big).square().mean()
        loss.backward()
        optimizer.step()
        found.append(loss.item())
    assert net.net1.weight.grad.placements == (Shard(0),)
    return found
