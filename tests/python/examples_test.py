"""The programs of examples/python, in small form, on threads and on processes over Gloo."""
import json
import os
import pathlib
import re
import subprocess
import sys

import pytest

EXAMPLES = pathlib.Path(__file__).resolve().parents[2] / "examples/python"
TESSERA = pathlib.Path(os.environ.get("TESSERA_BIN", "")) / "tessera"


def run(ranks, engine, program, *arguments):
    result = subprocess.run(
        [str(part) for part in (TESSERA, "run", "-n", ranks, "--engine", engine, "--",
                                sys.executable, EXAMPLES / program, *arguments)],
        text=True, capture_output=True, timeout=120,
        env={**os.environ, "OMP_NUM_THREADS": "1"})
    assert result.returncode == 0, result.stdout + result.stderr
    return re.sub(r"^\[\d+\] ", "", result.stdout, flags=re.M)


def check_served(output, rows, tp):
    assert "equal to the model without ranks" in output, output
    sent, allowed = map(int, re.search(
        r"a word of each prompt sends (\d+) bytes, Megatron's (\d+)", output).groups())
    # All-reduces: of the width, twice per layer and once for the embedding; then of the
    # likeliest logit and its index.
    reduced = rows * (5 * 32 * 4 + 4 + 8)
    assert sent == 2 * (reduced - reduced // tp) < allowed, output
    assert re.search(r"\d+ words/s on mesh\(.*\), without ranks \d+", output), output


@pytest.fixture(scope="module")
def trained(tmp_path_factory):
    """What training on threads prints, and its folder."""
    folder = tmp_path_factory.mktemp("llama")
    return run(4, "threads", "train_llama.py", folder, "--steps", 8), folder


def test_training_goes_on_on_another_mesh_with_the_losses_of_the_plain_run(trained):
    output, folder = trained
    assert "equal to the plain run" in output, output
    assert "mesh(dp=2, tp=2): f64[96, 32]" in output and "mesh(dp=1, tp=4)" in output
    index = json.loads((folder / "served/model.safetensors.index.json").read_text())
    names = set(index["weight_map"])
    assert "model.layers.1.self_attn.k_proj.weight" in names and len(names) == 21


def test_what_was_trained_is_served_by_processes(trained):
    output = run(2, "gloo", "serve_llama.py", trained[1] / "served", "--words", 8)
    check_served(output, rows=4, tp=2)
    assert "mesh(dp=1, tp=2)" in output


def test_random_weights_are_served_by_threads():
    output = run(4, "threads", "serve_llama.py", "--words", 8)
    check_served(output, rows=2, tp=2)
    assert "mesh(dp=2, tp=2)" in output
