#!/usr/bin/env python3
"""A fully sharded GPT ends with the same bits on threads, Gloo and MPI: losses and shards
of fully_shard_probe on 3 and 4 ranks.

TESSERA_BIN names the folder of the programs; build/bin when unset.
"""
import os
import pathlib
import shutil
import subprocess
import unittest

ROOT = pathlib.Path(__file__).resolve().parents[2]
BIN = pathlib.Path(os.environ.get("TESSERA_BIN", ROOT / "build" / "bin"))
LIMIT = 120  # seconds


def lines(engine, ranks):
    """What the ranks print, in order."""
    env = {k: v for k, v in os.environ.items()
           if not k.startswith(("TESSERA_", "OMPI_COMM", "PMI"))}
    env["OMP_NUM_THREADS"] = "1"
    program = str(BIN / "fully_shard_probe")
    command = [str(BIN / "tessera"), "run", "-n", str(ranks), "--engine", engine, "--", program]
    done = subprocess.run(command, capture_output=True, text=True, timeout=LIMIT,
                          check=False, env=env)
    if done.returncode != 0:
        raise AssertionError(f"{engine}, {ranks} ranks: {done.stderr[-2000:]}")
    found = [line[line.index("rank "):] for line in done.stdout.splitlines()
             if "shards" in line]
    return sorted(found)


class FullyShardBits(unittest.TestCase):
    def test_engines_agree(self):
        engines = ["threads", "gloo"] + (["mpi"] if shutil.which("mpirun") else [])
        for ranks in (3, 4):
            with self.subTest(ranks=ranks):
                wanted = lines(engines[0], ranks)
                self.assertEqual(len(wanted), ranks * (2 if ranks % 2 else 3))
                self.assertGreater(len({line.split(": ")[1] for line in wanted}), ranks)
                for engine in engines[1:]:
                    self.assertEqual(lines(engine, ranks), wanted, engine)


if __name__ == "__main__":
    unittest.main()
