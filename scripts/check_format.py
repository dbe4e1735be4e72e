#!/usr/bin/env python3
"""Checks that every C++ file is laid out as clang-format 14 lays it out.

Other versions lay some lines out differently, so only 14 will do; without it the
exit status is 77, which CTest shows as skipped (with CI=true: 1).

  scripts/check_format.py          say which files differ, and where first
  scripts/check_format.py --fix    rewrite them
"""
import argparse
import os
import pathlib
import re
import shutil
import subprocess
import sys

VERSION = "14"
SUFFIXES = (".h", ".cpp", ".cu", ".cuh")


def find_tool():
    """Returns a clang-format of the right version, or None."""
    for name in (f"clang-format-{VERSION}", "clang-format"):
        path = shutil.which(name)
        if not path:
            continue
        text = subprocess.run([path, "--version"], capture_output=True,
                              text=True, check=True).stdout
        if f"version {VERSION}." in text:
            return path
    return None


def list_files(root):
    """Returns what git tracks or would; all files where there is no git."""
    git = subprocess.run(
        ["git", "ls-files", "--cached", "--others", "--exclude-standard"],
        cwd=root, capture_output=True, text=True)
    if git.returncode == 0:
        names = git.stdout.splitlines()
    else:
        areas = ("include", "src", "cli", "tests", "examples", "benchmarks",
                 "python")
        names = [p.relative_to(root).as_posix()
                 for area in areas for p in (root / area).rglob("*")]
    return sorted({n for n in names
                   if n.endswith(SUFFIXES) and (root / n).is_file()})


def find_wrong(tool, root, files):
    """Yields 'FILE:LINE: ...' for each file that would be laid out differently."""
    said = subprocess.run(
        [tool, "--dry-run", "-Werror", "--ferror-limit=1", *files], cwd=root,
        capture_output=True, text=True).stderr
    # It also names files that it leaves as they are: it would replace the comment
    # behind a namespace with `inline` in its name by the same one.
    for name, line in re.findall(r"^(\S+?):(\d+):\d+: error", said, re.M):
        text = (root / name).read_text()
        done = subprocess.run([tool, name], cwd=root, capture_output=True, text=True,
                              check=True).stdout
        if done != text:
            yield f"{name}:{line}: clang-format would lay this out differently"


def main():
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--fix", action="store_true")
    arguments = parser.parse_args()
    tool = find_tool()
    if not tool:
        print(f"check_format: clang-format {VERSION} is not on PATH")
        return 1 if os.environ.get("CI") == "true" else 77
    root = pathlib.Path(__file__).resolve().parent.parent
    files = list_files(root)
    if not files:
        print("check_format: found no files to check")
        return 1
    if arguments.fix:
        subprocess.run([tool, "-i", *files], cwd=root, check=True)
        print(f"check_format: {len(files)} files; all as they should be")
        return 0
    wrong = list(find_wrong(tool, root, files))
    print(*wrong, sep="\n", end="\n" if wrong else "")
    print(f"check_format: {len(files)} files; "
          + ("run 'make format'" if wrong else "all as they should be"))
    return 1 if wrong else 0


if __name__ == "__main__":
    sys.exit(main())
