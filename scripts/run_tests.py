#!/usr/bin/env python3
"""Runs the tests of a build folder; then the seconds per label and the slowest tests.

  scripts/run_tests.py BUILD [--resume] [CTEST ARGUMENTS...]

CTest's output and exit status stay as they are, but for tests with the label `timing`:
they compare times, which a busy machine falsifies, so one that fails is tried twice
more, alone, and a line says so. Each test that ends becomes a line of
BUILD/test_results.jsonl; with --resume, tests that passed on the same sources, in
that folder and form (TESSERA_LONG), are not run again.
"""
import json
import os
import pathlib
import re
import signal
import subprocess
import sys
from typing import NamedTuple

from tree_id import tree_id

# `12/121 Test  #7: layout_test ......   Passed    0.51 sec`; a reason that is printed
# between the two may hold a line break.
RESULT = re.compile(r"\s*\d+/\d+ Test +#\d+: (\S+) \.*(.*)")
TIME = re.compile(r"([\d.]+) sec\s*$")
GTEST = re.compile(r"^\[={10}\] (\d+) tests? from .* ran\.", re.M)
SLOWEST = 10
TRIES = 3  # of a test with the label `timing`


class Result(NamedTuple):
    name: str
    result: str  # passed, failed or skipped
    seconds: float


def result_of(text):
    if text.strip().startswith("Passed"):
        return "passed"
    skipped = "***Skipped" in text or "***Not Run (Disabled)" in text
    return "skipped" if skipped else "failed"


def read_results(lines, names):
    """Yields what CTest's lines say of tests; `lines` are gone through once."""
    for line in lines:
        found = RESULT.match(line)
        if not found or found[1] not in names:
            continue
        seconds = TIME.search(line) or TIME.search(next(lines, ""))
        yield Result(found[1], result_of(found[2]), float(seconds[1]) if seconds else 0)


class Folder:
    """A build folder, and what is remembered of its tests."""

    def __init__(self, path):
        self.path = path
        settings = path / ".settings"
        self.tree = tree_id(
            os.environ.get("TESSERA_LONG", ""),
            settings.read_text() if settings.exists() else "")
        self.results = path / "test_results.jsonl"
        self.cases_file = path / "test_cases.json"

    def ctest(self, *arguments, **options):
        return subprocess.Popen(["ctest", *arguments], cwd=self.path, text=True,
                                errors="replace", stdout=subprocess.PIPE, **options)

    def labels(self, arguments):
        """Returns the labels of each test that the arguments choose."""
        listing = self.ctest("--show-only=json-v1", *arguments)
        text = listing.communicate()[0]
        if listing.returncode != 0:
            sys.stdout.write(text)
            sys.exit(listing.returncode)
        return {test["name"]: next((p["value"] for p in test.get("properties", [])
                                    if p["name"] == "LABELS"), ["none"])
                for test in json.loads(text)["tests"]}

    def passed_before(self):
        last = {}
        if self.tree and self.results.exists():
            for line in self.results.read_text().splitlines():
                record = json.loads(line)
                if record["tree"] == self.tree:
                    last[record["name"]] = record["result"]
        return {name for name, result in last.items() if result == "passed"}

    def remember(self, result):
        with self.results.open("a") as file:
            file.write(json.dumps(result._asdict() | {"tree": self.tree}) + "\n")

    def gtest_cases(self):
        """Returns how many cases each gtest program ran when it last ran."""
        cases = {}
        if self.cases_file.exists():
            cases = json.loads(self.cases_file.read_text())
        log = self.path / "Testing/Temporary/LastTest.log"
        if log.exists():
            parts = re.split(r"^\d+/\d+ Test: (\S+)$", log.read_text(errors="replace"),
                             flags=re.M)
            for name, output in zip(parts[1::2], parts[2::2]):
                counts = GTEST.findall(output)
                if counts:
                    cases[name] = int(counts[-1])
            self.cases_file.write_text(json.dumps(cases))
        return cases


def echoed(lines):
    for line in lines:
        sys.stdout.write(line)
        sys.stdout.flush()
        yield line


def run(folder, names, all_names, arguments):
    """Runs the tests of these names; returns CTest's status and the results."""
    status, results = run_once(folder, names, all_names, arguments)
    tries = 1
    while tries < TRIES:
        again = {r.name for r in results
                 if r.result == "failed" and "timing" in all_names[r.name]}
        if not again:
            break
        tries += 1
        print(f"\nrun_tests: try {tries} of tests that compare times: "
              + " ".join(sorted(again)), flush=True)
        others = [r for r in results if r.name not in again]
        failed = any(r.result == "failed" for r in others)
        code, repeated = run_once(folder, sorted(again), all_names, arguments)
        results = others + repeated
        status = status if failed else code
    return status, results


def run_once(folder, names, all_names, arguments):
    only = []
    if len(names) < len(all_names):
        only = ["-R", "^(" + "|".join(map(re.escape, names)) + ")$"]
    # Tests with ranks take two slots; see tests/CMakeLists.txt.
    jobs = str(2 * len(os.sched_getaffinity(0)))
    ctest = folder.ctest("--output-on-failure", "--no-tests=error",
                         "--no-label-summary", "-j", jobs, *arguments, *only,
                         stderr=subprocess.STDOUT)
    # Ctrl-C reaches CTest too; what has run by then is still summed up.
    signal.signal(signal.SIGINT, signal.SIG_IGN)
    signal.signal(signal.SIGTERM, lambda *_: ctest.terminate())
    results = []
    for result in read_results(echoed(ctest.stdout), set(names)):
        folder.remember(result)
        results.append(result)
    status = ctest.wait()
    return (status if status >= 0 else 128 - status), results


def print_tables(results, labels):
    per_label = {}
    for result in results:
        for label in labels[result.name]:
            per_label.setdefault(label, []).append(result.seconds)
    print(f"\n{'label':16}{'tests':>8}{'seconds':>10}")
    for label, seconds in sorted(per_label.items(), key=lambda row: -sum(row[1])):
        print(f"{label:16}{len(seconds):8}{sum(seconds):10.1f}")
    slowest = sorted(results, key=lambda result: -result.seconds)[:SLOWEST]
    print(f"\n{'slowest tests':34}{'seconds':>10}")
    for result in slowest:
        print(f"{result.name:34}{result.seconds:10.1f}")


def main():
    if len(sys.argv) < 2 or sys.argv[1].startswith("-"):
        print(__doc__)
        return 2
    folder = Folder(pathlib.Path(sys.argv[1]))
    arguments = [a for a in sys.argv[2:] if a != "--resume"]
    labels = folder.labels(arguments)
    before = folder.passed_before() if "--resume" in sys.argv else set()
    names = [name for name in labels if name not in before]
    status, results = 0, []
    if names or not labels:
        status, results = run(folder, names, labels, arguments)
        print_tables(results, labels)
    cases = sum(count for name, count in folder.gtest_cases().items() if name in labels)
    count = {kind: sum(r.result == kind for r in results)
             for kind in ("failed", "skipped")}
    print(f"\nrun_tests: {len(labels) - len(names) + len(results)} of {len(labels)} tests, "
          f"{count['failed']} failed, {count['skipped']} skipped, {cases} gtest cases; "
          f"{len(labels) - len(names)} had passed before")
    return status


if __name__ == "__main__":
    sys.exit(main())
