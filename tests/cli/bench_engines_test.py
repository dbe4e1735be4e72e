#!/usr/bin/env python3
"""tessera bench comm, bench train and bench fsdp, whose ranks are those of every engine: what
they report, not how fast.

    python3 tests/cli/bench_engines_test.py

TESSERA_BIN names the folder of the programs; build/bin when unset.
"""

import json
import pathlib
import signal
import subprocess
import tempfile
import time
import unittest

from command_line import ROOT, TESSERA, call, environment
from run_on_engines import ENGINES

TRAIN_LIMIT = 300  # starts 18 ranks and PyTorch in 6 processes


class BenchTrainTest(unittest.TestCase):
    """The form of the table and the equality of the losses; no speeds."""

    def test_every_engine_trains_the_model_of_pytorch(self):
        done = call([TESSERA, "bench", "train", "--rounds", "1", "--steps", "2",
                     "--warm-up", "4", "--json"], limit=TRAIN_LIMIT)
        self.assertEqual(done.returncode, 0, done.stderr + done.stdout)
        report = json.loads(done.stdout)
        self.assertEqual(set(report["left_out"]), {"threads", "mpi", "gloo"} -
                         set(ENGINES))
        self.assertEqual([(m["mesh"], m["ranks"]) for m in report["meshes"]],
                         [("tp=2", 2), ("dp=2,tp=2", 4)])
        text = (ROOT / "examples" / "demo" / "demo_text.txt").read_bytes()
        self.assertEqual(report["model"]["vocabulary"], len(set(text)))
        tokens = report["model"]["batch"] * report["model"]["length"]
        compared = "not found" not in report["pytorch"]
        for mesh in report["meshes"]:
            self.assertEqual({e["engine"] for e in mesh["engines"]}, set(ENGINES))
            for engine in mesh["engines"]:
                seconds, = engine["step_seconds"]
                self.assertAlmostEqual(engine["tokens_per_second"], tokens / seconds)
                if compared:
                    self.assertAlmostEqual(
                        engine["ratio"], mesh["pytorch_step_seconds"][0] / seconds)
                    self.assertLess(engine["largest_loss_difference"], 1e-4)
            if compared:
                losses = mesh["pytorch_losses"]
                self.assertEqual(len(losses), 4)
                self.assertLess(losses[-1], losses[0])
        self.assertTrue(report["same_model"])

    def test_the_table_names_meshes_losses_and_targets(self):
        done = call([TESSERA, "bench", "train", "--ranks", "2", "--rounds", "1",
                     "--steps", "1", "--warm-up", "2", "--engine", "threads"],
                    limit=TRAIN_LIMIT)
        self.assertEqual(done.returncode, 0, done.stderr + done.stdout)
        self.assertRegex(done.stdout, r"tp=2 +threads +[\d.]+ +\d+")
        if "not found" not in done.stdout:
            self.assertIn("the same model", done.stdout)
            self.assertRegex(done.stdout,
                             r"\n(missed:\n  tp=2 on threads|all 1 target met)")

    def test_medians_are_judged_and_other_losses_are_no_comparison(self):
        with tempfile.TemporaryDirectory() as where:
            # Stands for a slow PyTorch whose model is another one.
            python = pathlib.Path(where) / "python"
            python.write_text(
                '#!/bin/sh\n[ "$#" -gt 2 ] || exit 0\n'
                'echo \'{"torch": "2.0", "losses": [1.0, 1.0]}\'\n'
                'while read -r round; do echo 500; done\n')
            python.chmod(0o755)
            done = call([TESSERA, "bench", "train", "--ranks", "2", "--rounds", "3",
                         "--steps", "1", "--warm-up", "2", "--engine", "threads",
                         "--json", "--python", str(python)])
        self.assertEqual(done.returncode, 1, done.stdout)
        report = json.loads(done.stdout)
        self.assertFalse(report["same_model"])
        self.assertEqual(report["missed"], [])
        row, = report["meshes"][0]["engines"]
        self.assertAlmostEqual(row["ratio"], 500 / sorted(row["step_seconds"])[1])
        self.assertGreater(row["largest_loss_difference"], 1)

    def test_without_pytorch_our_own_figures_remain(self):
        done = call([TESSERA, "bench", "train", "--ranks", "2", "--rounds", "1",
                     "--steps", "1", "--warm-up", "1", "--engine", "threads",
                     "--python", "/no/such"])
        self.assertEqual(done.returncode, 0, done.stderr)
        words = " ".join(done.stdout.split())  # lines are wrapped
        self.assertIn("not found; --python names one", words)
        self.assertIn("no target was judged", words)
        self.assertRegex(done.stdout, r"tp=2 +threads +[\d.]+ +\d+")


