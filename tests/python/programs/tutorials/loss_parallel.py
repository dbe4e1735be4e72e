"""Cross entropy of logits that stay cut along the vocabulary."""
import torch
from torch.distributed.device_mesh import init_device_mesh
from torch.distributed.tensor import Shard
from torch.distributed.tensor.debug import CommDebugMode
from torch.distributed.tensor.parallel import ColwiseParallel, loss_parallel
from torch.nn import functional as F

MESH_SHAPE = (4,)
# The model of tensor_parallel.py, read with the imports of this program.
exec(SOURCES["tensor_parallel"])  # noqa: F821


def main():
    mesh = init_device_mesh("cpu", MESH_SHAPE)
    torch.manual_seed(1)
    model = parallelize(Llama(), mesh, ColwiseParallel(
        input_layouts=Shard(1), output_layouts=Shard(-1), use_local_output=False))
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1, momentum=0.9)
    losses = []
    for step in range(4):
        ids, targets = batch(step)
        logits = model(ids)
        assert logits.placements == (Shard(2),)
        with loss_parallel(), CommDebugMode() as mode:
            loss = F.cross_entropy(logits.flatten(0, 1), targets.flatten())
        gathers = torch.ops.c10d_functional.all_gather_into_tensor
        assert mode.get_total_counts() > 0 and mode.get_comm_counts()[gathers] == 0, mode
        with loss_parallel():
            loss.backward()
        optimizer.step()
        optimizer.zero_grad()
        losses.append(loss.full_tensor().item())
    return losses
