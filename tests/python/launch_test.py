"""One Python program under `tessera run` with every engine, and alone."""
import os
import pathlib
import shutil
import subprocess
import sys

import models
import pytest

PROGRAM = pathlib.Path(__file__).resolve().parent / "programs/launched.py"
TESSERA = pathlib.Path(os.environ.get("TESSERA_BIN", "")) / "tessera"


def run(*command, code=0):
    result = subprocess.run(
        [str(part) for part in command], text=True, capture_output=True, timeout=120,
        env={**os.environ, "OMP_NUM_THREADS": "1"})
    assert (result.returncode == 0) == (code == 0), result.stdout + result.stderr
    return result.stdout if code == 0 else result.stdout + result.stderr


def check(output, engine, size):
    line = next(l for l in output.splitlines() if engine in l)
    words = line[line.index(engine):].split()
    assert words[:2] == [engine, str(size)]
    want = models.train_plain("mlp")
    assert [float(w) for w in words[2:]] == pytest.approx(want, rel=0, abs=1e-10)


@pytest.mark.parametrize("engine, size", [("threads", 3), ("gloo", 2), ("mpi", 2)])
def test_the_same_program_on_every_engine(engine, size):
    built = (TESSERA.parent.parent / "lib/libtessera_mpi.so").exists()
    if engine == "mpi" and not (shutil.which("mpirun") and built):
        pytest.skip("no MPI here")
    check(run(TESSERA, "run", "-n", size, "--engine", engine, "--", sys.executable,
              PROGRAM), engine, size)


def test_alone_it_is_one_rank():
    output = run(sys.executable, PROGRAM)
    want = models.train_plain("mlp")
    assert [float(w) for w in output.split()[2:]] == pytest.approx(want, abs=1e-10)


@pytest.mark.parametrize("engine", ["threads", "gloo"])
def test_an_exception_of_one_rank_ends_the_job(engine):
    output = run(TESSERA, "run", "-n", 2, "--engine", engine, "--", sys.executable,
                 PROGRAM, "--fail", code=1)
    assert "LookupError: rank 1 gives up" in output
