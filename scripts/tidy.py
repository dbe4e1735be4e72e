#!/usr/bin/env python3
"""Runs clang-tidy on the sources of src/, cli/, benchmarks/ and examples/demo/
(headers with them).

  scripts/tidy.py            those that have not been found clean as they are
  scripts/tidy.py --all      all of them
  scripts/tidy.py --changed  those that differ from the branch main
  scripts/tidy.py --planted  only: faults of tests/planted/tidy.cpp are found
  scripts/tidy.py FILE...

Takes the compiler's options from the preset `plain`, which compiles every source by
itself. BUILD/tidy_clean.txt remembers clean sources by a hash of all that decides:
the text, that of our headers below it, the options and .clang-tidy. Findings are
printed as they come, progress about every 20 s (TESSERA_PROGRESS_SECONDS), and a
table of findings by check at the end.
"""
import argparse
import collections
import concurrent.futures
import functools
import hashlib
import json
import os
import pathlib
import re
import shutil
import subprocess
import sys
import time

ROOT = pathlib.Path(__file__).resolve().parent.parent
SECONDS = float(os.environ.get("TESSERA_PROGRESS_SECONDS", "20"))
CONFIG = ROOT / ".clang-tidy"
PLANTED = "tests/planted/tidy.cpp"
FINDING = re.compile(r"^(\S+:\d+:\d+): (?:warning|error|fatal error): .* "
                     r"\[([\w.,-]+)\]$", re.M)
INCLUDE = re.compile(r'^\s*#\s*include\s*["<]([^">]+)[">]', re.M)


def find_tool():
    tool = shutil.which("clang-tidy-14") or shutil.which("clang-tidy")
    if not tool:
        sys.exit("tidy: clang-tidy is not on PATH; run 'make setup'")
    return tool


def git(*arguments):
    return subprocess.run(["git", *arguments], cwd=ROOT, check=True, text=True,
                          capture_output=True).stdout.split()


def list_sources(changed):
    areas = ("--", "src", "cli", "benchmarks", "examples/demo")
    names = git("ls-files", "--cached", "--others", "--exclude-standard", *areas)
    if changed:
        base, = git("merge-base", "HEAD", "main")
        names = [*git("diff", "--name-only", "--diff-filter=d", base, *areas),
                 *git("ls-files", "--others", "--exclude-standard", *areas)]
    return sorted({n for n in names if n.endswith(".cpp") and (ROOT / n).exists()})


@functools.cache
def included(path):
    """Returns the headers of ours that a file names."""
    found = []
    for name in INCLUDE.findall(path.read_text(errors="replace")):
        for folder in (path.parent, ROOT / "include", ROOT / "src", ROOT):
            if (folder / name).is_file():
                found.append((folder / name).resolve())
                break
    return found


def with_headers(path):
    """Returns a file and our headers below it, each once."""
    seen = [path]
    for file in seen:
        seen += [header for header in included(file) if header not in seen]
    return seen


class Tidy:
    def __init__(self, build):
        self.tool = find_tool()
        self.build = build
        self.clean_file = build / "tidy_clean.txt"
        version = subprocess.run([self.tool, "--version"], check=True,
                                 capture_output=True).stdout
        self.decides = version + CONFIG.read_bytes()
        database = build / "compile_commands.json"
        self.options = {entry["file"]: entry["command"]
                        for entry in json.loads(database.read_text())}

    def state(self, source):
        state = hashlib.sha256(self.decides)
        state.update(self.options.get(str(ROOT / source), "").encode())
        for file in with_headers(ROOT / source):
            state.update(file.read_bytes())
        return f"{state.hexdigest()[:16]} {source}"

    def known_clean(self):
        if not self.clean_file.exists():
            return set()
        return set(self.clean_file.read_text().splitlines())

    def look_at(self, source):
        """Returns whether the source is clean, and clang-tidy's words."""
        # GCC's own options mean nothing to clang.
        done = subprocess.run(
            [self.tool, "--quiet", "-p", self.build,
             "--extra-arg=-Wno-unknown-warning-option", source],
            cwd=ROOT, text=True, stdout=subprocess.PIPE, stderr=subprocess.PIPE)
        said = done.stdout
        if done.returncode != 0 and not FINDING.search(said):
            said += f"{source}:1:1: error: clang-tidy failed [clang-tidy]\n{done.stderr}"
        return done.returncode == 0, said


