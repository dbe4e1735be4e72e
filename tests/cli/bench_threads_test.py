#!/usr/bin/env python3
"""tessera bench redistribute and bench dispatch, whose ranks are threads: what they
report, not how fast.

    python3 tests/cli/bench_threads_test.py

TESSERA_BIN names the folder of the programs; build/bin when unset.
"""

import json
import os
import subprocess
import unittest

from command_line import ROOT, TESSERA, call, environment, on_terminal, tessera


class BenchTest(unittest.TestCase):

    NAMES = ["S0->R", "S0->S1", "P->R", "P->S0"]

    def test_redistribute_stands_beside_pytorch(self):
        done = tessera("bench", "redistribute", "--ranks", "2", "--mib", "1",
                       "--rounds", "2", "--repeats", "2", "--json")
        self.assertEqual(done.returncode, 0, done.stderr)
        report = json.loads(done.stdout)
        self.assertEqual([t["name"] for t in report["transitions"]], self.NAMES)
        self.assertRegex(report["pytorch"], r"^2\.")
        for transition in report["transitions"]:
            for key in ("seconds", "memcpy_seconds", "pytorch_seconds"):
                self.assertEqual(len(transition[key]), 2, key)
                self.assertTrue(all(x > 0 for x in transition[key]))
            ratios = sorted(a / b for a, b in zip(
                transition["pytorch_seconds"], transition["seconds"]))
            self.assertAlmostEqual(transition["ratio"], ratios[1])

    def test_without_pytorch_our_own_figures_remain(self):
        done = tessera("bench", "redistribute", "--ranks", "3", "--mib", "1",
                       "--rounds", "1", "--repeats", "1", "--python", "/nonexistent")
        self.assertEqual(done.returncode, 0, done.stderr)
        self.assertIn("not found", " ".join(done.stdout.split()))
        for name in self.NAMES:
            self.assertIn(name, done.stdout)
        for line in done.stdout.splitlines():
            self.assertLessEqual(len(line), 80, line)


    def test_rounds_are_a_bar_on_a_terminal_and_lines_elsewhere(self):
        command = ("bench", "redistribute", "--ranks", "2", "--mib", "1", "--rounds", "3",
                   "--repeats", "1", "--python", "/nonexistent")
        shown = on_terminal([TESSERA, *command], errors=True).replace("\r\n", "\n")
        self.assertIn("\rredistribute   0 %  0 of 3 rounds, 0 s", shown)
        self.assertIn("S0->R", shown.rpartition("\r")[2])  # what is left when it ends
        done = call([TESSERA, *command], environment(TESSERA_PROGRESS_SECONDS="0"))
        self.assertIn("redistribute 100 %  3 of 3 rounds", done.stderr)
        self.assertNotIn("\r", done.stderr)
        self.assertEqual(tessera(*command).stderr, "")


class BenchDispatchTest(unittest.TestCase):

    NAMES = ["add", "add_", "mul by a number", "mm", "t", "view", "softmax", "sum",
             "cat", "layer_norm", "linear, backward"]

    def test_every_operator_stands_beside_pytorch(self):
        done = tessera("bench", "dispatch", "--rounds", "2", "--batches", "5",
                       "--calls", "3", "--json")
        self.assertEqual(done.returncode, 0, done.stderr)
        report = json.loads(done.stdout)
        self.assertRegex(report["pytorch"], r"^2\.")
        rows = {row["name"]: row for row in report["operators"]}
        self.assertEqual(list(rows), self.NAMES)
        for name, row in rows.items():
            for key in ("pytorch_plain_seconds", "pytorch_extra_seconds"):
                self.assertEqual(len(row[key]), 2, name)
            self.assertNotEqual(row["communicates"], "extra_seconds" in row, name)
        self.assertIn("ratio", rows["add_"])
        self.assertAlmostEqual(
            rows["add_"]["extra_seconds_per_dispatched"],
            max(rows["add_"]["extra_seconds"]))
        for name in ("add", "add_", "mul by a number", "mm", "cat"):
            self.assertEqual(rows[name]["dispatched"], 1, name)
        # The layer, its transpose and product; a dozen steps of backward.
        self.assertIn(rows["linear, backward"]["dispatched"], range(8, 20))

    def test_what_misses_its_target_is_named(self):
        done = tessera("bench", "dispatch", "--rounds", "1", "--batches", "2",
                       "--calls", "1", "--python", "/nonexistent")
        self.assertEqual(done.returncode, 0, done.stderr)
        self.assertRegex(done.stdout, r"\n(missed:|all \d+ targets met)")
        self.assertIn("not found", " ".join(done.stdout.split()))
        for name in self.NAMES:
            self.assertIn(name, done.stdout)

    def test_misses_of_our_own(self):
        done = tessera("bench", "dispatch", "--misses", "--json", "--python",
                       "/nonexistent")
        self.assertEqual(done.returncode, 0, done.stderr)
        report = json.loads(done.stdout)
        self.assertEqual(
            [(row["name"], row["mesh_dims"]) for row in report["misses"]],
            [("add", 1), ("mm", 1), ("view", 1), ("add", 2), ("mm", 2), ("view", 2),
             ("mm", 3), ("mm", 4), ("mm", 6)])
        self.assertGreater(report["misses"][0]["extra_seconds"], 0)
        self.assertIn("sequence_lengths", report)

    def test_misses_of_pytorch(self):
        python = os.path.join(ROOT, ".venv", "bin", "python")
        if not os.access(python, os.X_OK):
            self.skipTest("no .venv with PyTorch")
        done = subprocess.run(
            [python, os.path.join(ROOT, "benchmarks", "dispatch_pytorch.py"),
             "misses", "2", "20", "30"],
            input="round\n", capture_output=True, text=True, timeout=120)
        self.assertEqual(done.returncode, 0, done.stderr)
        answer = json.loads(done.stdout.splitlines()[1])
        self.assertEqual(
            list(answer), ["add 1", "mm 1", "view 1", "add 2", "mm 2", "view 2",
                           "mm 3", "lengths"])

if __name__ == "__main__":
    unittest.main(verbosity=1)
