"""FSDP2 and tensor parallelism of a small Llama on two sub-meshes of one mesh."""
import torch
from torch.distributed.device_mesh import init_device_mesh
from torch.distributed.fsdp import fully_shard
from torch.nn import functional as F

# The model of tensor_parallel.py, read with the imports of this program.
exec(SOURCES["tensor_parallel"])  # noqa: F821


def main():
    mesh = init_device_mesh("cpu", (2, 2), mesh_dim_names=("dp", "tp"))
    torch.manual_seed(0)
    model = parallelize(Llama(), mesh["tp"])  # noqa: F821
    for block in model.layers:
        fully_shard(block, mesh=mesh["dp"])
    fully_shard(model, mesh=mesh["dp"])
    optimizer = torch.optim.AdamW(model.parameters(), lr=0.01, foreach=True)
    sizes = [parameter.to_local().numel() for parameter in model.parameters()]
    losses = []
    for step in range(4):
        ids, targets = batch(step + 5 * mesh.get_local_rank("dp"))  # its own rows
        loss = F.cross_entropy(model(ids).flatten(0, 1), targets.flatten())
        loss.backward()
        optimizer.step()
        optimizer.zero_grad()
        losses.append(loss.item())
    return losses + [sum(sizes)]
