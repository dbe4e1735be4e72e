#!/usr/bin/env python3
"""tessera bench init, bench clip and bench recompute: what they report, not how fast.

    python3 tests/cli/bench_training_test.py

TESSERA_BIN names the folder of the programs; build/bin when unset.
"""

import json
import pathlib
import tempfile
import unittest

from command_line import tessera
from run_on_engines import ENGINES

ROUNDS = 1
SMALL = {
    "init": ["--width", "32", "--layers", "1", "--vocabulary", "64"],
    "clip": ["--tensors", "5", "--rows", "7", "--columns", "3", "--calls", "3"],
}


def bench(name, *more):
    return tessera("bench", name, *SMALL[name], "--rounds", str(ROUNDS), *more)


class BenchTrainingTest(unittest.TestCase):

    def report(self, name):
        done = bench(name, "--json")
        self.assertEqual(done.returncode, 0, done.stderr + done.stdout)
        report = json.loads(done.stdout)
        self.assertEqual(set(report["left_out"]),
                         {"threads", "mpi", "gloo"} - set(ENGINES))
        self.assertEqual(set(report["engines"]), set(ENGINES))
        self.assertRegex(report["torch"], r"^2\.")
        for rounds in [*report["engines"].values(), report["pytorch"]]:
            self.assertEqual(len(rounds), ROUNDS)
            self.assertTrue(all(r["seconds"] > 0 and r["cpu_seconds"] > 0 for r in rounds))
        return report

    def test_init_has_the_values_of_one_rank_and_pytorch_has_not(self):
        report = self.report("init")
        whole = 32 * (2 * 64 + 512) + 4 * 32 * 33 + 8 * 32 * 32 + 5 * 32 + 3 * 2 * 32
        for rounds in report["engines"].values():
            for r in rounds:
                self.assertTrue(r["equals_one_rank"])
                self.assertFalse(r["ranks_hold_the_same"])
                self.assertEqual(r["model_bytes"], 4 * whole)
                self.assertEqual(r["shard_bytes"], 2 * whole)
        for r in report["pytorch"]:
            self.assertFalse(r["equals_one_rank"])
            self.assertTrue(r["ranks_hold_the_same"])
            self.assertEqual(r["model_bytes"], 4 * whole)

    def test_clip_has_the_norms_of_pytorch(self):
        report = self.report("clip")
        self.assertLess(report["largest_difference"], 1e-4)
        for rounds in report["engines"].values():
            for r in rounds:
                self.assertAlmostEqual(r["norm"], report["pytorch"][0]["norm"], places=4)
                self.assertGreater(r["norm"], 0.5)  # so that it is clipped

    def test_other_numbers_are_no_comparison(self):
        with tempfile.TemporaryDirectory() as where:
            # Stands for a PyTorch that clips to something else.
            python = pathlib.Path(where) / "python"
            python.write_text(
                '#!/bin/sh\n[ "$#" -gt 2 ] || exit 0\necho \'{"torch": "2.0"}\'\n'
                'while read -r round; do\n'
                'echo \'{"seconds": 500, "cpu_seconds": 900, "norm": 1, "sum": 1}\'; done\n')
            python.chmod(0o755)
            done = bench("clip", "--engine", "threads", "--python", str(python))
        self.assertEqual(done.returncode, 1, done.stdout)
        self.assertRegex(done.stdout, r"threads +\d+ +\d+ +[\d.]+ +[\d.]+")
        self.assertRegex(done.stdout, r"\nall 1 target met")

    def test_without_pytorch_our_own_figures_remain(self):
        for name in SMALL:
            done = bench(name, "--engine", "threads", "--python", "/nonexistent")
            self.assertEqual(done.returncode, 0, done.stderr)
            self.assertIn("not found", " ".join(done.stdout.split()))
            self.assertRegex(done.stdout, r"threads +[\d.]+")
            for line in done.stdout.splitlines():
                self.assertLessEqual(len(line), 80, line)

    def test_recompute_stands_beside_pytorch(self):
        done = tessera("bench", "recompute", "--rows", "256", "--width", "64", "--blocks",
                       "4", "--rounds", "1", "--json")
        self.assertEqual(done.returncode, 0, done.stderr)
        report = json.loads(done.stdout)
        self.assertEqual(set(report["tessera"]),
                         {"plain", "by hand", "activation_checkpoint"})
        self.assertEqual(set(report["torch"]), {"plain", "reentrant", "not reentrant"})
        # Inputs of 3 blocks, what one saves (9, means and deviations), gradients
        # that come in (1), go out (4) and are added (4 x 64 x 64).
        formula = 4 * (256 * 64 * (3 + 9 + 5) + 2 * 256 + 4 * 64 * 64)
        self.assertEqual(report["formula_bytes"], formula)
        ours = report["tessera"]
        self.assertLess(abs(ours["activation_checkpoint"]["peak"] / formula - 1), 0.05)
        self.assertGreater(ours["plain"]["peak"], 2 * formula)


if __name__ == "__main__":
    unittest.main(verbosity=1)
