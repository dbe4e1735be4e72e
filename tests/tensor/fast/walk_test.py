#!/usr/bin/env python3
"""Compares ARCHITECTURE's walk of a call with what callgrind sees: the files of the
functions of ours that run between the dispatcher's call of `mm` and its return.

    python3 tests/tensor/fast/walk_test.py            test
    python3 tests/tensor/fast/walk_test.py --refresh  write the walk into ARCHITECTURE.md

A call that was met before stays in FAST and at most MOST_OTHERS files elsewhere. A call
that is decided goes downwards: no folder calls one that stands later in the lists of
scripts/layer_folders.py, but for the functions that are hooks there. TESSERA_BIN names
the folder of the programs; build/bin when unset.
"""
import os
import pathlib
import re
import shutil
import subprocess
import sys
import tempfile
import textwrap

ROOT = pathlib.Path(__file__).resolve().parents[3]
sys.path.insert(0, str(ROOT / "scripts"))
import check_layers  # noqa: E402
import layer_folders  # noqa: E402

BIN = pathlib.Path(os.environ.get("TESSERA_BIN", ROOT / "build" / "bin"))
PAGE = ROOT / "ARCHITECTURE.md"
BLOCK = re.compile(r"(<!-- walk: (\w+) -->\n```\n)(.*?)(```\n)", re.S)
FAST = ("src/tensor/fast", "src/tensor/impl", "src/tensor/state")
MOST_OTHERS = 2
# Called from below beside the hooks of layer_folders.py, and why.
HOOKS = {"src/tensor/impl/wrapper_pools.cpp": "pools of state/ hold what impl/ defines"}
LIMIT = 170  # seconds
SKIPPED = 77


def run(command):
    done = subprocess.run(command, capture_output=True, text=True, timeout=LIMIT,
                          check=False, env={**os.environ, "OMP_NUM_THREADS": "1"})
    if done.returncode != 0:
        raise SystemExit(f"{' '.join(command)} failed:\n{done.stderr[-2000:]}")
    return done.stdout


def own_file(path):
    """Returns a path below the root, or None for files that are not ours."""
    place = pathlib.Path(os.path.normpath(path))
    if place.is_relative_to(ROOT):
        name = place.relative_to(ROOT).as_posix()
        return name if name.startswith(("src/", "include/")) else None
    return None


class Walk:
    """The functions of ours that ran, by file, and who called whom."""

    def __init__(self, text):
        self.file_of = {}
        self.calls = set()  # (name of the caller, name of the called)
        file = caller = called = None
        for line in text.splitlines():
            key, _, value = line.partition("=")
            if key == "fl":
                file = value
            elif key == "fn":
                caller = value
                self.file_of[caller] = own_file(file)
            elif key == "cfn":
                called = value
            elif key == "calls":
                self.calls.add((caller, called))

    def files(self):
        return {file for file in self.file_of.values() if file}

    def own_calls(self):
        """Yields (file, file, name of the called) of calls from file to file."""
        for caller, called in self.calls:
            files = self.file_of.get(caller), self.file_of.get(called)
            if all(files):
                yield *files, called


class Order:
    """The place of each folder in the lists of layers and of their folders."""

    def __init__(self):
        self.units = layer_folders.read_units(check_layers.read_tree(ROOT))
        self.layers = list(check_layers.LAYERS)
        self.hooks = set(HOOKS) | {
            source for source, why in layer_folders.ELSEWHERE.values()
            if why == layer_folders.HOOK}

    def rank(self, file):
        if file.startswith("src/base/"):
            return 0, 0
        unit = self.units[file]
        return (self.layers.index(unit.layer),
                layer_folders.FOLDERS[unit.layer].index(unit.folder))

    def upward(self, walk):
        """Returns the calls of a later folder that are no hooks."""
        return sorted(f"{caller} calls {name} of {called}"
                      for caller, called, name in walk.own_calls()
                      if self.rank(called) > self.rank(caller)
                      and called not in self.hooks)

    def text(self, walk):
        """Returns the files of a walk, a line for each folder, the highest first."""
        folders = {}
        for file in walk.files():
            folder, _, name = file.rpartition("/")
            folders.setdefault((self.rank(file), folder), []).append(name)
        width = max(len(folder) for _, folder in folders)
        lines = []
        for (_, folder), names in sorted(folders.items(), reverse=True):
            lines += textwrap.wrap(
                f"{folder.ljust(width)}  " + " ".join(sorted(names)), 92,
                subsequent_indent=" " * (width + 2), break_on_hyphens=False)
        return "".join(f"{line}\n" for line in lines)


def measure():
    """Returns the walk of each call of walk_probe, by name."""
    with tempfile.TemporaryDirectory() as folder:
        said = run(["valgrind", "--tool=callgrind", "--collect-atstart=no",
                    "--compress-strings=no", "--toggle-collect=walk",
                    f"--callgrind-out-file={folder}/%p", str(BIN / "walk_probe")])
        return {name: Walk(pathlib.Path(folder, process).read_text())
                for name, process in re.findall(r"^(\w+) (\d+)$", said, re.M)}


def problems(walks, order, page):
    """Yields what is wrong with the walks, and with what the page says of them."""
    elsewhere = sorted(file for file in walks["cached"].files()
                       if not file.startswith(FAST))
    if len(elsewhere) > MOST_OTHERS:
        yield (f"a cached mm runs in {len(elsewhere)} files outside of "
               f"{', '.join(FAST)}, {MOST_OTHERS} are allowed: {', '.join(elsewhere)}")
    for call in order.upward(walks["first"]):
        yield f"a first mm goes upwards: {call}"
    told = {name: text for _, name, text, _ in BLOCK.findall(page)}
    for name, walk in walks.items():
        text = order.text(walk)
        if told.get(name) != text:
            yield (f"ARCHITECTURE.md tells another walk of a {name} mm than callgrind, "
                   f"which saw\n{text}refresh it with\n"
                   "  python3 tests/tensor/fast/walk_test.py --refresh")


def main():
    if shutil.which("valgrind") is None:
        print("skipped: valgrind is not there (make setup installs it)")
        return SKIPPED
    walks, order = measure(), Order()
    if "--refresh" in sys.argv[1:]:
        PAGE.write_text(BLOCK.sub(
            lambda found: found[1] + order.text(walks[found[2]]) + found[4],
            PAGE.read_text()), encoding="utf-8")
        print(f"wrote {PAGE.relative_to(ROOT)}")
    found = [*problems(walks, order, PAGE.read_text())]
    for problem in found:
        print(problem)
    for name, walk in walks.items():
        own = sum(file is not None for file in walk.file_of.values())
        print(f"a {name} mm: {own} functions of ours in {len(walk.files())} files")
    return 1 if found else 0


if __name__ == "__main__":
    sys.exit(main())
