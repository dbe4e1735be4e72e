#!/usr/bin/env python3
"""Adds a placement kind to a copy of the tree and requires that all of it works there.

  tests/plan/toy_placement/add_kind.py            builds and runs layout_test, plan_test
  tests/plan/toy_placement/add_kind.py --check    only: the patch applies, to few files

cyclic_shard.patch is what a kind of shards costs below Python: the kind and its word, the
arithmetic of its cut, and the lists of placements that tests go through. Its own cases are
cyclic_shard_test.cpp. Exits 1 when something does not apply, compile or pass.
"""
import argparse
import os
import pathlib
import re
import sys
import tempfile

FOLDER = pathlib.Path(__file__).resolve().parent
sys.path.insert(0, str(FOLDER.parent))
from planted_bugs import ROOT, Copy, run

PATCH = FOLDER / "cyclic_shard.patch"
CASES = "SOURCES toy_placement/cyclic_shard_test.cpp "
MOST_FILES = 8


def touched():
    return re.findall(r"^\+\+\+ b/(\S+)", PATCH.read_text(), re.M)


def apply(tree):
    # Inside of a repository, git would leave out what lies in an ignored folder.
    above = {"GIT_CEILING_DIRECTORIES": str(pathlib.Path(tree).parent)}
    return run(["git", "apply", "--verbose", PATCH], cwd=tree, env=os.environ | above)


def check():
    """Applies the patch to copies of the files; returns what is wrong, or ""."""
    files = touched()
    if len(files) > MOST_FILES:
        return f"the patch touches {len(files)} files, more than {MOST_FILES}"
    with tempfile.TemporaryDirectory() as folder:
        for file in files:
            copy = pathlib.Path(folder) / file
            copy.parent.mkdir(parents=True, exist_ok=True)
            copy.write_text((ROOT / file).read_text())
        done = apply(folder)
        kind = (pathlib.Path(folder) / "src/layout/cut.cpp").read_text()
    return "" if done.returncode == 0 and "kCyclicShard" in kind else done.stdout


def build_and_test():
    copy = Copy("toy_placement")
    done = apply(copy.tree)
    lists = copy.tree / "tests/plan/CMakeLists.txt"
    lists.write_text(lists.read_text().replace("SOURCES ", CASES, 1))
    if done.returncode == 0:
        done = copy.compile("layout_test", "plan_test")
    for test in ("layout_test", "plan_test"):
        if done.returncode == 0:
            done = run([copy.build / "bin" / test])
            print(done.stdout[-400:] if done.returncode == 0 else "")
    return done.stdout if done.returncode != 0 else ""


def main():
    parser = argparse.ArgumentParser(description=__doc__.split("\n")[0])
    parser.add_argument("--check", action="store_true", help="apply the patch only")
    arguments = parser.parse_args()
    wrong = check()
    if not wrong and not arguments.check:
        wrong = build_and_test()
    if wrong:
        print(f"{wrong}\nadd_kind: {PATCH.name} no longer adds its kind")
        return 1
    print(f"add_kind: {len(touched())} files touched")
    return 0


if __name__ == "__main__":
    sys.exit(main())
