"""Serves a Llama in the files of Hugging Face on a mesh: each rank reads its own part of
every weight, keeps the keys and values of its heads, and the words are those of the same
model without ranks.

    tessera run -n 4 -- python3 examples/python/serve_llama.py [FOLDER] [--words 32]
    tessera run -n 2 --engine gloo -- python3 examples/python/serve_llama.py

FOLDER has config.json and model.safetensors, or model-00001-of-00002.safetensors ... and
model.safetensors.index.json; without one, the program makes one with random weights.
"""
import argparse
import pathlib
import shutil
import tempfile
import time

import tessera
import torch
from tessera import checkpoint

from llama import Cache, Config, Llama, generate, place

PROMPTS = ["Once upon a time", "sharded tensors,", "0123456789abcdef", "What is a mesh? "]


def encode(text: str) -> list[int]:
    """Letters are words here: the printable ones of ASCII."""
    return [ord(letter) - 32 for letter in text]


def decode(words: torch.Tensor) -> list[str]:
    return ["".join(chr(32 + word % 95) for word in row) for row in words.tolist()]


def write_random(folder: pathlib.Path, config: Config) -> None:
    barrier = tessera.init().communicator().barrier
    if tessera.rank() == 0:  # what a run that was killed has left
        shutil.rmtree(folder, ignore_errors=True)
    barrier()
    tessera.manual_seed(0)
    with tessera.ReplicatedRandom():  # the same on all ranks
        model = Llama(config)
    weights = {name: tensor.bfloat16() for name, tensor in model.state_dict().items()}
    checkpoint.save(weights, folder, format="safetensors")
    if tessera.rank() == 0:
        config.write(folder)
    barrier()


def load(model: Llama, folder: pathlib.Path) -> Llama:
    state = checkpoint.state_dict(model)
    checkpoint.load(state, folder, convert_dtype=True, only=["*.weight"])
    return model


def megatron_bytes(config: Config, rows: int, ranks: int) -> int:
    """What Megatron sends for a word of each row: the sums of two layers per block and of
    the embedding, and the logits."""
    width, words = config.hidden_size * 4, config.vocab_size * 4
    sums = (2 * config.num_hidden_layers + 1) * rows * width
    return 2 * (sums - sums // ranks) + rows * (words - words // ranks)


def words_per_second(model: Llama, prompt: torch.Tensor, make, count: int) -> float:
    """Of the second run: the first one decides and plans."""
    seconds = 0.0
    for _ in range(2):
        caches = Cache.zeros(model.config, len(prompt), prompt.shape[1] + count, make)
        begin = time.perf_counter()
        generate(model, prompt, caches, count)
        seconds = time.perf_counter() - begin
    return len(prompt) * count / seconds


def serve(folder: pathlib.Path, count: int) -> None:
    config = Config.read(folder)
    ranks = tessera.world_size()
    dp = 2 if ranks % 4 == 0 else 1
    mesh = tessera.init_device_mesh("cpu", (dp, ranks // dp), ("dp", "tp"))

    with tessera.DeferredInit():  # no rank ever holds the whole model
        model = Llama(config)
    load(place(model, mesh), folder)

    prompt = torch.tensor([encode(text) for text in PROMPTS])
    cut = tessera.distribute_tensor(prompt, mesh, "S(0) R")

    def on_mesh(shape):
        return tessera.zeros(shape, mesh, "S(0) S(1)")  # rows along dp, heads along tp

    length = prompt.shape[1] + count
    caches = Cache.zeros(config, len(prompt), length, on_mesh)
    words = generate(model, cut, caches, count - 1)
    with tessera.CommLog() as log, torch.no_grad():
        last = model(words[:, -1:], caches)[:, -1:].argmax(-1)
    got = tessera.full_tensor(torch.cat([words, last], 1))
    allowed = megatron_bytes(config, len(prompt) // dp, ranks // dp)
    speed = words_per_second(model, cut, on_mesh, count)

    barrier = tessera.init().communicator().barrier
    barrier()
    if tessera.rank() == 0:  # alone, while the others wait
        plain = load_alone(config, folder)
        alone = Cache.zeros(config, len(prompt), length, torch.zeros)
        want = generate(plain, prompt, alone, count)
        for text, answer in zip(PROMPTS, decode(got)):
            print(f"{text!r} goes on with {answer!r}")
        print("equal to the model without ranks" if torch.equal(got, want) else "differs")
        print(f"a word of each prompt sends {log.bytes} bytes, Megatron's {allowed}")
        print(f"{speed:.0f} words/s on {mesh}, without ranks "
              f"{words_per_second(plain, prompt, torch.zeros, count):.0f}")
    barrier()


def load_alone(config: Config, folder: pathlib.Path) -> Llama:
    """The same by the package of Hugging Face, without Tessera."""
    from safetensors.torch import load_file
    model = Llama(config)
    weights = {}
    for path in sorted(folder.glob("*.safetensors")):
        weights |= load_file(path)
    missing, unknown = model.load_state_dict(
        {name: tensor.float() for name, tensor in weights.items()}, strict=False)
    assert not unknown and set(missing) <= {"lm_head.weight"}, (missing, unknown)
    return model


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("folder", type=pathlib.Path, nargs="?")
    parser.add_argument("--words", type=int, default=32)
    parser.add_argument("--width", type=int, default=32, help="of the random model")
    arguments = parser.parse_args()
    folder = arguments.folder
    if folder is None:  # of this number of ranks
        folder = (pathlib.Path(tempfile.gettempdir())
                  / f"tessera_serve_{tessera.world_size()}")
        write_random(folder, Config(hidden_size=arguments.width,
                                    intermediate_size=5 * arguments.width // 2))
    serve(folder, arguments.words)
    if arguments.folder is None and tessera.rank() == 0:
        shutil.rmtree(folder)


tessera.run(main)
