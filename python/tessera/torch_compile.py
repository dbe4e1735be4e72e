"""torch.compile of functions that meet sharded tensors: they run eagerly."""
import functools
import warnings
from typing import Any

import torch

from . import _C

_warned = False


def _warn() -> None:
    global _warned
    if not _warned:
        _warned = True
        warnings.warn(
            "torch.compile: a function that meets sharded tensors runs eagerly, since "
            "tracing asks for a storage of the whole; compile functions of plain tensors, "
            "as those given to local_map()", stacklevel=2)


@functools.cache
def _teach_dynamo() -> None:
    """Makes a frame that meets a sharded tensor one that is not compiled, as frames that
    tracing does not support are; what plain tensors do elsewhere stays compiled."""
    from torch._dynamo.exc import Unsupported
    from torch._dynamo.variables.builder import VariableBuilder
    wrap_plain = VariableBuilder.wrap_tensor

    def wrap_tensor(self: Any, value: torch.Tensor) -> Any:
        if _C.is_dtensor(value):
            _warn()
            raise Unsupported("sharded tensors run eagerly")
        return wrap_plain(self, value)

    VariableBuilder.wrap_tensor = wrap_tensor


def install() -> None:
    """Replaces torch.compile by one that knows sharded tensors."""
    compile_plain = torch.compile

    @functools.wraps(compile_plain)
    def compile(*args: Any, **kwargs: Any) -> Any:
        _teach_dynamo()
        return compile_plain(*args, **kwargs)

    torch.compile = compile
