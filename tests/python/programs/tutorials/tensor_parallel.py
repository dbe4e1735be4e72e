"""Tensor and sequence parallelism of a small Llama, by a plan."""
import torch
from torch import nn
from torch.distributed.device_mesh import init_device_mesh
from torch.distributed.tensor import Replicate, Shard
from torch.distributed.tensor.parallel import (ColwiseParallel, PrepareModuleInput,
                                               RowwiseParallel, SequenceParallel,
                                               parallelize_module)
from torch.nn import functional as F

MESH_SHAPE = (4,)
WIDTH, WORDS = 16, 24


class Attention(nn.Module):
    def __init__(self, heads=4):
        super().__init__()
        self.n_heads = heads
        self.wq, self.wk, self.wv, self.wo = (
            nn.Linear(WIDTH, WIDTH, bias=False) for _ in range(4))

    def forward(self, x, mask):
        q, k, v = (f(x).view(*x.shape[:2], self.n_heads, -1).transpose(1, 2)
                   for f in (self.wq, self.wk, self.wv))
        y = F.scaled_dot_product_attention(q, k, v, is_causal=mask)
        return self.wo(y.transpose(1, 2).flatten(2))


class FeedForward(nn.Module):
    def __init__(self):
        super().__init__()
        self.w1, self.w3 = nn.Linear(WIDTH, 32), nn.Linear(WIDTH, 32)
        self.w2 = nn.Linear(32, WIDTH)

    def forward(self, x):
        return self.w2(F.silu(self.w1(x)) * self.w3(x))


class Block(nn.Module):
    def __init__(self):
        super().__init__()
        self.attention, self.feed_forward = Attention(), FeedForward()
        self.attention_norm, self.ffn_norm = nn.RMSNorm(WIDTH), nn.LayerNorm(WIDTH)

    def forward(self, x):
        x = x + self.attention(self.attention_norm(x), True)
        return x + self.feed_forward(self.ffn_norm(x))


class Llama(nn.Module):
    def __init__(self, layers=2):
        super().__init__()
        self.tok_embeddings = nn.Embedding(WORDS, WIDTH)
        self.layers = nn.ModuleList(Block() for _ in range(layers))
        self.norm, self.output = nn.RMSNorm(WIDTH), nn.Linear(WIDTH, WORDS, bias=False)

    def forward(self, ids):
        x = self.tok_embeddings(ids)
        for layer in self.layers:
            x = layer(x)
        return self.output(self.norm(x))


def parallelize(model, tp_mesh, output=None):
    model = parallelize_module(model, tp_mesh, {
        "tok_embeddings": RowwiseParallel(
            input_layouts=Replicate(), output_layouts=Shard(1)),
        "norm": SequenceParallel(),
        "output": output or ColwiseParallel(
            input_layouts=Shard(1), output_layouts=Replicate())})
    for block in model.layers:
        parallelize_module(module=block, device_mesh=tp_mesh, parallelize_plan={
            "attention_norm": SequenceParallel(),
            "attention": PrepareModuleInput(
                input_layouts=(Shard(1), None),
                desired_input_layouts=(Replicate(), None)),
            "attention.w[qkv]": ColwiseParallel(),
            "attention.wo": RowwiseParallel(output_layouts=Shard(1)),
            "ffn_norm": SequenceParallel(),
            "feed_forward": PrepareModuleInput(
                input_layouts=(Shard(1),), desired_input_layouts=(Replicate(),)),
            "feed_forward.w1": ColwiseParallel(),
            "feed_forward.w2": RowwiseParallel(output_layouts=Shard(1)),
            "feed_forward.w3": ColwiseParallel()})
        block.attention.n_heads //= tp_mesh.size()
    return model


def batch(step, rows=2):
    ids = torch.arange(step, step + rows * 9).reshape(rows, 9) * 7 % WORDS
    return ids[:, :-1], ids[:, 1:]


def main():
    mesh = init_device_mesh("cpu", MESH_SHAPE, mesh_dim_names=("tp",))
    torch.manual_seed(0)
    model = parallelize(Llama(), mesh)
    optimizer = torch.optim.AdamW(model.parameters(), lr=0.01, foreach=True)
    losses = []
    for step in range(4):
        ids, targets = batch(step)
        logits = model(ids)
        loss = F.cross_entropy(logits.flatten(0, 1), targets.flatten())
        loss.backward()
        optimizer.step()
        optimizer.zero_grad()
        losses.append(loss.item())
    return losses
