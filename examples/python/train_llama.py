"""Trains a Llama: tensor parallelism along tp, parameters, gradients and optimizer states
cut along dp; saves it, goes on on another mesh, and writes the files that serve_llama.py
and other programs read.

    tessera run -n 4 -- python3 examples/python/train_llama.py [FOLDER] [--steps 12]
    torchrun --nproc-per-node 2 examples/python/train_llama.py

The losses are those of the same model without ranks.
"""
import argparse
import pathlib
import shutil
import tempfile
from typing import Callable, Optional

import tessera
import torch
from tessera import checkpoint
from torch.nn import functional as F

from llama import Config, Llama, place

CONFIG = Config(rope_theta=1000.0)
TEXT = "Once upon a time a tensor was cut in four, and nobody saw. " * 8
LENGTH, ROWS = 24, 8


def make() -> Llama:
    tessera.manual_seed(3)
    with tessera.ReplicatedRandom():  # the same on all ranks
        return Llama(CONFIG).double()


def batch(step: int) -> torch.Tensor:
    """Rows of LENGTH + 1 letters, others in each step."""
    words = torch.tensor([ord(letter) - 32 for letter in TEXT])
    begins = (torch.arange(ROWS) * 17 + step * 5) % (len(words) - LENGTH)
    return torch.stack([words[begin:begin + LENGTH + 1] for begin in begins])


class Training:
    """A model and its optimizer, on a mesh or without ranks."""

    def __init__(self, mesh: Optional[tessera.DeviceMesh] = None) -> None:
        self.mesh, self.model = mesh, make()
        if mesh is not None:
            place(self.model, mesh)
            self.sharded = tessera.fully_shard(
                self.model, mesh, groups=["model.layers.*"])
        self.optimizer = torch.optim.AdamW(self.model.parameters(), lr=0.01)

    def step(self, number: int) -> float:
        words = batch(number)
        if self.mesh is not None:
            words = tessera.distribute_tensor(words, self.mesh, "S(0) R")
        self.optimizer.zero_grad()
        logits = self.model(words[:, :-1])
        loss = F.cross_entropy(logits.flatten(0, 1), words[:, 1:].flatten())
        loss.backward()
        torch.nn.utils.clip_grad_norm_(self.model.parameters(), 1.0)
        self.optimizer.step()
        return loss.item()

    def state(self) -> dict:
        return checkpoint.state_dict(self.model, self.optimizer)


def export(model: Llama, folder: pathlib.Path) -> None:
    """The files of Hugging Face."""
    if tessera.rank() == 0:  # save() overwrites nothing that it has not written
        (folder / "config.json").unlink(missing_ok=True)
    tessera.init().communicator().barrier()
    # Cut weights would make a file per rank, which only tools for such files read.
    weights = {name: tessera.full_tensor(tensor.detach().bfloat16())
               for name, tensor in model.named_parameters()}
    checkpoint.save(weights, folder, format="safetensors", overwrite=True)
    if tessera.rank() == 0:
        CONFIG.write(folder)


def train(folder: pathlib.Path, steps: int, say: Callable[[str], None]) -> None:
    folder.mkdir(parents=True, exist_ok=True)
    plain = Training()
    want = [plain.step(i) for i in range(steps)]

    ranks, half = tessera.world_size(), steps // 2
    tp = 2 if ranks % 2 == 0 else 1
    first = Training(tessera.init_device_mesh("cpu", (ranks // tp, tp), ("dp", "tp")))
    losses = [first.step(i) for i in range(half)]
    checkpoint.save(first.state(), folder / "training", overwrite=True)

    shape = (1, ranks) if tp < ranks else (ranks, 1)  # another mesh
    second = Training(tessera.init_device_mesh("cpu", shape, ("dp", "tp")))
    checkpoint.load(second.state(), folder / "training")
    losses += [second.step(i) for i in range(half, steps)]
    export(second.model, folder / "served")

    say(f"loss {losses[0]:.3f} to {losses[-1]:.3f}")
    say(f"{first.mesh}: {tessera.spec(first.model.lm_head.weight)}")
    say(f"{second.mesh}: {tessera.spec(second.model.lm_head.weight)}")
    furthest = max(abs(a - b) for a, b in zip(losses, want))
    say("equal to the plain run" if furthest < 1e-10 else f"differs by {furthest}")


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("folder", type=pathlib.Path, nargs="?")
    parser.add_argument("--steps", type=int, default=12)
    arguments = parser.parse_args()
    folder = arguments.folder or (
        pathlib.Path(tempfile.gettempdir()) / f"tessera_train_{tessera.world_size()}")
    train(folder, arguments.steps,
          lambda line: print(line, flush=True) if tessera.rank() == 0 else None)
    tessera.init().communicator().barrier()
    if arguments.folder is None and tessera.rank() == 0:
        shutil.rmtree(folder)


tessera.run(main)
