"""Modules of the user's own, how their parameters are cut, and a training loop."""
import math

import tessera
import torch
from torch import nn
from torch.nn import functional as F

DTYPE = torch.float64
VOCABULARY = 24


class Mlp(nn.Module):
    def __init__(self, width: int = 8, hidden: int = 12, out: int = 3) -> None:
        super().__init__()
        self.up = nn.Linear(width, hidden, dtype=DTYPE)
        self.down = nn.Linear(hidden, out, dtype=DTYPE)
        self.scale = nn.Parameter(torch.full((hidden,), 0.5, dtype=DTYPE))

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return self.down(torch.tanh(self.up(x)) * self.scale)


class Attention(nn.Module):
    def __init__(self, width: int, heads: int, by_hand: bool) -> None:
        super().__init__()
        self.heads, self.by_hand = heads, by_hand
        self.q = nn.Linear(width, width, dtype=DTYPE)
        self.k = nn.Linear(width, width, dtype=DTYPE)
        self.v = nn.Linear(width, width, dtype=DTYPE)
        self.out = nn.Linear(width, width, dtype=DTYPE)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        batch, length, width = x.shape
        q, k, v = (f(x).view(batch, length, self.heads, -1).transpose(1, 2)
                   for f in (self.q, self.k, self.v))
        if self.by_hand:
            scores = q @ k.transpose(-2, -1) / math.sqrt(width // self.heads)
            y = torch.softmax(scores, dim=-1) @ v
        else:
            y = F.scaled_dot_product_attention(q, k, v, is_causal=True)
        return self.out(y.transpose(1, 2).reshape(batch, length, width))


class Block(nn.Module):
    def __init__(self, width: int, heads: int, by_hand: bool) -> None:
        super().__init__()
        self.norm1 = nn.LayerNorm(width, dtype=DTYPE)
        self.attention = Attention(width, heads, by_hand)
        self.norm2 = nn.LayerNorm(width, dtype=DTYPE)
        self.up = nn.Linear(width, 2 * width, dtype=DTYPE)
        self.down = nn.Linear(2 * width, width, dtype=DTYPE)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        x = x + self.attention(self.norm1(x))
        return x + self.down(F.gelu(self.up(self.norm2(x))))


class Transformer(nn.Module):
    """One block with attention by hand, one with the fused operator."""

    def __init__(self, width: int = 16, heads: int = 4, length: int = 6) -> None:
        super().__init__()
        self.tokens = nn.Embedding(VOCABULARY, width, dtype=DTYPE)
        self.positions = nn.Parameter(torch.randn(length, width, dtype=DTYPE) / 4)
        self.blocks = nn.ModuleList(
            Block(width, heads, by_hand) for by_hand in (True, False))
        self.norm = nn.LayerNorm(width, dtype=DTYPE)
        self.head = nn.Linear(width, VOCABULARY, bias=False, dtype=DTYPE)

    def forward(self, ids: torch.Tensor) -> torch.Tensor:
        x = self.tokens(ids) + self.positions
        for block in self.blocks:
            x = block(x)
        return self.head(self.norm(x)).flatten(0, 1)


BY_ROWS = ("up", "q", "k", "v", "head", "tokens")
BY_COLUMNS = ("down", "out")


def cut(name: str, part: nn.Module, mesh: tessera.DeviceMesh) -> None:
    """Cuts linear layers along the last mesh dim, as tensor parallelism does."""
    whole = [tessera.Replicate()] * (mesh.ndim - 1)
    word = name.split(".")[-1]
    if word in BY_ROWS:
        for tensor in part.parameters(recurse=False):
            tessera.make_dtensor_(tensor, mesh, [*whole, tessera.Shard(0)])
    elif word in BY_COLUMNS:
        tessera.make_dtensor_(part.weight, mesh, [*whole, tessera.Shard(1)])


def make(kind: str) -> tuple[nn.Module, torch.Tensor, torch.Tensor]:
    """Returns a module with inputs and targets, alike wherever it is called."""
    generator = torch.Generator().manual_seed(3)
    module = Mlp() if kind == "mlp" else Transformer()
    with torch.no_grad():
        for name, parameter in module.named_parameters():
            is_scale = "norm" in name and name.endswith("weight")
            parameter.normal_(1.0 if is_scale else 0.0, 0.2, generator=generator)
    if kind == "mlp":
        return (module, torch.randn(8, 8, dtype=DTYPE, generator=generator),
                torch.randn(8, 3, dtype=DTYPE, generator=generator))
    ids = torch.randint(VOCABULARY, (4, 7), generator=generator)
    return module, ids[:, :-1].contiguous(), ids[:, 1:].contiguous()


def train(kind: str, module: nn.Module, x: torch.Tensor, y: torch.Tensor,
          steps: int = 6) -> list[float]:
    optimizer = torch.optim.AdamW(module.parameters(), lr=0.02)
    losses = []
    for _ in range(steps):
        optimizer.zero_grad()
        if kind == "mlp":
            loss = F.mse_loss(module(x), y)
        else:
            loss = F.cross_entropy(module(x), y.flatten())
        loss.backward()
        torch.nn.utils.clip_grad_norm_(module.parameters(), 1.0)
        optimizer.step()
        losses.append(loss.item())
    return losses


def train_plain(kind: str) -> list[float]:
    return train(kind, *make(kind))


def train_on(kind: str, mesh: tessera.DeviceMesh) -> list[float]:
    """Trains on a mesh: the batch along its first dim, layers along its last."""
    module, x, y = make(kind)
    batch = [tessera.Shard(0)] + [tessera.Replicate()] * (mesh.ndim - 1)
    tessera.distribute_module(module, mesh, cut)
    return train(kind, module, tessera.distribute_tensor(x, mesh, batch),
                 tessera.distribute_tensor(y, mesh, batch))
