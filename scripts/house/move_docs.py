#!/usr/bin/env python3
"""Moves the pages of docs/ to their places, and mends what names them.

The user's pages are numbered in reading order; internals/ explains the layers,
reference/ is looked up. A branch in progress runs both, each as a commit of its own:

  scripts/house/move_docs.py --move     git mv every page that is still at its old place
  scripts/house/move_docs.py --rewrite  mend links between pages, and paths of pages in
                                        every text file that git knows

Both do nothing where nothing is left to do. A page that became part of another one
(JOINED) is not moved: its text is in that page, and only what names it is mended.
"""
import argparse
import os
import pathlib
import re
import subprocess
import sys

MOVED = {
    "docs/05_dtensor.md": "docs/01_dtensor.md",
    "docs/06_parallel.md": "docs/02_modules.md",
    "docs/07_random.md": "docs/03_random.md",
    "docs/11_launching.md": "docs/04_launching.md",
    "docs/08_explain.md": "docs/05_explain.md",
    "docs/14_python.md": "docs/06_python.md",
    "docs/sharded_tensor.md": "docs/07_sharded_tensor.md",
    "docs/01_layout.md": "docs/internals/layout.md",
    "docs/02_plan.md": "docs/internals/plan.md",
    "docs/03_rules.md": "docs/internals/rules.md",
    "docs/04_mesh_and_comm.md": "docs/internals/comm.md",
    "docs/09_testing.md": "docs/internals/testing.md",
    "docs/10_cli.md": "docs/reference/cli.md",
    "docs/keywords.md": "docs/reference/keywords.md",
    "docs/op_coverage.md": "docs/reference/op_coverage.md",
}
JOINED = {
    "docs/parallel_styles.md": "docs/02_modules.md",
    "docs/sharded_modules.md": "docs/07_sharded_tensor.md",
    "docs/12_simulation.md": "docs/04_launching.md",
    "docs/13_process_groups.md": "docs/04_launching.md",
}
PLACES = MOVED | JOINED
LEFT_ALONE = ("tests/checks/", "tests/repo_scripts/")  # pages that tests make up
OLD_PLACE = {new: old for old, new in MOVED.items()}
LINK = re.compile(r"\]\(([^)\s#:]+)(#[^)\s]*)?\)")  # no address with a scheme
NAME = re.compile(r"\b[\w/]*\w+\.md\b")


def git(root, *arguments):
    return subprocess.run(["git", "-C", root, *arguments], check=True,
                          stdout=subprocess.PIPE, text=True).stdout


def move(root):
    for old, new in MOVED.items():
        if (root / old).exists() and not (root / new).exists():
            (root / new).parent.mkdir(parents=True, exist_ok=True)
            git(root, "mv", old, new)
            print(f"{old} -> {new}")


def mend_link(root, page, match):
    """Returns a Markdown link whose address is right for the page's new place."""
    address, anchor = match[1], match[2] or ""
    here = pathlib.PurePosixPath(page).parent
    if ((root / here / address).exists()
            and os.path.normpath(here / address) not in PLACES):
        return match[0]
    before = pathlib.PurePosixPath(OLD_PLACE.get(page, page)).parent
    target = os.path.normpath(before / address)
    target = PLACES.get(target, target)
    if not (root / target).exists():
        return match[0]
    if target == page and anchor:
        return f"]({anchor})"
    return f"]({os.path.relpath(target, here)}{anchor})"


def mend_names(text):
    """Replaces docs/OLD.md, and the bare OLD.md of a numbered page, by the new path."""
    bare = {old.removeprefix("docs/"): new.removeprefix("docs/")
            for old, new in PLACES.items() if re.match(r"docs/\d\d_", old)}
    text = NAME.sub(lambda m: PLACES.get(m[0], m[0]), text)
    # Of a link only the shown text is left to mend here, as in [05_dtensor.md](...).
    text = re.sub(r"\[(\d\d_\w+\.md)\]", lambda m: f"[{bare.get(m[1], m[1])}]", text)
    return re.sub(r"\[(\d\d_\w+)\]\(",
                  lambda m: f"[{bare.get(m[1] + '.md', m[1]).removesuffix('.md')}](",
                  text)


def rewrite(root):
    this = pathlib.Path(__file__).resolve()
    for name in git(root, "ls-files", "-z").split("\0"):
        path = root / name
        if not path.is_file() or path.resolve() == this or name.startswith(
                LEFT_ALONE):
            continue
        try:
            text = path.read_text(encoding="utf-8")
        except UnicodeDecodeError:
            continue
        new = text
        if name.endswith(".md"):
            new = LINK.sub(lambda m: mend_link(root, name, m), new)
        new = mend_names(new)
        if new != text:
            path.write_text(new, encoding="utf-8")
            print(name)


def main():
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    here = pathlib.Path(__file__).resolve().parent.parent.parent
    parser.add_argument("--root", type=pathlib.Path, default=here)
    what = parser.add_mutually_exclusive_group(required=True)
    what.add_argument("--move", action="store_true")
    what.add_argument("--rewrite", action="store_true")
    arguments = parser.parse_args()
    root = arguments.root.resolve()
    move(root) if arguments.move else rewrite(root)
    return 0


if __name__ == "__main__":
    sys.exit(main())