class Report:
    """Counts findings; one in a header is printed once."""

    def __init__(self, total, known):
        self.begin = self.told = time.monotonic()
        self.total, self.known, self.done = total, known, 0
        self.seen = set()
        self.by_check = collections.Counter()

    def take(self, said):
        starts = [*FINDING.finditer(said)]
        ends = [found.start() for found in starts[1:]] + [len(said)]
        for found, end in zip(starts, ends):
            checks = [c for c in found[2].split(",") if c != "-warnings-as-errors"]
            if (found[1], *checks) not in self.seen:
                self.seen.add((found[1], *checks))
                self.by_check[checks[0]] += 1
                print(said[found.start():end].rstrip(), flush=True)

    def tell(self, sources=""):
        self.told = time.monotonic()
        seconds = int(self.told - self.begin)
        print(f"tidy: {sources or f'{self.done} of {self.total} sources'}, "
              f"{len(self.seen)} findings, {seconds // 60}:{seconds % 60:02}", flush=True)

    def remaining(self):
        return max(0, self.told + SECONDS - time.monotonic())

    def close(self):
        if self.by_check:
            print("\ntidy: findings by check")
            for check, count in self.by_check.most_common():
                print(f"{count:6}  {check}")
        self.tell(f"{self.total + self.known} sources, "
                  f"of which {self.known} were known to be clean")


def look_at_all(tidy, sources, known):
    """Looks at sources side by side; returns whether all are clean."""
    report = Report(len(sources), known)
    jobs = int(os.environ.get("JOBS", len(os.sched_getaffinity(0))))
    # Hashed before: what is edited meanwhile counts as not seen.
    states = {source: tidy.state(source) for source in sources}
    pool = concurrent.futures.ThreadPoolExecutor(jobs)
    pending = {pool.submit(tidy.look_at, source): source for source in sources}
    try:
        while pending:
            done, _ = concurrent.futures.wait(
                pending, report.remaining(), concurrent.futures.FIRST_COMPLETED)
            for future in done:
                clean, said = future.result()
                source = pending.pop(future)
                report.done += 1
                report.take(said)
                if clean:
                    with tidy.clean_file.open("a") as file:
                        file.write(states[source] + "\n")
            if report.remaining() == 0:
                report.tell()
    finally:
        pool.shutdown(cancel_futures=True)
    report.close()
    return not report.seen


def planted_is_found():
    text = (ROOT / PLANTED).read_text()
    named = set(re.findall(r"\b[a-z]+-[a-z]+-[a-z-]+\b", text.split("#include")[0]))
    done = subprocess.run([find_tool(), "--quiet", PLANTED, "--", "-std=c++20"],
                          cwd=ROOT, text=True, capture_output=True)
    found = {check for _, checks in FINDING.findall(done.stdout)
             for check in checks.split(",")}
    if done.returncode == 0 or not named or named - found:
        print(f"tidy: not found in {PLANTED}: {', '.join(sorted(named - found))}\n"
              f"{done.stdout}{done.stderr}")
        return False
    print(f"tidy: planted faults found: {len(named)} of {len(named)}")
    return True


def main():
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--all", action="store_true")
    parser.add_argument("--changed", action="store_true")
    parser.add_argument("--planted", action="store_true")
    parser.add_argument("--build", type=pathlib.Path,
                        help="a folder with compile_commands.json; build-plain")
    parser.add_argument("files", nargs="*")
    arguments = parser.parse_args()
    if arguments.planted:
        return 0 if planted_is_found() else 1
    find_tool()
    if not arguments.build:
        # Only configures.
        subprocess.run([ROOT / "scripts/build.sh", "plain", "build.ninja"], check=True)
    tidy = Tidy((arguments.build or ROOT / "build-plain").resolve())
    sources = arguments.files or list_sources(arguments.changed)
    known = set() if arguments.all or arguments.files else tidy.known_clean()
    new = [source for source in sources if tidy.state(source) not in known]
    return 0 if look_at_all(tidy, new, len(sources) - len(new)) else 1


if __name__ == "__main__":
    sys.exit(main())
