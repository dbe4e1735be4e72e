"""A Llama whose modules have the names of Hugging Face's, so that its state has those of
their files. Nothing in it knows of ranks: plan() and Cache.zeros are for a mesh.
"""
import dataclasses
import json
import pathlib
from typing import Any, Callable, Optional, Sequence

import tessera
import torch
from torch import nn
from torch.nn import functional as F


@dataclasses.dataclass(frozen=True)
class Config:
    """What config.json says, by its names."""
    vocab_size: int = 96
    hidden_size: int = 32
    intermediate_size: int = 80
    num_hidden_layers: int = 2
    num_attention_heads: int = 8
    num_key_value_heads: int = 4
    max_position_embeddings: int = 256
    rms_norm_eps: float = 1e-5
    rope_theta: float = 10000.0
    tie_word_embeddings: bool = False

    @classmethod
    def read(cls, folder: pathlib.Path) -> "Config":
        said = json.loads((folder / "config.json").read_text())
        return cls(**{field.name: said[field.name]
                      for field in dataclasses.fields(cls) if field.name in said})

    def write(self, folder: pathlib.Path) -> None:
        text = json.dumps({"architectures": ["LlamaForCausalLM"], "model_type": "llama",
                           **dataclasses.asdict(self)}, indent=2)
        (folder / "config.json").write_text(text)

    @property
    def head_size(self) -> int:
        return self.hidden_size // self.num_attention_heads


class Cache:
    """The keys and values of the words so far, of one layer. New ones are written in place:
    on a mesh each rank writes those of its heads, and nothing is sent."""

    def __init__(self, keys: torch.Tensor, values: torch.Tensor) -> None:
        self.keys, self.values, self.length = keys, values, 0

    @classmethod
    def zeros(cls, config: Config, batch: int, length: int,
              make: Callable[[Sequence[int]], torch.Tensor]) -> list["Cache"]:
        """One per layer, for `length` words; `make` says where they are."""
        shape = (batch, config.num_key_value_heads, length, config.head_size)
        return [cls(make(shape), make(shape)) for _ in range(config.num_hidden_layers)]

    def extend(self, keys: torch.Tensor,
               values: torch.Tensor) -> tuple[torch.Tensor, torch.Tensor]:
        begin, self.length = self.length, self.length + keys.shape[2]
        self.keys[:, :, begin:self.length] = keys
        self.values[:, :, begin:self.length] = values
        return self.keys[:, :, :self.length], self.values[:, :, :self.length]


class Attention(nn.Module):
    def __init__(self, config: Config) -> None:
        super().__init__()
        width, size = config.hidden_size, config.head_size
        self.heads, self.kv_heads = config.num_attention_heads, config.num_key_value_heads
        self.q_proj = nn.Linear(width, self.heads * size, bias=False)
        self.k_proj = nn.Linear(width, self.kv_heads * size, bias=False)
        self.v_proj = nn.Linear(width, self.kv_heads * size, bias=False)
        self.o_proj = nn.Linear(self.heads * size, width, bias=False)

    def forward(self, x: torch.Tensor, turns: tuple[torch.Tensor, torch.Tensor],
                cache: Optional[Cache]) -> torch.Tensor:
        batch, length, _ = x.shape

        def by_heads(projected: torch.Tensor, heads: int) -> torch.Tensor:
            return projected.view(batch, length, heads, -1).transpose(1, 2)

        def turned(t: torch.Tensor) -> torch.Tensor:
            half = t.shape[-1] // 2
            return t * turns[0] + torch.cat([-t[..., half:], t[..., :half]], -1) * turns[1]

        q = turned(by_heads(self.q_proj(x), self.heads))
        k = turned(by_heads(self.k_proj(x), self.kv_heads))
        v = by_heads(self.v_proj(x), self.kv_heads)
        if cache is not None:
            k, v = cache.extend(k, v)
        y = F.scaled_dot_product_attention(q, k, v, is_causal=length > 1, enable_gqa=True)
        return self.o_proj(y.transpose(1, 2).reshape(batch, length, -1))


