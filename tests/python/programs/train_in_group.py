"""One process of a torch.distributed job that trains through from_process_group.

  train_in_group.py RANK SIZE STORE-FILE
"""
import json
import pathlib
import sys

sys.path.insert(0, str(pathlib.Path(__file__).resolve().parents[1]))

import models  # noqa: E402
import tessera  # noqa: E402
import torch  # noqa: E402
import torch.distributed as dist  # noqa: E402

rank, size, store = int(sys.argv[1]), int(sys.argv[2]), sys.argv[3]
dist.init_process_group("gloo", init_method=f"file://{store}", rank=rank,
                        world_size=size)


def train() -> dict[str, list[float]]:
    group = tessera.from_process_group(dist.group.WORLD, deadline=60)
    mesh = tessera.DeviceMesh.from_group([group], "cpu", dim_names=["tp"])
    return {kind: models.train_on(kind, mesh) for kind in ("mlp", "transformer")}


losses = train()
# The program's own group works beside it, and afterwards.
total = torch.tensor([rank + 1.0])
dist.all_reduce(total)
assert total.item() == size * (size + 1) / 2
dist.destroy_process_group()
print(json.dumps(losses))
