"""A Llama-style program whose parameters live on a mesh and on one of its sub-meshes,
with PyTorch's own optimizers and clipping, as on plain tensors."""
import models
import pytest
import tessera
import torch
from torch import nn
from torch.nn import functional as F


class Attention(nn.Module):
    def __init__(self, width: int, heads: int) -> None:
        super().__init__()
        self.heads = heads
        for name in ("q", "k", "v", "out"):
            setattr(self, name, nn.Linear(width, width, bias=False, dtype=models.DTYPE))

    def forward(self, x: torch.Tensor, turn: tuple) -> torch.Tensor:
        batch, length, width = x.shape
        q, k, v = (f(x).view(batch, length, self.heads, -1).transpose(1, 2)
                   for f in (self.q, self.k, self.v))
        q, k = (self.turned(t, *turn) for t in (q, k))
        y = F.scaled_dot_product_attention(q, k, v, is_causal=True)
        return self.out(y.transpose(1, 2).reshape(batch, length, width))

    @staticmethod
    def turned(t: torch.Tensor, cos: torch.Tensor, sin: torch.Tensor) -> torch.Tensor:
        a, b = t.chunk(2, dim=-1)
        return t * cos + torch.cat((-b, a), dim=-1) * sin


class Block(nn.Module):
    def __init__(self, width: int, heads: int) -> None:
        super().__init__()
        self.norm1 = nn.RMSNorm(width, dtype=models.DTYPE)
        self.attention = Attention(width, heads)
        self.norm2 = nn.RMSNorm(width, dtype=models.DTYPE)
        self.up = nn.Linear(width, 2 * width, bias=False, dtype=models.DTYPE)
        self.gate = nn.Linear(width, 2 * width, bias=False, dtype=models.DTYPE)
        self.down = nn.Linear(2 * width, width, bias=False, dtype=models.DTYPE)

    def forward(self, x: torch.Tensor, turn: tuple) -> torch.Tensor:
        x = x + self.attention(self.norm1(x), turn)
        h = self.norm2(x)
        return x + self.down(F.silu(self.gate(h)) * self.up(h))


class Llama(nn.Module):
    def __init__(self, width: int = 16, heads: int = 4, length: int = 6) -> None:
        super().__init__()
        self.tokens = nn.Embedding(models.VOCABULARY, width, dtype=models.DTYPE)
        self.blocks = nn.ModuleList(Block(width, heads) for _ in range(2))
        self.norm = nn.RMSNorm(width, dtype=models.DTYPE)
        self.head = nn.Linear(width, models.VOCABULARY, bias=False, dtype=models.DTYPE)
        half = width // heads // 2
        angle = torch.outer(torch.arange(length, dtype=models.DTYPE),
                            10.0 ** -torch.arange(half, dtype=models.DTYPE))
        self.register_buffer("cos", torch.cat((angle, angle), -1).cos())
        self.register_buffer("sin", torch.cat((angle, angle), -1).sin())

    def forward(self, ids: torch.Tensor) -> torch.Tensor:
        x = self.tokens(ids)
        for block in self.blocks:
            x = block(x, (self.cos, self.sin))
        return self.head(self.norm(x)).flatten(0, 1)


def make() -> tuple:
    generator = torch.Generator().manual_seed(5)
    module = Llama()
    with torch.no_grad():
        for name, parameter in module.named_parameters():
            parameter.normal_(1.0 if "norm" in name else 0.0, 0.2, generator=generator)
    ids = torch.randint(models.VOCABULARY, (4, 7), generator=generator)
    return module, ids[:, :-1].contiguous(), ids[:, 1:].contiguous().flatten()


def cut(name: str, part: nn.Module, mesh: tessera.DeviceMesh) -> None:
    if name.endswith("gate"):
        tessera.make_dtensor_(part.weight, mesh, [tessera.Replicate(), tessera.Shard(0)])
    elif name != "head":  # has its place
        models.cut(name, part, mesh)


def make_on_two_meshes() -> tuple:
    """The head and the last norm on mesh["tp"], everything else on the mesh."""
    module, x, y = make()
    mesh = tessera.init_device_mesh("cpu", (2, 2), ["dp", "tp"])
    tp = mesh["tp"]
    tessera.make_dtensor_(module.norm.weight, tp, "R")
    tessera.make_dtensor_(module.head.weight, tp, "S(0)")
    tessera.distribute_module(module, mesh, cut)
    module.norm.register_forward_pre_hook(
        lambda _, given: (tessera.redistribute(given[0], tp, "R"),))
    return (module, tessera.distribute_tensor(x, mesh, "S(0) R"),
            tessera.distribute_tensor(y, tp, "R"))


def train(module: nn.Module, x: torch.Tensor, y: torch.Tensor, **form) -> list[float]:
    optimizer = torch.optim.AdamW(module.parameters(), lr=0.02, **form)
    values = []
    for _ in range(3):
        optimizer.zero_grad()
        loss = F.cross_entropy(module(x), y)
        loss.backward()
        norm = torch.nn.utils.clip_grad_norm_(module.parameters(), 0.5)
        optimizer.step()
        values += [loss.item(), norm.item()]
    return values


@pytest.mark.parametrize("form", [{}, {"foreach": True}, {"fused": True}])
def test_parameters_on_two_meshes_train_as_plain_ones(form):
    want = train(*make(), **form)
    for got in tessera.run_ranks(4, lambda: train(*make_on_two_meshes(), **form),
                                 deadline=120):
        assert got == pytest.approx(want, rel=1e-11, abs=1e-12)
