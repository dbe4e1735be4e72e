"""Starts programs as the processes of one job, without a port."""
import os
import pathlib
import subprocess
import sys
import tempfile

PROGRAMS = pathlib.Path(__file__).resolve().parent / "programs"
LIMIT_S = 200


def run_job(program: str, size: int) -> list[str]:
    """Runs PROGRAM RANK SIZE STORE on `size` processes; returns their outputs."""
    environment = {**os.environ, "OMP_NUM_THREADS": "1"}
    with tempfile.TemporaryDirectory() as folder:
        store = os.path.join(folder, "store")
        ranks = [subprocess.Popen(
            [sys.executable, "-W", "ignore", PROGRAMS / program, str(rank),
             str(size), store],
            stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True,
            env=environment) for rank in range(size)]
        try:
            outputs = [rank.communicate(timeout=LIMIT_S) for rank in ranks]
        finally:
            for rank in ranks:
                rank.kill()
    for rank, (_, errors) in zip(ranks, outputs):
        assert rank.returncode == 0, errors[-4000:]
    return [output for output, _ in outputs]
