"""The GPT of examples/gpt.h, its weights and its batches: what PyTorch's sides of the
training benchmarks share. `o` has the fields batch, vocabulary, length, width, heads,
hidden and layers.

Scripts that travel inside the program carry this text where they import it
(benchmarks/CMakeLists.txt).
"""
from typing import Any

import torch
import torch.nn.functional as F
from torch import nn


class Attention(nn.Module):
    def __init__(self, o: Any):
        super().__init__()
        self.size = o.width // o.heads  # of a head: this rank may have some of them
        self.q = nn.Linear(o.width, o.width)
        self.k = nn.Linear(o.width, o.width)
        self.v = nn.Linear(o.width, o.width)
        self.o = nn.Linear(o.width, o.width)

    def split(self, x: torch.Tensor) -> torch.Tensor:
        return x.view(x.size(0), x.size(1), -1, self.size).transpose(1, 2)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        mixed = F.scaled_dot_product_attention(
            self.split(self.q(x)), self.split(self.k(x)), self.split(self.v(x)),
            is_causal=True)
        return self.o(mixed.transpose(1, 2).reshape(x.size(0), x.size(1), -1))


class Mlp(nn.Module):
    def __init__(self, o: Any):
        super().__init__()
        self.up = nn.Linear(o.width, o.hidden)
        self.down = nn.Linear(o.hidden, o.width)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return self.down(F.gelu(self.up(x)))


class Block(nn.Module):
    def __init__(self, o: Any):
        super().__init__()
        self.norm1 = nn.LayerNorm(o.width)
        self.attention = Attention(o)
        self.norm2 = nn.LayerNorm(o.width)
        self.mlp = Mlp(o)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        x = x + self.attention(self.norm1(x))
        return x + self.mlp(self.norm2(x))


class Gpt(nn.Module):
    def __init__(self, o: Any):
        super().__init__()
        self.tokens = nn.Embedding(o.vocabulary, o.width)
        self.positions = nn.Parameter(torch.empty(o.length, o.width))
        self.blocks = nn.ModuleList(Block(o) for _ in range(o.layers))
        self.norm = nn.LayerNorm(o.width)
        self.head = nn.Linear(o.width, o.vocabulary, bias=False)

    def forward(self, indices: torch.Tensor) -> torch.Tensor:
        x = self.tokens(indices) + self.positions
        for block in self.blocks:
            x = block(x)
        return self.head(self.norm(x))


@torch.no_grad()
def set_values(model: nn.Module) -> None:
    """Gives parameters the values of benchmarks/gpt_data.cpp."""
    for number, (name, parameter) in enumerate(model.named_parameters()):
        place = torch.arange(parameter.numel(), dtype=torch.float64)
        waves = torch.sin((place + 1) * (place + 100 * number)) * 0.05
        if "norm" in name and name.endswith("weight"):
            waves += 1
        parameter.copy_(waves.view(parameter.shape))


def batch_of(o: Any, number: int) -> tuple[torch.Tensor, torch.Tensor]:
    """Returns inputs and targets, those of benchmarks/gpt_data.cpp."""
    place = torch.arange(o.batch * (o.length + 1)) + 1000 * number
    text = ((place * place) // 7 + 3 * place) % o.vocabulary
    text = text.view(o.batch, o.length + 1)
    return text[:, :-1].contiguous(), text[:, 1:].contiguous()
