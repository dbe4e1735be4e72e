"""Runs scripts/run_tests.py on tests that are a few lines of shell."""
import json
import os
import pathlib
import shutil
import subprocess
import sys
import tempfile
import unittest

SCRIPTS = pathlib.Path(__file__).resolve().parents[2] / "scripts"
TESTS = """
add_test(quick_test sh -c "echo '[==========] 35 tests from 3 test suites ran. (5 ms)'")
set_tests_properties(quick_test PROPERTIES LABELS unit)
add_test(slow_test sleep 0.4)
set_tests_properties(slow_test PROPERTIES LABELS "threads")
add_test(skipped_test sh -c "exit 77")
set_tests_properties(skipped_test PROPERTIES LABELS unit SKIP_RETURN_CODE 77)
add_test(broken_test sh -c "cat verdict; grep -q well verdict")
set_tests_properties(broken_test PROPERTIES LABELS threads)
add_test(unmatched_test sh -c "cat verdict")
set_tests_properties(unmatched_test PROPERTIES LABELS unit PASS_REGULAR_EXPRESSION "well\n")
"""
NAMES = {"quick_test", "slow_test", "skipped_test", "broken_test", "unmatched_test"}


class RunTestsTest(unittest.TestCase):
    """A repository with the scripts and a build folder of five tests."""

    def setUp(self):
        self.folder = pathlib.Path(tempfile.mkdtemp())
        self.addCleanup(shutil.rmtree, self.folder)
        (self.folder / "scripts").mkdir()
        for name in ("run_tests.py", "tree_id.py"):
            shutil.copy(SCRIPTS / name, self.folder / "scripts" / name)
        self.build = self.folder / "build"
        self.build.mkdir()
        (self.build / "CTestTestfile.cmake").write_text(TESTS)
        self.verdict("ill")
        (self.folder / ".gitignore").write_text("/build/\n__pycache__/\n")
        (self.folder / "source.txt").write_text("one\n")
        subprocess.run(["git", "init", "-q"], cwd=self.folder, check=True)
        subprocess.run(["git", "add", "."], cwd=self.folder, check=True)

    def verdict(self, text):
        (self.build / "verdict").write_text(text + "\n")

    def run_tests(self, *arguments, **environment):
        clean = {k: v for k, v in os.environ.items() if k != "TESSERA_LONG"}
        result = subprocess.run(
            [sys.executable, "-B", "scripts/run_tests.py", "build", *arguments],
            cwd=self.folder, env=clean | environment, text=True,
            stdout=subprocess.PIPE, stderr=subprocess.STDOUT, timeout=60)
        return result.returncode, result.stdout

    def records(self):
        lines = (self.build / "test_results.jsonl").read_text().splitlines()
        return [json.loads(line) for line in lines]

    def test_failures_keep_their_output_and_the_status(self):
        code, text = self.run_tests()
        self.assertEqual(code, 8)
        self.assertIn("\nill\n", text)
        self.assertIn("2 tests failed out of 5", text)
        self.assertIn("run_tests: 5 of 5 tests, 2 failed, 1 skipped, 35 gtest cases; "
                      "0 had passed before", text)

    def add_timing_test(self, passes_at):
        """A test of that label, which passes at the n-th try; it fails before."""
        (self.build / "CTestTestfile.cmake").write_text(
            TESTS + f"""
add_test(timing_test sh -c "echo x >>tries; test `wc -l <tries` -ge {passes_at}")
set_tests_properties(timing_test PROPERTIES LABELS "process;timing")
""")

    def test_what_compares_times_is_tried_again(self):
        self.verdict("well")
        self.add_timing_test(3)
        code, text = self.run_tests()
        self.assertEqual(code, 0)
        self.assertIn("run_tests: try 3 of tests that compare times: timing_test\n", text)
        self.assertIn("run_tests: 6 of 6 tests, 0 failed, 1 skipped", text)

    def test_what_compares_times_is_not_tried_for_ever(self):
        self.verdict("well")
        self.add_timing_test(4)
        code, text = self.run_tests()
        self.assertEqual(code, 8)
        self.assertIn("run_tests: 6 of 6 tests, 1 failed, 1 skipped", text)

    def test_other_failures_stay_failures_beside_a_second_try(self):
        self.add_timing_test(2)
        code, text = self.run_tests()
        self.assertEqual(code, 8)
        self.assertIn("run_tests: 6 of 6 tests, 2 failed, 1 skipped", text)

    def test_all_passed_is_said_by_ctest(self):
        self.verdict("well")
        code, text = self.run_tests()
        self.assertEqual(code, 0)
        self.assertIn("100% tests passed, 0 tests failed out of 5", text)

    def test_seconds_per_label_and_the_slowest_tests_follow_once(self):
        text = self.run_tests()[1]
        tables = text[text.index("\nlabel "):]
        self.assertRegex(tables, r"threads +2 +0\.\d\nunit +3 +0\.\d\n")
        self.assertRegex(tables, r"slowest tests +seconds\nslow_test +0\.\d\n")
        self.assertNotIn("Label Time Summary", text)

    def test_every_test_becomes_a_line(self):
        self.run_tests()
        results = {record["name"]: record["result"] for record in self.records()}
        self.assertEqual(results, {
            "quick_test": "passed", "slow_test": "passed", "skipped_test": "skipped",
            "broken_test": "failed", "unmatched_test": "failed"})
        seconds = {record["name"]: record["seconds"] for record in self.records()}
        self.assertGreater(seconds["slow_test"], 0.3)

    def test_resuming_runs_what_has_not_passed(self):
        self.run_tests()
        self.verdict("well")
        code, text = self.run_tests("--resume")
        self.assertEqual(code, 0)
        again = {record["name"] for record in self.records()[5:]}
        self.assertEqual(again, NAMES - {"quick_test", "slow_test"})
        self.assertIn("run_tests: 5 of 5 tests, 0 failed, 1 skipped, 35 gtest cases; "
                      "2 had passed before", text)

    def test_nothing_is_left_when_all_had_passed(self):
        self.run_tests("-L", "threads", "-E", "broken")
        code, text = self.run_tests("-L", "threads", "-E", "broken", "--resume")
        self.assertEqual(code, 0)
        self.assertIn("run_tests: 1 of 1 tests, 0 failed, 0 skipped", text)
        self.assertEqual(len(self.records()), 1)

    def test_a_test_that_failed_since_is_run_again(self):
        self.verdict("well")
        self.run_tests("-R", "broken")
        self.verdict("ill")
        self.run_tests("-R", "broken")
        self.assertEqual(self.run_tests("-R", "broken", "--resume")[0], 8)

    def test_other_sources_and_other_forms_begin_anew(self):
        def change():
            (self.folder / "source.txt").write_text("two\n")

        def add():
            (self.folder / "new.txt").write_text("three\n")

        quick = ("-R", "quick", "--resume")
        self.run_tests(*quick)
        self.assertIn("1 had passed before", self.run_tests(*quick)[1])
        for step in (change, add):
            step()
            self.assertIn("0 had passed before", self.run_tests(*quick)[1])
            self.assertIn("1 had passed before", self.run_tests(*quick)[1])
        self.assertIn("0 had passed before",
                      self.run_tests(*quick, TESSERA_LONG="1")[1])

    def test_no_tests_are_an_error(self):
        self.assertNotEqual(self.run_tests("-R", "none_such")[0], 0)


if __name__ == "__main__":
    unittest.main()
