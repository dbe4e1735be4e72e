"""Sharded tensors for PyTorch: one tensor whose data are spread over many ranks.

A sharded tensor is a torch.Tensor: torch.*, torch.nn and torch.optim work on it.

>>> def main():
...     mesh = tessera.init_device_mesh("cpu", (4,))
...     x = tessera.distribute_tensor(torch.arange(8.0), mesh, [tessera.Shard(0)])
...     return (x * x).sum().item()
>>> tessera.run_ranks(4, main)
[140.0, 140.0, 140.0, 140.0]
"""
import atexit

import torch  # its libraries must be loaded before those of _C

from .build_info import TORCH_SERIES, VERSION as __version__

if not torch.__version__.startswith(TORCH_SERIES + "."):
    raise ImportError(
        f"tessera was built with torch {TORCH_SERIES} and this is torch "
        f"{torch.__version__}; install the wheel of this torch (`make wheel` builds one), "
        f"or torch {TORCH_SERIES}")

from . import _C, checkpoint, sharded_tensor, tensor_methods, torch_compile
from ._C import *  # noqa: F403
from .modules import (check_replicas, distribute_module, distribute_optimizer,
                      materialize)
from .parallel import local_map, loss_parallel, parallelize_module
from .parallel_style import ParallelStyle, StyledModule
from .styles import (ColwiseParallel, ParameterParallel, PrepareModuleInput,
                     PrepareModuleInputOutput, PrepareModuleOutput, RowwiseParallel,
                     SequenceParallel)
from .training import Ema, LossScaler, clip_grad_norm
from .torch_dtensor import from_torch, to_torch

__all__ = sorted(
    [name for name in vars(_C) if not name.startswith("_")]
    + ["ColwiseParallel", "Ema", "LossScaler", "ParallelStyle", "ParameterParallel",
       "PrepareModuleInput", "PrepareModuleInputOutput", "PrepareModuleOutput",
       "RowwiseParallel", "SequenceParallel", "StyledModule", "check_replicas",
       "clip_grad_norm", "distribute_module", "distribute_optimizer", "from_torch",
       "local_map", "loss_parallel", "materialize", "parallelize_module", "to_torch"])
tensor_methods.install(torch.Tensor)
torch_compile.install()
# What is kept of past calls keeps groups, whose threads must not run on while
# Python ends.
atexit.register(_C._clear_caches)
