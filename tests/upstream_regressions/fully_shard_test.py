#!/usr/bin/env python3
"""Programs on which PyTorch's fully_shard fails or gives wrong numbers, on both sides:
fully_shard_pytorch.py beside fully_shard_programs.cpp. Prints them as a table.

    python3 tests/upstream_regressions/fully_shard_test.py

TESSERA_BIN names the folder of the programs; build/bin when unset.
"""
import os
import pathlib
import subprocess
import sys
import unittest

ROOT = pathlib.Path(__file__).resolve().parents[2]
BIN = pathlib.Path(os.environ.get("TESSERA_BIN", ROOT / "build" / "bin"))
PYTHON = ROOT / ".venv" / "bin" / "python"
LIMIT = 240  # seconds
JUDGED = "2.13"  # what PyTorch says was recorded with

# What PyTorch 2.13 says to each, and where its users met that.
PROGRAMS = {
    "view": ("error: RuntimeError: setStorage", "pytorch#181832"),
    "method": ("error: RuntimeError: aten.addmm.default got mixed", "pytorch#109385"),
    "tied": ("error: ValueError: Parameter 'e.weight' is shared", ""),
    "uneven": ("error: NotImplementedError: FSDP does not support uneven", ""),
    "dtypes": ("error: AssertionError: FSDP expects uniform original", ""),
    "diverge": ("wrong gradient of a on rank 0: [3.0], not 1", "pytorch#158719"),
    "average": ("error: AssertionError: FSDP does not support deepcopy", ""),
    "clip": ("error: RuntimeError: All operands in aten.stack", ""),
}


def answers(command):
    done = subprocess.run(
        [*map(str, command), *PROGRAMS], capture_output=True, text=True, timeout=LIMIT,
        check=False, env={**os.environ, "OMP_NUM_THREADS": "1",
                          "TORCH_CPP_LOG_LEVEL": "ERROR"})
    if done.returncode != 0:
        raise AssertionError(done.stderr[-2000:])
    return dict(line.split(": ", 1) for line in done.stdout.splitlines())


class FullyShardTest(unittest.TestCase):
    def test_both_sides(self):
        python = str(PYTHON) if PYTHON.exists() else sys.executable
        found = subprocess.run(
            [python, "-c", "import torch; print(torch.__version__)"],
            capture_output=True, text=True, check=False)
        version = found.stdout.strip()
        ours = answers([BIN / "fully_shard_programs"])
        theirs = dict.fromkeys(PROGRAMS, "not asked")
        if version:
            script = pathlib.Path(__file__).with_name("fully_shard_pytorch.py")
            theirs = answers([python, script])
        print(f"PyTorch {version or 'not found'}")
        for name, (_, where) in PROGRAMS.items():
            print(f"{name:8} PyTorch: {theirs[name][:110]} {where}\n"
                  f"{'':8} Tessera: {ours[name][:240]}")
        for name, (said, _) in PROGRAMS.items():
            with self.subTest(program=name):
                if name != "diverge":
                    self.assertEqual(ours[name], "right")
                if version.startswith(JUDGED):
                    self.assertTrue(theirs[name].startswith(said), theirs[name])
        # Ranks that use different parameters hear it, by both names.
        self.assertIn("ranks disagree on what they communicate for", ours["diverge"])
        self.assertRegex(ours["diverge"], r"a\.weight.*b\.weight|b\.weight.*a\.weight")


if __name__ == "__main__":
    unittest.main()
