#!/usr/bin/env python3
"""Prints a name for the state of the sources: equal text, equal name.

Made from what git tracks, from changes that are not committed and from new files, so
that results of tests can be kept until something changes. Empty without git.
"""
import hashlib
import pathlib
import subprocess

ROOT = pathlib.Path(__file__).resolve().parent.parent


def git(*arguments):
    return subprocess.run(["git", *arguments], cwd=ROOT, check=True,
                          stdout=subprocess.PIPE, stderr=subprocess.DEVNULL).stdout


def tree_id(*more):
    """`more`: texts beside the sources that results depend on."""
    try:
        state = hashlib.sha256(git("ls-files", "--stage"))
        state.update(git("diff", "--binary", "--full-index", "--no-ext-diff"))
        new = git("ls-files", "--others", "--exclude-standard", "-z")
    except (OSError, subprocess.CalledProcessError):
        return ""
    for name in new.split(b"\0"):
        path = ROOT / name.decode()
        if name and path.is_file():
            state.update(name + b"\0" + path.read_bytes() + b"\0")
    for text in more:
        state.update(b"\0" + text.encode())
    return state.hexdigest()[:16]


if __name__ == "__main__":
    print(tree_id())
