#!/usr/bin/env python3
"""Runs what is too long for `make test`, in parts that end within an hour each.

  scripts/check_long.py [PART...]   all parts, or some
  scripts/check_long.py --list      what there is
  scripts/check_long.py --resume    goes on: leaves out what passed on the same sources
  scripts/check_long.py --minutes N stops a part after N minutes instead of 60

A part that fails does not keep the next ones from running; the exit status is 1 when
one failed or was stopped. Each part first shows that it finds a planted fault. All
output goes to build-check-long/PART.log, figures to build-check-long/results.json; a
line about every 20 s says what happens (TESSERA_PROGRESS_SECONDS).
"""
import argparse
import json
import os
import pathlib
import re
import resource
import signal
import subprocess
import sys
import time
from typing import Callable, NamedTuple

from build_progress import SECONDS, clock, lines
from tree_id import tree_id

ROOT = pathlib.Path(__file__).resolve().parent.parent
OUT = ROOT / "build-check-long"
PYTHON = (sys.executable, "-B")
RUN_TESTS = "scripts/run_tests.py"
# Tests that cannot run in a sanitizer's build, and why.
LEFT_OUT = {
    "c10d_python_test": "Python is not instrumented, and the runtime must come first",
}


class Step(NamedTuple):
    name: str
    command: list | Callable
    kind: str = "check"  # build, planted, tests: begun ones are resumed, or check
    environment: dict = {}


class Part(NamedTuple):
    what: str
    steps: list


def build(preset, *targets):
    return Step("build", ["scripts/build.sh", preset, *targets], "build")


def tests(folder, *arguments, **environment):
    return Step("tests", [RUN_TESTS, folder, *arguments], "tests", environment)


def planted(*command):
    return Step("planted fault", command, "planted")


def install_command():
    """Returns the test of tests/install for the release build."""
    folder = ROOT / "build-release"
    cache = dict(re.findall(r"^(\w+):\w+=(.*)$", (folder / "CMakeCache.txt").read_text(),
                            re.M))
    settings = {
        "BUILD": folder, "SOURCE": ROOT, "WORK": folder / "install_test",
        "TORCH": cache["Torch_DIR"],
        "PLAIN_TORCH": cache.get("TESSERA_PLAIN_TORCH", ""),
        "COMPILER": cache["CMAKE_CXX_COMPILER"],
        "LAUNCHER": cache.get("CCACHE", "").replace("CCACHE-NOTFOUND", ""),
        "FLAGS": cache.get("CMAKE_CXX_FLAGS", "")}
    return ["cmake", *(f"-D{key}={value}" for key, value in settings.items()),
            "-P", "tests/install/install_test.cmake"]


NOT_SANITIZED = ("-E", f"^({'|'.join(LEFT_OUT)})$")
PARTS = {
    "asan": Part("all tests under AddressSanitizer and UndefinedBehaviorSanitizer", [
        build("asan"),
        planted(RUN_TESTS, "build-asan", "-L", "^sanitizer$"),
        tests("build-asan", *NOT_SANITIZED)]),
    "tsan": Part("tests with threads and processes under ThreadSanitizer", [
        build("tsan"),
        planted(RUN_TESTS, "build-tsan", "-L", "^sanitizer$"),
        tests("build-tsan", "-L", "^(threads|sanitizer|process)$", *NOT_SANITIZED)]),
    "tidy": Part("clang-tidy on all sources", [
        planted("scripts/tidy.py", "--planted"),
        Step("tidy", ["scripts/tidy.py"], "tests")]),
    "long": Part("all tests in their long forms", [
        build("dev"),
        planted("build/bin/oracle_test", "--gtest_filter=PlantedRules.*"),
        Step("toy placement", [*PYTHON, "tests/plan/toy_placement/add_kind.py"]),
        tests("build", TESSERA_LONG="1")]),
    "fuzz": Part("fuzzer, sharding texts beside JAX, bugs planted in the planner", [
        build("dev"),
        Step("fuzz", ["scripts/fuzz.sh"]),
        Step("fuzz io", ["scripts/fuzz_io.sh"]),
        Step("JAX", [*PYTHON, "tests/layout/xla/xla_jax_test.py"]),
        Step("planted bugs", [*PYTHON, "tests/plan/planted_bugs.py"])]),
    "plain-build": Part("each source and each public header compiled by itself", [
        Step("configure", ["scripts/build.sh", "plain", "build.ninja"], "build"),
        planted(*PYTHON, "tests/planted/planted.py", "header", "build-plain"),
        build("plain")]),
    "release": Part("what users get: one library, installed, and the Python package", [
        build("release"),
        planted(*PYTHON, "tests/planted/planted.py", "export"),
        Step("exports", [*PYTHON, "scripts/check_exports.py", "--library",
                         "build-release/lib/libtessera.so"]),
        Step("install", install_command),
        Step("deb", [*PYTHON, "tests/install/deb_test.py"]),
        Step("pip", [*PYTHON, "tests/python/pip_install.py"]),
        Step("wheel", [*PYTHON, "tests/python/wheel_install.py"])]),
}