class Mlp(nn.Module):
    def __init__(self, config: Config) -> None:
        super().__init__()
        width, hidden = config.hidden_size, config.intermediate_size
        self.gate_proj = nn.Linear(width, hidden, bias=False)
        self.up_proj = nn.Linear(width, hidden, bias=False)
        self.down_proj = nn.Linear(hidden, width, bias=False)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return self.down_proj(F.silu(self.gate_proj(x)) * self.up_proj(x))


class Layer(nn.Module):
    def __init__(self, config: Config) -> None:
        super().__init__()
        width, eps = config.hidden_size, config.rms_norm_eps
        self.self_attn, self.mlp = Attention(config), Mlp(config)
        self.input_layernorm = nn.RMSNorm(width, eps)
        self.post_attention_layernorm = nn.RMSNorm(width, eps)

    def forward(self, x: torch.Tensor, turns: tuple[torch.Tensor, torch.Tensor],
                cache: Optional[Cache]) -> torch.Tensor:
        x = x + self.self_attn(self.input_layernorm(x), turns, cache)
        return x + self.mlp(self.post_attention_layernorm(x))


class Model(nn.Module):
    cos: torch.Tensor
    sin: torch.Tensor

    def __init__(self, config: Config) -> None:
        super().__init__()
        self.embed_tokens = nn.Embedding(config.vocab_size, config.hidden_size)
        self.layers = nn.ModuleList(Layer(config) for _ in range(config.num_hidden_layers))
        self.norm = nn.RMSNorm(config.hidden_size, config.rms_norm_eps)
        size = config.head_size
        speeds = config.rope_theta ** (-torch.arange(0, size, 2) / size)
        angles = torch.arange(config.max_position_embeddings).unsqueeze(1) * speeds
        for name, table in (("cos", angles.cos()), ("sin", angles.sin())):
            self.register_buffer(name, torch.cat([table, table], -1), persistent=False)

    def forward(self, words: torch.Tensor,
                caches: Optional[Sequence[Cache]]) -> torch.Tensor:
        begin = caches[0].length if caches else 0
        end = begin + words.shape[1]
        turns = self.cos[begin:end], self.sin[begin:end]
        x = self.embed_tokens(words)
        for i, layer in enumerate(self.layers):
            x = layer(x, turns, caches[i] if caches else None)
        return self.norm(x)


class Llama(nn.Module):
    """Maps words [batch, length] to logits [batch, length, vocabulary]; with caches the
    words follow those that these have seen."""

    def __init__(self, config: Config) -> None:
        super().__init__()
        self.config = config
        self.model = Model(config)
        self.lm_head = nn.Linear(config.hidden_size, config.vocab_size, bias=False)
        if config.tie_word_embeddings:
            self.lm_head.weight = self.model.embed_tokens.weight

    def forward(self, words: torch.Tensor,
                caches: Optional[Sequence[Cache]] = None) -> torch.Tensor:
        return self.lm_head(self.model(words, caches))


def plan() -> dict[str, Any]:
    """Tensor parallelism: results stay sharded tensors, so the model needs no local sizes."""
    column = tessera.ColwiseParallel(use_local_output=False)
    row = tessera.RowwiseParallel(use_local_output=False)
    return {"model.embed_tokens": row,                       # by vocabulary
            "model.layers.*.self_attn.[qkv]_proj": column,   # by heads
            "model.layers.*.self_attn.o_proj": row,          # adds heads up
            "model.layers.*.mlp.gate_proj": column,
            "model.layers.*.mlp.up_proj": column,
            "model.layers.*.mlp.down_proj": row,
            "lm_head": column}                               # logits stay cut


def place(model: Llama, mesh: tessera.DeviceMesh) -> Llama:
    """Cuts the weights along tp; the rest is replicated."""
    tessera.parallelize_module(model, mesh, plan())
    tessera.distribute_module(model, mesh)
    return model


@torch.no_grad()
def generate(model: Llama, prompt: torch.Tensor, caches: Sequence[Cache],
             count: int) -> torch.Tensor:
    """The likeliest words after a prompt [batch, length], one by one: [batch, count]."""
    words = []
    logits = model(prompt, caches)
    while True:
        words.append(logits[:, -1:].argmax(-1))
        if len(words) == count:
            return torch.cat(words, 1)
        logits = model(words[-1], caches)
