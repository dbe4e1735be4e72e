#!/usr/bin/env python3
"""One program under every launcher: tessera run with each engine, mpirun, torchrun.

    python3 tests/cli/every_launcher_test.py

TESSERA_BIN names the folder of the programs; build/bin when unset. What needs
mpirun or torchrun is skipped, with a message, where they are not there.
"""

import json
import os
import shutil
import unittest

from command_line import BIN, ROOT, TESSERA, call, environment
from run_on_engines import ENGINES, MPIRUN, words

EXAMPLES = [str(BIN / "01_layouts"), str(BIN / "06_sharded_tensor")]
EVERY_LAUNCHER = str(BIN / "05_every_launcher")
TORCHRUN = next((p for p in (str(ROOT / ".venv/bin/torchrun"), shutil.which("torchrun"))
                 if p and os.path.exists(p)), None)
ENGINE_OF = {"mpirun": "mpi", "torchrun": "gloo"}  # of other launchers


class SameProgramTest(unittest.TestCase):
    maxDiff = None

    def launchers(self):
        for engine in ENGINES:
            yield engine, words(engine, [], 4, ["--no-prefix"])
        if MPIRUN:
            root = ["--allow-run-as-root"] if os.geteuid() == 0 else []
            # MPICH's has neither option.
            open_mpi = "Open MPI" in call([MPIRUN, "--version"]).stdout
            yield "mpirun", [MPIRUN, *(["--oversubscribe", *root] if open_mpi else []),
                             "-n", "4"]
        if TORCHRUN:
            yield "torchrun", [TORCHRUN, "--no-python", "--nproc-per-node", "4"]

    def outputs(self, *program):
        for name, launcher in self.launchers():
            done = call([*launcher, *program])
            self.assertEqual(done.returncode, 0, f"{name}: {done.stderr}")
            yield name, done.stdout

    def test_examples_print_the_same_under_every_launcher(self):
        for example in EXAMPLES:
            with self.subTest(example):
                printed = dict(self.outputs(example))
                self.assertIn("rank 3 holds", printed["threads"])
                for name, text in printed.items():
                    self.assertEqual(text, printed["threads"], name)

    def test_the_example_for_launchers_trains_alike_under_each(self):
        results = {}
        for name, text in self.outputs(EVERY_LAUNCHER):
            first, *results[name] = text.splitlines()
            self.assertEqual(first, f"4 ranks, engine {ENGINE_OF.get(name, name)}")
        for rank, line in enumerate(results["threads"][:-1]):
            self.assertRegex(line, fr"^rank {rank} holds \[10, 8\] of .*, sum -?\d")
        self.assertEqual(len(results["threads"]), 4 + 1)
        for name, result in results.items():
            self.assertEqual(result, results["threads"], name)
        alone = call([EVERY_LAUNCHER]).stdout.splitlines()
        self.assertRegex(alone[-1], r"^checksum \d+\.\d{9}$")
        self.assertEqual(alone[-1], results["threads"][-1])

    def test_the_demo_trains_alike_under_every_launcher(self):
        results = {}
        for name, text in self.outputs(TESSERA, "demo", "--steps", "3", "--json"):
            report = json.loads(text)
            self.assertTrue(report["equal"], name)
            results[name] = {k: v for k, v in report.items()
                             if "second" not in k and k != "engine"}
            self.assertEqual(report["engine"], ENGINE_OF.get(name, name))
        self.assertEqual(results["threads"]["ranks"], 4)
        for name, result in results.items():
            self.assertEqual(result, results["threads"], name)

    @unittest.skipUnless((ROOT / ".venv").exists(), "there is no .venv")
    def test_torchrun_of_the_venv_is_tested(self):
        self.assertIn("torchrun", dict(self.launchers()), "not in .venv/bin")

    def test_the_demo_takes_the_number_of_threads_alone(self):
        done = call([TESSERA, "demo", "--steps", "2", "--json"],
                    env=environment(TESSERA_NUM_RANKS="3"))
        self.assertEqual(done.returncode, 0, done.stderr)
        self.assertEqual(json.loads(done.stdout)["ranks"], 3)


class DoctorTest(unittest.TestCase):

    def test_engines_are_listed_with_what_they_did(self):
        report = json.loads(call([TESSERA, "doctor", "--json"]).stdout)
        checks = {c["name"]: c for c in report["checks"]}
        for engine in ENGINES:
            self.assertEqual(checks[f"engine {engine}"]["status"], "ok",
                             checks[f"engine {engine}"])
            self.assertIn("added 1 and 2", checks[f"engine {engine}"]["found"])

if __name__ == "__main__":
    unittest.main(verbosity=1)