# What lines of output say: a count of cases, and of findings where {1} follows.
FIGURES = [(re.compile(pattern), *formats) for pattern, *formats in (
    (r"build: (\d+) of \d+ steps", "{0} steps"),
    (r"run_tests: (\d+) of \d+ tests, (\d+) failed, (\d+) skipped, (\d+) gtest cases",
     "{0} tests, {3} gtest cases", "{1}"),
    (r"tidy: (\d+) (?:of \d+ )?sources, .*?(\d+) findings", "{0} sources", "{1}"),
    (r"fuzz: .* (\d+) executions", "{0} inputs"),
    (r"planted_bugs: (\d+ of \d+) found", "{0} bugs found"),
    (r"Ran (\d+) tests? in", "{0} tests"),
    (r"(skipped: .{40})", "{0}..."),
    (r"check_exports: (\d+) marks, (\d+) problems", "{0} marks", "{1}"),
    (r"\[={10}\] (\d+) tests? from .* ran", "{0} gtest cases"),
)]
PLANTED = re.compile(r"planted faults? found")


class TimeIsUp(Exception):
    pass


class Watch:
    """Follows the output of a step: into the log, and now and then on the screen."""

    def __init__(self, name, log, deadline):
        self.name, self.log, self.deadline = name, log, deadline
        self.begin = self.told = time.monotonic()
        self.last = []  # lines
        self.cases, self.findings, self.planted = "", 0, False

    def remaining(self):
        return max(0, min(self.told + SECONDS, self.deadline) - time.monotonic())

    def tell(self):
        self.told = time.monotonic()
        line = self.last[-1][:90] if self.last else ""
        say(f"{self.name}, {clock(self.told - self.begin)}: {line}")
        if self.told >= self.deadline:
            raise TimeIsUp

    def take(self, raw):
        self.log.write(raw)
        self.log.flush()
        line = raw.decode(errors="replace").rstrip()
        if not line:
            return
        self.last = [*self.last[-19:], line]
        self.planted |= bool(PLANTED.search(line))
        for pattern, *formats in FIGURES:
            found = pattern.match(line)
            if found:
                self.cases, *findings = [f.format(*found.groups()) for f in formats]
                self.findings = int(findings[0]) if findings else self.findings


def say(text):
    print(f"check-long: {text}", flush=True)


def cpu_seconds():
    used = resource.getrusage(resource.RUSAGE_CHILDREN)
    return used.ru_utime + used.ru_stime


def end_group(process):
    """Ends a step and what it has started."""
    for number in (signal.SIGTERM, signal.SIGKILL):
        try:
            os.killpg(process.pid, number)
            process.wait(10)
        except ProcessLookupError:
            break
        except subprocess.TimeoutExpired:
            continue
    process.wait()


def follow(process, watch):
    """Returns passed, failed or stopped."""
    try:
        for line in lines(process.stdout, watch):
            watch.take(line)
        return "passed" if process.wait() == 0 else "failed"
    except TimeIsUp:
        end_group(process)
        os.set_blocking(process.stdout.fileno(), False)
        for line in (process.stdout.read() or b"").splitlines(True):
            watch.take(line)
        return "stopped"
    finally:
        end_group(process)  # also what a step has left running


def run_step(part, step, resume, log, deadline):
    watch = Watch(f"{part}: {step.name}", log, deadline)
    cpu = cpu_seconds()
    say(watch.name)
    try:
        command = step.command() if callable(step.command) else [*step.command]
        if resume and step.kind == "tests" and command[0] == RUN_TESTS:
            command.append("--resume")
        log.write(f"\n== {step.name}: {' '.join(command)}\n".encode())
        result = follow(subprocess.Popen(
            command, cwd=ROOT, env=os.environ | step.environment, bufsize=0,
            stdin=subprocess.DEVNULL, stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT, start_new_session=True), watch)
    except (OSError, KeyError) as error:
        watch.take(f"{error!r}\n".encode())
        result = "failed"
    if result != "passed":
        say(f"{watch.name} {result}; all of it is in {log.name}, the last lines are")
        print(*watch.last, sep="\n", flush=True)
    return {"step": step.name, "kind": step.kind, "result": result, "cases": watch.cases,
            "findings": max(watch.findings, int(result == "failed")),
            "planted": watch.planted or step.kind == "planted" and result == "passed",
            "seconds": time.monotonic() - watch.begin,
            "cpu_seconds": cpu_seconds() - cpu}


