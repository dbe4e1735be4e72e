"""A Llama that the safetensors package wrote, as Hugging Face lays its files out, is
read by example 09 into a model on a mesh: it answers as PyTorch does.

    TESSERA_BIN=build/bin python tests/checkpoint/hugging_face_test.py

The model here is written down anew, so that both have to mean the same by every name.
"""
import json
import os
import pathlib
import re
import subprocess
import tempfile
import unittest

import torch
from safetensors.torch import save_file

BIN = pathlib.Path(os.environ["TESSERA_BIN"])
VOCABULARY, WIDTH, HEADS, KV_HEADS, HIDDEN, LAYERS = 61, 48, 4, 4, 100, 3
LARGEST_FILE = 80_000  # bytes


def random_weights(dtype, tied, kv_heads=KV_HEADS):
    generator = torch.Generator().manual_seed(5)
    head = WIDTH // HEADS
    shapes = {"model.embed_tokens.weight": (VOCABULARY, WIDTH)}
    for i in range(LAYERS):
        layer = f"model.layers.{i}."
        shapes |= {
            layer + "self_attn.q_proj.weight": (HEADS * head, WIDTH),
            layer + "self_attn.k_proj.weight": (kv_heads * head, WIDTH),
            layer + "self_attn.v_proj.weight": (kv_heads * head, WIDTH),
            layer + "self_attn.o_proj.weight": (WIDTH, HEADS * head),
            layer + "mlp.gate_proj.weight": (HIDDEN, WIDTH),
            layer + "mlp.up_proj.weight": (HIDDEN, WIDTH),
            layer + "mlp.down_proj.weight": (WIDTH, HIDDEN),
            layer + "input_layernorm.weight": (WIDTH,),
            layer + "post_attention_layernorm.weight": (WIDTH,)}
    shapes["model.norm.weight"] = (WIDTH,)
    if not tied:
        shapes["lm_head.weight"] = (VOCABULARY, WIDTH)
    return {name: (torch.randn(shape, generator=generator) * 0.2
                   + (1 if "norm" in name else 0)).to(dtype)
            for name, shape in shapes.items()}


def write(folder, weights):
    """As save_pretrained(): files up to a size, and their index."""
    files, size = [{}], 0
    for name, tensor in weights.items():
        if files[-1] and size + tensor.nbytes > LARGEST_FILE:
            files.append({})
            size = 0
        files[-1][name] = tensor
        size += tensor.nbytes
    if len(files) == 1:
        save_file(files[0], folder / "model.safetensors", metadata={"format": "pt"})
    else:
        weight_map = {}
        for i, file in enumerate(files):
            path = f"model-{i + 1:05}-of-{len(files):05}.safetensors"
            save_file(file, folder / path, metadata={"format": "pt"})
            weight_map |= dict.fromkeys(file, path)
        total = sum(tensor.nbytes for tensor in weights.values())
        (folder / "model.safetensors.index.json").write_text(json.dumps(
            {"metadata": {"total_size": total, "total_parameters": 1},
             "weight_map": dict(sorted(weight_map.items()))}, indent=2))
    (folder / "config.json").write_text('{"model_type": "llama"}')
    (folder / "tokenizer.json").write_text("{}")
    return len(files)


def logits(stored, indices, kv_heads=KV_HEADS):
    w = {name: tensor.double() for name, tensor in stored.items()}
    head = WIDTH // HEADS
    turns = 1e4 ** (-torch.arange(0, head, 2, dtype=torch.float64) / head)
    angles = torch.outer(torch.arange(len(indices), dtype=torch.float64), turns)
    rotations = torch.polar(torch.ones_like(angles), angles)

    def norm(x, name):
        return torch.nn.functional.rms_norm(x, (WIDTH,), w[name], eps=1e-5)

    def rotate(x):  # x[i] and x[i + head / 2] are one complex number
        turned = torch.complex(x[..., :head // 2], x[..., head // 2:]) * rotations
        return torch.cat([turned.real, turned.imag], -1)

    def project(x, name, heads):
        return (x @ w[name].T).view(len(indices), heads, head).transpose(0, 1)

    x = w["model.embed_tokens.weight"][indices]
    for i in range(LAYERS):
        attention, mlp = (f"model.layers.{i}.{part}." for part in ("self_attn", "mlp"))
        y = norm(x, f"model.layers.{i}.input_layernorm.weight")
        q = rotate(project(y, attention + "q_proj.weight", HEADS))
        k = rotate(project(y, attention + "k_proj.weight", kv_heads))
        v = project(y, attention + "v_proj.weight", kv_heads)
        k, v = (t.repeat_interleave(HEADS // kv_heads, 0) for t in (k, v))
        scores = q @ k.transpose(1, 2) / head ** 0.5
        scores += torch.full_like(scores, -torch.inf).triu(1)
        mixed = (scores.softmax(-1) @ v).transpose(0, 1).flatten(1)
        x = x + mixed @ w[attention + "o_proj.weight"].T
        y = norm(x, f"model.layers.{i}.post_attention_layernorm.weight")
        gate = torch.nn.functional.silu(y @ w[mlp + "gate_proj.weight"].T)
        x = x + (gate * (y @ w[mlp + "up_proj.weight"].T)) @ w[mlp + "down_proj.weight"].T
    last = "lm_head" if "lm_head.weight" in w else "model.embed_tokens"
    return norm(x, "model.norm.weight") @ w[last + ".weight"].T


class LlamaTest(unittest.TestCase):

    def check(self, dtype, tied, kv_heads=KV_HEADS, files=None, rank_counts=(4,)):
        weights = random_weights(dtype, tied, kv_heads)
        want = logits(weights, torch.arange(1, 8), kv_heads)[-1]
        with tempfile.TemporaryDirectory() as name:
            count = write(pathlib.Path(name), weights)
            self.assertEqual(count > 1, files != 1)
            for ranks in rank_counts:
                with self.subTest(dtype=dtype, tied=tied, ranks=ranks):
                    done = subprocess.run(
                        [BIN / "09_llama", name, str(HEADS)], capture_output=True,
                        text=True, timeout=60, env={
                            **os.environ, "TESSERA_ENGINE": "threads",
                            "TESSERA_NUM_RANKS": str(ranks)})
                    self.assertEqual(done.returncode, 0, done.stderr)
                    self.assertIn("equal to the model without ranks", done.stdout)
                    word, logit = re.search(
                        r"word (\d+), logit (\S+)", done.stdout).groups()
                    self.assertEqual(int(word), want.argmax().item())
                    self.assertAlmostEqual(float(logit), want.max().item(), delta=1e-12)

    def test_bfloat16_in_several_files(self):
        self.check(torch.bfloat16, tied=False, rank_counts=(1, 2, 4))

    def test_float32_with_tied_weights(self):
        self.check(torch.float32, tied=True)

    def test_keys_and_values_that_serve_two_queries_each(self):
        self.check(torch.float32, tied=False, kv_heads=2, rank_counts=(2,))

    def test_one_file_without_an_index(self):
        global LARGEST_FILE
        before, LARGEST_FILE = LARGEST_FILE, 2**30
        try:
            self.check(torch.bfloat16, tied=True, files=1)
        finally:
            LARGEST_FILE = before


if __name__ == "__main__":
    unittest.main()
