"""A pipeline of two tensor-parallel stages trains as one device does: gradients, one
norm over both stages, AdamW in each of its forms; on threads and on processes."""
import os
import pathlib
import subprocess
import sys

import pytest

PROGRAM = pathlib.Path(__file__).resolve().parent / "programs/pipeline.py"
TESSERA = pathlib.Path(os.environ.get("TESSERA_BIN", "")) / "tessera"


@pytest.mark.parametrize("engine", ["threads", "gloo"])
def test_a_pipeline_trains_as_plain(engine):
    result = subprocess.run(
        [str(TESSERA), "run", "-n", "4", "--engine", engine, "--", sys.executable,
         str(PROGRAM)], text=True, capture_output=True, timeout=150,
        env={**os.environ, "OMP_NUM_THREADS": "1"})
    assert result.returncode == 0, result.stdout + result.stderr
    assert result.stdout.count("of 4: equal") == 4, result.stdout
