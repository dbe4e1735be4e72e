"""Runs scripts/check_long.py with parts that only pretend to work."""
import json
import os
import pathlib
import shutil
import subprocess
import sys
import tempfile
import time
import unittest

SCRIPTS = pathlib.Path(__file__).resolve().parents[2] / "scripts"
BUILD = "echo \"build: configuring $*\"; echo 'build: 7 of 7 steps, 0:01'"
TESTS = ("echo 'run_tests: 5 of 5 tests, 0 failed, 1 skipped, 35 gtest cases; "
         "0 had passed before'")
FUZZ = "echo 'fuzz: planted fault found'; echo 'fuzz: 9 per second, 100 executions'"
PYTHON = "print({!r})\n"


class CheckLongTest(unittest.TestCase):
    """A repository whose scripts are fakes that note how they are called."""

    def setUp(self):
        self.folder = pathlib.Path(tempfile.mkdtemp()).resolve()
        self.addCleanup(shutil.rmtree, self.folder)
        self.write(".gitignore", "/build*/\n__pycache__/\n/calls\n")
        for name in ("check_long.py", "build_progress.py", "tree_id.py"):
            self.write(f"scripts/{name}", (SCRIPTS / name).read_text())
        self.fake("scripts/build.sh", BUILD)
        self.fake("scripts/run_tests.py", TESTS)
        self.fake("scripts/fuzz.sh", FUZZ)
        self.fake("scripts/fuzz_io.sh", "echo 'fuzz: manifest: 9 executions'")
        self.fake("scripts/tidy.py", "echo 'tidy: 3 sources, of which 1 was known to be "
                  "clean, 0 findings, 0:01'")
        self.fake("build/bin/oracle_test", "exit 0")
        self.write("tests/layout/xla/xla_jax_test.py", PYTHON.format("Ran 6 tests in 1 s"))
        self.write("tests/plan/toy_placement/add_kind.py", PYTHON.format("toy kind: passed"))
        self.write("tests/plan/planted_bugs.py",
                   PYTHON.format("planted_bugs: 25 of 25 found"))
        subprocess.run(["git", "init", "-q"], cwd=self.folder, check=True)

    def write(self, name, text):
        path = self.folder / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(text)
        return path

    def fake(self, name, script):
        note = f'echo "{name.split("/")[-1]} $* long=$TESSERA_LONG" >> calls\n'
        self.write(name, f"#!/bin/sh\n{note}{script}\n").chmod(0o755)

    def check_long(self, *arguments, seconds="60"):
        self.write("calls", "")
        clean = {k: v for k, v in os.environ.items() if k != "TESSERA_LONG"}
        result = subprocess.run(
            [sys.executable, "-B", "scripts/check_long.py", *arguments],
            cwd=self.folder, text=True, timeout=60,
            env=clean | {"TESSERA_PROGRESS_SECONDS": seconds},
            stdout=subprocess.PIPE, stderr=subprocess.STDOUT)
        return result.returncode, result.stdout

    def calls(self):
        return [call.strip() for call in
                (self.folder / "calls").read_text().splitlines()]

    def last_record(self):
        results = self.folder / "build-check-long/results.json"
        return json.loads(results.read_text())[-1]

    def test_a_part_ends_with_its_figures(self):
        code, text = self.check_long("fuzz")
        self.assertEqual(code, 0, text)
        self.assertRegex(text, r"\| fuzz +\| passed \| 0\.\d +\| 0\.\d +\| "
                         r"100 inputs, 9 inputs, 6 tests, 25 of 25 bugs found \| 0 +\| found")
        self.assertIn("check-long: all passed", text)
        log = (self.folder / "build-check-long/fuzz.log").read_text()
        self.assertIn("fuzz: 9 per second", log)

    def test_tests_run_in_their_long_forms(self):
        code, text = self.check_long("long")
        self.assertEqual(code, 0, text)
        self.assertEqual(self.calls(), [
            "build.sh dev long=", "oracle_test --gtest_filter=PlantedRules.* long=",
            "run_tests.py build long=1"])
        self.assertRegex(text, r"\| long +\| passed .*\| 5 tests, 35 gtest cases \| 0")

    def test_a_failed_part_does_not_stop_the_next(self):
        self.fake("scripts/tidy.py", "echo 'x.cpp:1: bad'; echo 'tidy: 3 sources, of which "
                  "0 were known to be clean, 2 findings, 0:01'; exit 1")
        code, text = self.check_long("tidy", "fuzz")
        self.assertEqual(code, 1)
        self.assertIn("x.cpp:1: bad", text)
        self.assertRegex(text, r"\| tidy +\| failed .*\| 3 sources +\| 4 ")
        self.assertRegex(text, r"\| fuzz +\| passed ")
        self.assertIn("check-long: tidy failed; go on with --resume", text)

    def test_a_build_that_fails_ends_its_part(self):
        self.fake("scripts/build.sh", "exit 1")
        self.assertEqual(self.check_long("fuzz")[0], 1)
        self.assertEqual(len(self.calls()), 1)

    def test_a_planted_fault_that_is_not_found_fails_the_part(self):
        self.fake("build/bin/oracle_test", "exit 1")
        code, text = self.check_long("long")
        self.assertEqual(code, 1)
        self.assertRegex(text, r"\| long +\| failed .*\| not found +\|\n")

    def test_resuming_leaves_out_what_passed(self):
        self.check_long("fuzz")
        code, text = self.check_long("fuzz", "--resume")
        self.assertEqual((code, self.calls()), (0, []))
        self.assertIn("fuzz: has passed on these sources", text)
        self.assertRegex(text, r"\| fuzz +\| passed .*100 inputs")
        self.write("source.txt", "new\n")
        self.check_long("fuzz", "--resume")
        self.assertEqual(self.calls(), ["build.sh dev long=", "fuzz.sh  long=", "fuzz_io.sh  long="])

    def test_resuming_goes_on_inside_a_part(self):
        (self.folder / "verdict").write_text("ill")
        self.write(".gitignore", "/build*/\n__pycache__/\n/calls\n/verdict\n")
        self.fake("scripts/run_tests.py", TESTS + "; grep -q well verdict")
        self.assertEqual(self.check_long("long")[0], 1)
        (self.folder / "verdict").write_text("well")
        code, text = self.check_long("long", "--resume")
        self.assertEqual(code, 0, text)
        self.assertEqual(self.calls(), [
            "build.sh dev long=", "run_tests.py build --resume long=1"])
        self.assertRegex(text, r"\| long +\| passed .*\| found")

    def test_a_part_is_stopped_when_its_time_is_up(self):
        self.fake("scripts/fuzz.sh", "echo begun; sleep 50 & sleep 50")
        begin = time.monotonic()
        code, text = self.check_long("fuzz", "tidy", "--minutes", "0.02")
        self.assertLess(time.monotonic() - begin, 20)
        self.assertEqual(code, 1)
        self.assertRegex(text, r"\| fuzz +\| stopped ")
        self.assertRegex(text, r"\| tidy +\| passed ")
        self.assertIn("begun", text)

    def test_a_line_now_and_then_says_what_happens(self):
        self.fake("scripts/fuzz.sh", "echo step one; sleep 1")
        text = self.check_long("fuzz", seconds="0.3")[1]
        self.assertRegex(text, r"check-long: fuzz: fuzz, 0:0\d: step one\n")

    def test_figures_are_kept(self):
        self.check_long("fuzz")
        record = self.last_record()
        self.assertEqual((record["part"], record["result"]), ("fuzz", "passed"))
        self.assertEqual([step["step"] for step in record["steps"]],
                         ["build", "fuzz", "fuzz io", "JAX", "planted bugs"])
        for step in record["steps"]:
            self.assertGreaterEqual(step["seconds"], step["cpu_seconds"] / 64)

    def test_parts_are_listed_and_unknown_ones_refused(self):
        code, text = self.check_long("--list")
        self.assertEqual(code, 0)
        for part in ("asan", "tsan", "tidy", "long", "fuzz", "plain-build", "release"):
            self.assertRegex(text, rf"(?m)^{part} ")
        code, text = self.check_long("none-such")
        self.assertEqual(code, 2)
        self.assertIn("no part called none-such", text)


if __name__ == "__main__":
    unittest.main()
