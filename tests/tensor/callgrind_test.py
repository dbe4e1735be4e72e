#!/usr/bin/env python3
"""Counts the instructions of one cached add_ on a sharded tensor, by callgrind, and
fails when they are more than tests/golden/dispatch_instructions.txt allows.

    python3 tests/tensor/callgrind_test.py            test
    python3 tests/tensor/callgrind_test.py --refresh  measure, and write the bound anew

TESSERA_BIN names the folder of the programs; build/bin when unset.
"""
import os
import pathlib
import re
import shutil
import subprocess
import sys
import tempfile

ROOT = pathlib.Path(__file__).resolve().parents[2]
BIN = pathlib.Path(os.environ.get("TESSERA_BIN", ROOT / "build" / "bin"))
GOLDEN = ROOT / "tests" / "golden" / "dispatch_instructions.txt"
FUNCTIONS = ("count_plain", "count_sharded")
ROOM = 1.10  # over what was measured
CALLS = 100
LIMIT = 170  # seconds
SKIPPED = 77
HEADER = """\
# Instructions that one cached add_ on a sharded tensor takes beyond a plain one: what
# was measured, and the most that tests/tensor/callgrind_test.py accepts.
# Refresh: python3 tests/tensor/callgrind_test.py --refresh
"""


def run(command, **environment):
    done = subprocess.run(
        command, capture_output=True, text=True, timeout=LIMIT, check=False,
        env={**os.environ, **environment})
    if done.returncode != 0:
        raise SystemExit(f"{' '.join(command)} failed:\n{done.stderr[-2000:]}")
    return done.stdout


def count(folder):
    """Returns the instructions of each function and of what it calls."""
    file = os.path.join(folder, "callgrind.out")
    run(["valgrind", "--tool=callgrind", "--collect-atstart=no",
         f"--callgrind-out-file={file}",
         *(f"--toggle-collect={function}" for function in FUNCTIONS),
         str(BIN / "dispatch_count"), str(CALLS)], OMP_NUM_THREADS="1")
    table = run(["callgrind_annotate", "--inclusive=yes", "--threshold=100", file])
    found = {}
    for function in FUNCTIONS:
        line = re.search(rf"^\s*([\d,]+) .*:{function} \[", table, re.M)
        if line is None:
            raise SystemExit(f"callgrind counted nothing in {function}")
        found[function] = int(line.group(1).replace(",", ""))
    return found


def measure():
    """Returns the instructions of one plain and of one sharded call."""
    with tempfile.TemporaryDirectory() as folder:
        found = count(folder)
    return tuple(found[name] // CALLS for name in FUNCTIONS)


def bound():
    return int(re.search(r"^bound (\d+)", GOLDEN.read_text(), re.M).group(1))


def refresh(extra):
    GOLDEN.write_text(
        f"{HEADER}measured {extra}\nbound {round(extra * ROOM)}\n", encoding="utf-8")
    print(f"wrote {GOLDEN.relative_to(ROOT)}")


def main():
    if shutil.which("valgrind") is None:
        print("skipped: valgrind is not there (make setup installs it)")
        return SKIPPED
    plain, sharded = measure()
    extra = sharded - plain
    print(f"instructions of one cached add_: {sharded} sharded, {plain} plain, "
          f"{extra} beyond")
    if "--refresh" in sys.argv[1:]:
        refresh(extra)
        return 0
    if extra > bound():
        print(f"that is above {bound()}: make the call cheaper; or, where the growth is "
              f"worth it, accept it with\n  python3 tests/tensor/callgrind_test.py --refresh")
        return 1
    print(f"at most {bound()} are accepted")
    return 0


if __name__ == "__main__":
    sys.exit(main())
