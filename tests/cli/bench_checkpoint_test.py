#!/usr/bin/env python3
"""tessera bench checkpoint: what it reports and what it leaves behind, not how fast.

    python3 tests/cli/bench_checkpoint_test.py

TESSERA_BIN names the folder of the programs; build/bin when unset.
"""

import json
import os
import pathlib
import tempfile
import unittest

from command_line import TESSERA, call, environment

ROUNDS = 2


class BenchCheckpointTest(unittest.TestCase):

    def run_bench(self, *more):
        """Runs it with 1 MiB on 2 ranks, in a folder where only PyTorch's own cache
        may stay."""
        with tempfile.TemporaryDirectory() as where:
            done = call([TESSERA, "bench", "checkpoint", "--ranks", "2", "--mib", "1",
                         "--rounds", str(ROUNDS), *more],
                        env=environment(TMPDIR=where))
            left = [x for x in os.listdir(where) if not x.startswith("torchinductor")]
            self.assertEqual(left, [])
        return done

    def check_series(self, measured, names):
        self.assertEqual(set(measured), names)
        for series in measured.values():
            for figures in series.values():
                self.assertEqual(len(figures), ROUNDS)
                self.assertTrue(all(x > 0 for x in figures))

    def test_every_engine_stands_beside_plain_files_and_pytorch(self):
        done = self.run_bench("--json")
        self.assertEqual(done.returncode, 0, done.stderr)
        report = json.loads(done.stdout)
        self.assertEqual(report["left_out"], {})
        self.assertRegex(report["pytorch"], r"^2\.")
        self.check_series(report["pytorch_measured"], {"save", "load"})
        self.assertEqual([e["engine"] for e in report["engines"]], ["threads", "gloo"])
        for engine in report["engines"]:
            self.check_series(engine["measured"],
                              {"save", "load", "raw save", "raw load", "async",
                               "copy"})
            copies = sorted(a / b for a, b in zip(
                engine["measured"]["async"]["seconds"],
                engine["measured"]["copy"]["seconds"]))
            self.assertAlmostEqual(engine["ratio"]["async"]["copies"], copies[1])
            for what in ("save", "load"):
                ours = engine["measured"][what]["seconds"]
                for side, theirs in (
                        ("raw", engine["measured"]["raw " + what]["seconds"]),
                        ("pytorch", report["pytorch_measured"][what]["seconds"])):
                    ratios = sorted(a / b for a, b in zip(theirs, ours))
                    self.assertAlmostEqual(engine["ratio"][what][side], ratios[1])

    def test_without_pytorch_plain_files_remain(self):
        done = self.run_bench("--engine", "threads", "--python", "/nonexistent")
        self.assertEqual(done.returncode, 0, done.stderr)
        self.assertIn("not found", " ".join(done.stdout.split()))
        self.assertRegex(done.stdout, r"threads, save +[\d.]+ +[\d.]+ +[\d.]+ *\n")
        self.assertRegex(done.stdout, r"threads +[\d.]+ +[\d.]+ +[\d.]+ *\n")
        self.assertRegex(done.stdout, r"\n(missed:\n  (save|load|save_async) on "
                                      r"threads|all 3 targets met)")
        for line in done.stdout.splitlines():
            self.assertLessEqual(len(line), 80, line)

    def test_targets_are_judged_by_medians_and_other_values_are_no_comparison(self):
        with tempfile.TemporaryDirectory() as where:
            # Stands for a PyTorch that is very fast at saving and slow at loading.
            took = {"save": {"seconds": 1e-9, "cpu_seconds": 1},
                    "load": {"seconds": 1e9, "cpu_seconds": 1}}
            python = pathlib.Path(where) / "python"
            values = [(7919 * i + t) % 16777213
                      for t in range(16) for i in range(16 * 1024)]
            for total, code in ((sum(values), 0), (sum(values) + 1, 1)):
                python.write_text(
                    '#!/bin/sh\n[ "$#" -gt 2 ] || exit 0\n'
                    f'echo \'{{"torch": "2.0", "sum": {total}}}\'\n'
                    f"while read -r round; do echo '{json.dumps(took)}'; done\n")
                python.chmod(0o755)
                done = self.run_bench("--engine", "threads", "--json", "--python",
                                      str(python))
                self.assertEqual(done.returncode, code, done.stderr)
                if code == 1:
                    self.assertIn("there is nothing to compare", done.stderr)
                    continue
                missed = json.loads(done.stdout)["missed"]
                self.assertIn("save on threads 0.00 times as fast as PyTorch, below 1.0",
                              missed)
                self.assertFalse([m for m in missed if "load" in m and "PyTorch" in m])


if __name__ == "__main__":
    unittest.main(verbosity=1)
