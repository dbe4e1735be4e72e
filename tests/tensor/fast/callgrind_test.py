#!/usr/bin/env python3
"""Counts the instructions of cached calls on sharded tensors, by callgrind, and fails
when they are more than tests/golden/dispatch_instructions.txt allows.

    python3 tests/tensor/fast/callgrind_test.py            test
    python3 tests/tensor/fast/callgrind_test.py --refresh  measure, and write the bounds anew

TESSERA_BIN names the folder of the programs; build/bin when unset.
"""
import os
import pathlib
import re
import shutil
import subprocess
import sys
import tempfile

ROOT = pathlib.Path(__file__).resolve().parents[3]
BIN = pathlib.Path(os.environ.get("TESSERA_BIN", ROOT / "build" / "bin"))
GOLDEN = ROOT / "tests" / "golden" / "dispatch_instructions.txt"
FUNCTIONS = ("count_plain", "count_sharded")
OPERATORS = {"add_": "writes", "add": "makes a tensor", "linear": "with its backward"}
# Over what was measured. How far malloc() searches depends on what died before.
ROOM = {"add_": 1.10, "add": 1.25, "linear": 1.25}
CALLS = 100
LIMIT = 170  # seconds
SKIPPED = 77
HEADER = """\
# Instructions that a cached call on sharded tensors takes beyond the plain one: what was
# measured, and the most that tests/tensor/fast/callgrind_test.py accepts.
# Refresh: python3 tests/tensor/fast/callgrind_test.py --refresh
"""


def run(command, **environment):
    done = subprocess.run(
        command, capture_output=True, text=True, timeout=LIMIT, check=False,
        env={**os.environ, **environment})
    if done.returncode != 0:
        raise SystemExit(f"{' '.join(command)} failed:\n{done.stderr[-2000:]}")
    return done.stdout


def read(file):
    """Returns the instructions of each function and of what it calls."""
    table = run(["callgrind_annotate", "--inclusive=yes", "--threshold=100", file])
    found = []
    for function in FUNCTIONS:
        line = re.search(rf"^\s*([\d,]+) .*:{function} \[", table, re.M)
        if line is None:
            raise SystemExit(f"callgrind counted nothing in {function}: {file}")
        found.append(int(line.group(1).replace(",", "")) // CALLS)
    return tuple(found)


def measure():
    """Returns the instructions of a plain and of a sharded call, by operator."""
    with tempfile.TemporaryDirectory() as folder:
        said = run(["valgrind", "--tool=callgrind", "--collect-atstart=no",
                    f"--callgrind-out-file={folder}/%p",
                    *(f"--toggle-collect={function}" for function in FUNCTIONS),
                    str(BIN / "dispatch_count"), str(CALLS), *OPERATORS],
                   OMP_NUM_THREADS="1")
        return {operator: read(f"{folder}/{process}")
                for operator, process in re.findall(r"^(\S+) (\d+)$", said, re.M)}


def bounds():
    lines = re.findall(r"^(\S+) measured \d+ bound (\d+)$", GOLDEN.read_text(), re.M)
    return {operator: int(bound) for operator, bound in lines}


def refresh(extras):
    lines = [f"{operator} measured {extra} bound {round(extra * ROOM[operator])}\n"
             for operator, extra in extras.items()]
    GOLDEN.write_text(HEADER + "".join(lines), encoding="utf-8")
    print(f"wrote {GOLDEN.relative_to(ROOT)}")


def main():
    if shutil.which("valgrind") is None:
        print("skipped: valgrind is not there (make setup installs it)")
        return SKIPPED
    measured = measure()
    extras = {operator: sharded - plain
              for operator, (plain, sharded) in measured.items()}
    if "--refresh" in sys.argv[1:]:
        refresh(extras)
        return 0
    allowed = bounds()
    above = 0
    for operator, (plain, sharded) in measured.items():
        extra, most = extras[operator], allowed[operator]
        print(f"instructions of one cached {operator} ({OPERATORS[operator]}): {sharded} "
              f"sharded, {plain} plain, {extra} beyond; at most {most} are accepted")
        above += extra > most
    if above:
        print("make the calls cheaper; or, where the growth is worth it, accept it with\n"
              "  python3 tests/tensor/fast/callgrind_test.py --refresh")
    return 1 if above else 0


if __name__ == "__main__":
    sys.exit(main())