class Results:
    """The records of all runs, the last one last."""

    def __init__(self):
        self.file = OUT / "results.json"
        self.records = json.loads(self.file.read_text()) if self.file.exists() else []

    def last(self, part, tree):
        same = [r for r in self.records if r["part"] == part and tree and
                r["tree"] == tree]
        return same[-1] if same else None

    def write(self):
        new = self.file.with_suffix(".new")
        new.write_text(json.dumps(self.records, indent=1))
        new.replace(self.file)


def before(previous, step):
    """Returns what is known of a step, when it is resumed."""
    steps = previous["steps"] if previous else []
    return next((s for s in steps if s["step"] == step.name), None)


def run_part(name, part, results, tree, resume, minutes):
    """Runs a part; its record is kept up to date in `results`."""
    previous = results.last(name, tree) if resume else None
    record = {"part": name, "tree": tree, "result": "stopped", "steps": []}
    results.records.append(record)
    deadline = time.monotonic() + 60 * minutes
    with (OUT / f"{name}.log").open("ab" if previous else "wb") as log:
        for step in part.steps:
            known = before(previous, step)
            if known and known["result"] == "passed" and step.kind != "build":
                record["steps"].append(known)
                continue
            done = run_step(name, step, resume, log, deadline)
            if known and step.kind in ("tests", "build"):
                # These go on where they were.
                done["seconds"] += known["seconds"]
                done["cpu_seconds"] += known["cpu_seconds"]
            record["steps"].append(done)
            results.write()
            if done["result"] == "stopped" or \
                    (done["result"] == "failed" and step.kind == "build"):
                break
    outcomes = {s["result"] for s in record["steps"]}
    record["result"] = next(r for r in ("stopped", "failed", "passed") if r in outcomes)
    results.write()
    return record


HEAD = ("part", "result", "minutes", "CPU minutes", "cases", "findings", "planted fault")


def row(name, steps, result):
    checks = [s for s in steps if s["kind"] in ("check", "tests")]
    cases = ", ".join(s["cases"] for s in checks or steps if s["cases"])
    return (name, result, f"{sum(s['seconds'] for s in steps) / 60:.1f}",
            f"{sum(s['cpu_seconds'] for s in steps) / 60:.1f}", cases or "-",
            str(sum(s["findings"] for s in steps)),
            "found" if any(s["planted"] for s in steps) else "not found")


def table(rows):
    widths = [max(len(r[i]) for r in rows) for i in range(len(HEAD))]
    lines_ = ["| " + " | ".join(map(str.ljust, r, widths)) + " |" for r in rows]
    lines_.insert(1, "| " + " | ".join("-" * w for w in widths) + " |")
    return "\n".join(lines_)


def part_table(record):
    steps = record["steps"]
    rows = [row("  " + s["step"], [s], s["result"]) for s in steps]
    return table([HEAD, *(r if s["planted"] or s["kind"] == "planted" else (*r[:-1], "")
                          for r, s in zip(rows, steps)),
                  row(record["part"], steps, record["result"])])


def main():
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--list", action="store_true", help="print the parts")
    parser.add_argument("--resume", action="store_true", help="leave out what passed")
    parser.add_argument("--minutes", type=float, default=60, help="for a part")
    parser.add_argument("parts", nargs="*", metavar="PART", help=", ".join(PARTS))
    arguments = parser.parse_args()
    unknown = set(arguments.parts) - set(PARTS)
    if unknown:
        parser.error(f"no part called {', '.join(sorted(unknown))}; there are "
                     f"{', '.join(PARTS)}")
    names = arguments.parts or list(PARTS)
    if arguments.list:
        for name in names:
            print(f"{name:12}  {PARTS[name].what}")
        return 0
    OUT.mkdir(exist_ok=True)
    signal.signal(signal.SIGTERM, signal.default_int_handler)
    results, tree = Results(), tree_id()
    records = []
    for name in names:
        record = results.last(name, tree) if arguments.resume else None
        if record and record["result"] == "passed":
            say(f"{name}: has passed on these sources")
        else:
            say(f"{name}: {PARTS[name].what}")
            record = run_part(name, PARTS[name], results, tree, arguments.resume,
                              arguments.minutes)
            print(part_table(record), flush=True)
        records.append(record)
    print("\n" + table([HEAD, *(row(r["part"], r["steps"], r["result"])
                                for r in records)]))
    wrong = [f"{r['part']} {r['result']}" for r in records if r["result"] != "passed"]
    say(", ".join(wrong) + "; go on with --resume" if wrong else "all passed")
    return 1 if wrong else 0


if __name__ == "__main__":
    try:
        sys.exit(main())
    except KeyboardInterrupt:
        say("interrupted; go on with --resume")
        sys.exit(130)
