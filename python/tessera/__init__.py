"""Sharded tensors for PyTorch: one tensor whose data are spread over many ranks.

A sharded tensor is a torch.Tensor: torch.*, torch.nn and torch.optim work on it.

>>> def main():
...     mesh = tessera.init_device_mesh("cpu", (4,))
...     x = tessera.distribute_tensor(torch.arange(8.0), mesh, [tessera.Shard(0)])
...     return (x * x).sum().item()
>>> tessera.run_ranks(4, main)
[140.0, 140.0, 140.0, 140.0]
"""
import torch  # noqa: F401  (loads the libraries that _C needs)

from . import _C
from ._C import *  # noqa: F401,F403

__all__ = [name for name in dir(_C) if not name.startswith("_")]
