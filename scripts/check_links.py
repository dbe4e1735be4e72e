#!/usr/bin/env python3
"""Checks that what the pages name is there.

- A link of a page leads to a file or folder; its #anchor to a heading of that page.
- The path of a page, below docs/, in any text file that git knows is right.
- A path in `backticks` of a page is a file, a folder, or a glob that matches one.
- A cited Note [Title] stands in a source: as "// Note [Title]".

CHANGELOG.md tells of the past: only its links are checked.

  scripts/check_links.py [--root FOLDER]    lists what is not there; exit 1 for any
"""
import argparse
import os
import pathlib
import re
import subprocess
import sys

import keywords

FOLDERS = ("benchmarks cli cmake docs examples include python scripts src tests").split()
LINK = re.compile(r"\]\(([^()\s#:]*)(?:#([^)\s]*))?\)")
PATH = re.compile(rf"(?:{'|'.join(FOLDERS)})/[\w./*{{}},-]*")
PAGE = re.compile(r"(?<![\w/])docs/[\w/]+\.md\b")
NOTE = re.compile(r"\bNotes? ((?:\[[^\]\n]+\](?:, | and )?)+)")
# Tests that make pages up.
LEFT_ALONE = ("tests/repo_scripts/",)


def known_files(root):
    out = subprocess.run(
        ["git", "-C", root, "ls-files", "-z", "--cached", "--others",
         "--exclude-standard"], check=True, stdout=subprocess.PIPE, text=True).stdout
    return sorted({name for name in out.split("\0") if (root / name).is_file()})


def read_text(path):
    try:
        return path.read_text(encoding="utf-8")
    except UnicodeDecodeError:
        return ""


def prose(text):
    """Yields number and text of the lines that are outside of fenced blocks."""
    fenced = False
    for number, line in enumerate(text.split("\n"), 1):
        if re.match(r"\s*```", line):
            fenced = not fenced
        elif not fenced:
            yield number, line


def anchors(text):
    return {s.anchor for s in keywords.read_sections("", text)}


def unfold(path):
    """Turns a/{b,c}.h into a/b.h and a/c.h."""
    match = re.search(r"\{([^{}]*)\}", path)
    if not match:
        return [path]
    return [p for word in match[1].split(",")
            for p in unfold(path[:match.start()] + word.strip() + path[match.end():])]


def is_there(root, path):
    path = path.replace("NAME", "*")  # cli/NAME.cpp: any command's
    if "*" in path:
        return any(root.glob(path))
    return (root / path).exists()


def link_problem(root, page, address, anchor):
    target = root / os.path.normpath((root / page).parent / address) if address else (
        root / page)
    if not target.exists():
        return f"no file {address}"
    if anchor and target.suffix == ".md" and anchor not in anchors(read_text(target)):
        return f"no heading #{anchor} in {address or page}"
    return ""


def page_problems(root, page, notes):
    text = read_text(root / page)
    for number, line in prose(text):
        where = f"{page}:{number}"
        without_code = re.sub(r"`[^`]*`", lambda m: " " * len(m[0]), line)
        for match in LINK.finditer(without_code):
            problem = link_problem(root, page, match[1], match[2])
            if problem:
                yield f"{where}: {problem}"
        if page == "CHANGELOG.md":
            continue
        for span in re.findall(r"`([^`]+)`", line):
            if PATH.fullmatch(span):
                for path in unfold(span):
                    if not is_there(root, path):
                        yield f"{where}: no {path}"
        for match in NOTE.finditer(line):
            for title in re.findall(r"\[[^\]]+\]", match[1]):
                if title not in notes:
                    yield f"{where}: no Note {title}"


def problems_of(root):
    files = known_files(root)
    notes = set()
    for name in files:
        if name.startswith(("src/", "include/", "cli/", "python/", "benchmarks/")):
            notes.update(re.findall(r"(?://|#) Note (\[[^\]]+\])",
                                    read_text(root / name)))
    for name in files:
        if name.startswith(LEFT_ALONE):
            continue
        if name.endswith(".md"):
            yield from page_problems(root, name, notes)
        for page in sorted(set(PAGE.findall(read_text(root / name)))):
            if not (root / page).exists():
                yield f"{name}: no {page}"


def main():
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    here = pathlib.Path(__file__).resolve().parent.parent
    parser.add_argument("--root", type=pathlib.Path, default=here)
    problems = [*problems_of(parser.parse_args().root.resolve())]
    for problem in problems:
        print(problem)
    print(f"check_links: {len(problems)} problems")
    return 1 if problems else 0


if __name__ == "__main__":
    sys.exit(main())
