"""What training adds to a model of Python."""
from typing import Iterable, Optional, Union

import torch
from torch import nn

from . import _C


def clip_grad_norm(
        parameters: Union[torch.Tensor, Iterable[torch.Tensor]], max_norm: float,
        norm_type: float = 2.0, error_if_nonfinite: bool = False,
        stages: Optional[_C.Communicator] = None) -> torch.Tensor:
    """Scales gradients so that their common norm is at most max_norm; returns the norm.

    Parameters may be plain and on several meshes; the norm is plain, and one number on
    all ranks, also over the stages of a pipeline: stages=mesh.communicator("pp").

    >>> w = tessera.ones([4], mesh, "S(0)", requires_grad=True)
    >>> w.sum().backward()
    >>> tessera.clip_grad_norm([w], 1.0).item()
    2.0
    """
    if isinstance(parameters, torch.Tensor):
        parameters = [parameters]
    return _C._clip_grad_norm(
        list(parameters), max_norm, norm_type, error_if_nonfinite, stages)


class LossScaler:
    """Scales losses so that gradients of half precision do not vanish.

    Where a gradient is not finite the step is skipped, on all ranks alike, whatever meshes
    the parameters are on; stages=mesh.communicator("pp") are the stages of a pipeline.

    >>> w = tessera.ones([4], mesh, "S(0)", requires_grad=True)
    >>> optimizer = torch.optim.SGD([w], 0.1)
    >>> scaler = tessera.LossScaler(initial=1024)
    >>> scaler.scale(w.sum()).backward()
    >>> scaler.step(optimizer)
    True
    >>> scaler.update()
    >>> scaler.state_dict()
    {'scale': 1024.0, 'good_steps': 1}
    """

    def __init__(self, initial: float = 65536.0, growth: float = 2.0,
                 backoff: float = 0.5, interval: int = 2000,
                 stages: Optional[_C.Communicator] = None) -> None:
        self._scaler = _C._LossScaler(initial, growth, backoff, interval, stages)

    def scale(self, loss: torch.Tensor) -> torch.Tensor:
        """Returns the loss times the scale."""
        return self._scaler.scale(loss)

    def unscale(self, parameters: Iterable[torch.Tensor]) -> bool:
        """Divides gradients by the scale, in place; False where one is not finite."""
        return self._scaler.unscale(list(parameters))

    def unscale_once(self, parameters: Iterable[torch.Tensor]) -> bool:
        """Unscales those that are not yet; False where a gradient of any is not finite."""
        return self._scaler.unscale_once(list(parameters))

    def step(self, optimizer: torch.optim.Optimizer) -> bool:
        """Unscales what is not yet; steps, and returns True, where all is finite."""
        finite = self.unscale_once(
            p for group in optimizer.param_groups for p in group["params"])
        if finite:
            optimizer.step()
        return finite

    def update(self) -> None:
        """Ends an iteration: changes the scale."""
        self._scaler.update()

    def state_dict(self) -> dict[str, Union[float, int]]:
        """Returns what to save to continue."""
        scale, good_steps = self._scaler.state()
        return {"scale": scale, "good_steps": good_steps}

    def load_state_dict(self, state: dict[str, Union[float, int]]) -> None:
        """Continues from what state_dict() returned."""
        self._scaler.set_state(state["scale"], state["good_steps"])


class Ema:
    """Moving averages of a module's parameters, shard by shard; nothing is communicated.

    Make it after the parameters are sharded. averages() are to be saved, or loaded in
    place.

    >>> net = torch.nn.Linear(2, 2)
    >>> ema = tessera.Ema(net, 0.999)
    >>> ema.update()
    >>> with ema.swap():  # the module holds the averages
    ...     y = net(torch.ones(2))
    """

    def __init__(self, module: nn.Module, decay: float = 0.999,
                 dtype: torch.dtype = torch.float32) -> None:
        if not 0 <= decay <= 1:
            raise ValueError(f"Ema: the decay must be between 0 and 1; got {decay}")
        if not dtype.is_floating_point:
            raise ValueError(f"Ema: averages need a floating dtype; got {dtype}")
        self._decay = decay
        self._swapped = False
        self._all = [
            (name, p, p.detach().to(torch.promote_types(p.dtype, dtype), copy=True))
            for name, p in module.named_parameters()
            if p.is_floating_point() or p.is_complex()]

    def _check(self, call: str) -> None:
        if self._swapped:
            raise ValueError(
                f"{call}: the module holds the averages now; end swap() first")
        for name, p, average in self._all:
            sharded = _C.is_dtensor(p)
            if p.shape != average.shape or sharded != _C.is_dtensor(average) or (
                    sharded and (_C.device_mesh(p) != _C.device_mesh(average)
                                 or _C.placements(p) != _C.placements(average))):
                raise ValueError(
                    f"{call}: parameter '{name}' lies elsewhere than its average; make "
                    "the Ema after the parameters are sharded")

    @torch.no_grad()
    def update(self) -> None:
        """Makes each average decay * average + (1 - decay) * parameter."""
        self._check("Ema.update")
        for _, p, average in self._all:
            average.lerp_(p.detach().to(average.dtype), 1 - self._decay)

    def averages(self) -> dict[str, torch.Tensor]:
        """Returns the averages by the names of the parameters."""
        return {name: average for name, _, average in self._all}

    def swap(self) -> "_Swap":
        """Inside `with`, the module holds the averages; then its own values again."""
        return _Swap(self)


class _Swap:
    def __init__(self, ema: Ema) -> None:
        self._ema = ema
        self._own: list[torch.Tensor] = []

    @torch.no_grad()
    def __enter__(self) -> None:
        self._ema._check("Ema.swap")
        self._own = [p.detach().clone() for _, p, _ in self._ema._all]
        for _, p, average in self._ema._all:
            p.detach().copy_(average)
        self._ema._swapped = True

    @torch.no_grad()
    def __exit__(self, *exception: object) -> None:
        for (_, p, _), own in zip(self._ema._all, self._own):
            p.detach().copy_(own)
        self._ema._swapped = False