class BenchFsdpTest(unittest.TestCase):
    """One model on both sides, and what a step calls and sends; no speeds."""

    def cases(self, *words):
        done = call([TESSERA, "bench", "fsdp", "--width", "64", "--layers", "2",
                     "--rounds", "1", "--steps", "1", "--warm-up", "2", "--json", *words],
                    limit=TRAIN_LIMIT)
        self.assertEqual(done.returncode, 0, done.stderr + done.stdout)
        return json.loads(done.stdout)

    def test_every_engine_trains_the_model_of_pytorch(self):
        report = self.cases()
        compared = "not found" not in report["pytorch"]
        self.assertEqual([c["case"] for c in report["cases"]], ["64 f32", "64 bf16"])
        for case in report["cases"]:
            self.assertTrue(case["same_model"])
            for engine in case["engines"]:
                # Blocks and the root: gathered in forward, all blocks but the last in
                # backward again, and reduced once; the loss counts its targets.
                self.assertEqual(engine["calls"], 3 + 1 + 3 + 1)
                self.assertGreater(engine["peak_bytes"], 0)
                if compared:
                    self.assertLess(engine["bytes"], case["pytorch"]["bytes"])
                    self.assertGreater(engine["ratio"], 0)

    def test_micro_batches_and_copies(self):
        report = self.cases("--accumulate", "2", "--dtype", "f32", "--engine", "threads")
        calls = [case["engines"][0]["calls"] for case in report["cases"]]
        self.assertEqual(len(calls), 3)
        self.assertEqual(sorted(calls, reverse=True), calls)
        # One gather and one reduction for each group; two losses.
        self.assertEqual(calls[2], 3 + 3 + 2)
        report = self.cases("--hybrid", "--dtype", "f32", "--engine", "threads")
        case, = report["cases"]
        self.assertEqual(case["ranks"], 4)
        self.assertEqual(case["engines"][0]["calls"], 3 + 1 + 2 * 3 + 1)


class BenchTest(unittest.TestCase):
    COLLECTIVES = {"all_gather", "all_to_all", "all_reduce", "reduce_scatter",
                   "broadcast"}

    def test_every_engine_is_measured(self):
        done = call([TESSERA, "bench", "comm", "--ranks", "2", "--mib", "1",
                     "--rounds", "1", "--repeats", "1", "--json"])
        self.assertEqual(done.returncode, 0, done.stderr)
        report = json.loads(done.stdout)
        self.assertEqual(set(report["left_out"]), {"threads", "mpi", "gloo"} -
                         set(ENGINES))
        rows = report["collectives"]
        self.assertEqual(
            {(r["size"], r["collective"]) for r in rows},
            {(s, c) for s in ("large", "small") for c in self.COLLECTIVES} |
            {("small", "barrier")})
        compared = "not found" not in report["pytorch"]
        for row in rows:
            for engine in ENGINES:
                self.assertEqual(len(row["seconds"][engine]), 1)
                self.assertGreater(row["seconds"][engine][0], 0)
                if compared:
                    self.assertGreater(row["ratio"][engine], 0)

    def test_an_engine_that_fails_is_not_left_out(self):
        done = call([TESSERA, "bench", "comm", "--ranks", "2", "--mib", "1",
                     "--rounds", "1", "--engine", "gloo", "--python", "/no/such"],
                    env=environment(TESSERA_INTERFACE="none0"))
        self.assertEqual(done.returncode, 1, done.stdout)
        self.assertIn("gloo on 2 ranks ended with exit code 1", done.stderr)

    def test_a_signal_leaves_no_folder(self):
        with tempfile.TemporaryDirectory() as where:
            process = subprocess.Popen(
                [TESSERA, "bench", "comm", "--ranks", "2", "--mib", "64",
                 "--repeats", "1000", "--engine", "gloo", "--python", "/no/such"],
                stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL,
                env=environment(TMPDIR=where))
            folders = []
            limit = time.monotonic() + 20
            while len(folders) < 2 and time.monotonic() < limit:
                time.sleep(0.1)
                folders = list(pathlib.Path(where).glob("tessera.*"))
            self.assertEqual(len(folders), 2)  # of the bench and of the job
            process.send_signal(signal.SIGTERM)
            self.assertEqual(process.wait(timeout=40), -signal.SIGTERM)
            self.assertEqual(list(pathlib.Path(where).glob("tessera.*")), [])

if __name__ == "__main__":
    unittest.main(verbosity=1)
