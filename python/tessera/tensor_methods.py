"""Methods of torch.Tensor that read a data pointer or make tensors of lists, for
sharded tensors too.

Others that need one (numpy, DLPack, pickle, torch.save) raise an
error that names to_local and full_tensor, which comes from the tensor itself.
"""
import copy
from typing import Any

import torch

from . import _C


def install(tensor_class: type[torch.Tensor]) -> None:
    """Replaces __repr__, __deepcopy__ and indexing; plain tensors use the old ones."""
    plain_repr = tensor_class.__repr__
    plain_deepcopy = tensor_class.__deepcopy__

    def __repr__(self: torch.Tensor, *, tensor_contents: Any = None) -> str:
        if _C.is_dtensor(self):
            return _repr(self)
        return plain_repr(self, tensor_contents=tensor_contents)

    def __deepcopy__(self: torch.Tensor, memo: dict) -> torch.Tensor:
        # What is no leaf is refused alike for both.
        if _C.is_dtensor(self) and self.is_leaf:
            return _deepcopy(self, memo)
        return plain_deepcopy(self, memo)

    tensor_class.__repr__ = __repr__
    tensor_class.__deepcopy__ = __deepcopy__
    _C._install_indexing(tensor_class)


def _repr(tensor: torch.Tensor) -> str:
    text = _C.to_string(tensor.detach())
    if tensor.grad_fn is not None:
        return f"{text}\ngrad_fn={tensor.grad_fn.name()}"
    return f"{text}\nrequires_grad=True" if tensor.requires_grad else text


def _deepcopy(tensor: torch.Tensor, memo: dict) -> torch.Tensor:
    if id(tensor) in memo:
        return memo[id(tensor)]
    result = tensor.detach().clone(memory_format=torch.preserve_format)
    if type(tensor) is not torch.Tensor:
        result = result.as_subclass(type(tensor))
    result.requires_grad_(tensor.requires_grad)
    memo[id(tensor)] = result
    if tensor.grad is not None:
        result.grad = copy.deepcopy(tensor.grad, memo)
    result.__dict__.update(copy.deepcopy(tensor.__dict__, memo))
    return result
