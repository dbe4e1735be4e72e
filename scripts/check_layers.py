#!/usr/bin/env python3
"""Checks who includes whom.

Holds the table of layers and reads every #include below include/, src/, cli/,
python/, examples/, benchmarks/ and tests/, and the DEPENDS of src/CMakeLists.txt.
The order inside a layer is checked by layer_folders.py, with tables of its own.
Prints one line per broken rule and exits 1 when there is one.

  scripts/check_layers.py [--root FOLDER]
"""
import argparse
import pathlib
import re
import sys
from typing import NamedTuple

import layer_folders

# layer: the layers that it may include beside itself
LAYERS = {
    "base": [],
    "io": ["base"],
    "layout": ["base"],
    "plan": ["base", "layout"],
    "rules": ["base", "layout"],
    "comm": ["base", "layout", "plan"],
    "tensor": ["base", "layout", "plan", "rules", "comm"],
    "modules": ["base", "layout", "comm", "tensor"],
    "parallel": ["base", "layout", "plan", "rules", "comm", "tensor", "modules"],
    "sharded_tensor": ["base", "layout", "plan", "comm", "tensor", "modules"],
    "checkpoint": ["base", "io", "layout", "plan", "comm", "tensor", "modules",
                   "sharded_tensor"],
}
# Layers that see neither tensors nor processes, and what they may use of LibTorch.
SCALAR_TYPE = "c10/core/ScalarType.h"
PURE = {
    "base": ["c10/util/"],
    "io": [],  # fuzzed without LibTorch
    "layout": ["c10/util/"],
    "plan": ["c10/util/", SCALAR_TYPE],
    "rules": ["c10/util/", SCALAR_TYPE, "ATen/core/function_schema.h",
              "ATen/core/operator_name.h"],
}
TORCH = ("ATen/", "c10/", "torch/", "caffe2/")
C10D = ("torch/csrc/distributed/", "gloo/")
WHOLE_TORCH = ("torch/torch.h", "torch/all.h", "torch/extension.h")
USERS = ("cli", "python", "examples", "benchmarks")
LOWEST = "include/tessera/export.h"  # below all layers, which include it
SUFFIXES = {".h", ".hpp", ".cpp", ".cc", ".cu", ".cuh"}


class Include(NamedTuple):
    line: int
    text: str  # as written, without the brackets
    target: str  # path below the root, or "" for what is not ours


class File(NamedTuple):
    path: str
    includes: list

    @property
    def area(self):
        return self.path.split("/")[0]

    @property
    def layer(self):
        return layer_of(self.path)

    @property
    def is_public(self):
        return self.path.startswith("include/")


def layer_of(path):
    """Returns the layer of a file of ours, or "" where none applies."""
    parts = path.split("/")
    if parts[0] == "include":
        return parts[2] if len(parts) > 3 else ""
    if parts[0] == "src":
        return parts[1] if len(parts) > 2 else ""
    if parts[0] == "tests" and len(parts) > 2 and parts[1] in LAYERS:
        return parts[1]
    return ""


def without_comments(text):
    text = re.sub(r"/\*.*?\*/", lambda m: "\n" * m[0].count("\n"), text,
                  flags=re.DOTALL)
    return re.sub(r"//[^\n]*", "", text)


def resolve(root, path, text, quoted):
    places = [root / path.parent] if quoted else []
    places += [root / "include", root / "src"]
    if path.parts[0] == "tests":
        places.append(root / "tests")
    if path.parts[0] in USERS:
        places.append(root)  # "cli/text/terminal.h"
    for place in places:
        candidate = (place / text).resolve()
        if candidate.is_file() and candidate.is_relative_to(root):
            return candidate.relative_to(root).as_posix()
    return ""


def read_file(root, path):
    text = without_comments((root / path).read_text())
    includes = []
    for number, line in enumerate(text.split("\n"), 1):
        match = re.match(r'\s*#\s*include\s*([<"])([^>"]+)[>"]', line)
        if match:
            target = resolve(root, path, match[2], match[1] == '"')
            includes.append(Include(number, match[2], target))
    return File(path.as_posix(), includes)


def read_tree(root):
    files = {}
    for area in ("include", "src", "tests", *USERS):
        for path in sorted((root / area).rglob("*")):
            if path.suffix in SUFFIXES and path.is_file():
                file = read_file(root, path.relative_to(root))
                files[file.path] = file
    return files


def check_own(file, include):
    """Rules for an include of a file of ours."""
    layer, other = file.layer, layer_of(include.target)
    if file.path == LOWEST:
        return "a header below all layers includes nothing of ours"
    if include.target.startswith("src/"):
        if file.is_public:
            return "a public header includes a private one"
        # The terminal of the command draws text as pictures of layouts do, and
        # `tessera ckpt` reads files without LibTorch, as the library does. A benchmark
        # compares checkpoints with plain files of the same checksum.
        if file.area in USERS and not (
                other == "base" and file.path.startswith("cli/text/") or
                other in ("base", "io") and file.path.startswith("cli/ckpt/") or
                other == "io" and file.path.startswith("benchmarks/checkpoint/")):
            return f"{file.area} may include public headers only"
    if layer and include.target == "include/tessera/tessera.h" and \
            file.area != "tests":
        return "a layer includes the header of all layers"
    if layer in LAYERS and other in LAYERS and other != layer and \
            other not in LAYERS[layer]:
        allowed = ", ".join(LAYERS[layer]) or "no other layer"
        return f"{layer} may not include {other}, only {allowed}"
    return ""


def check_foreign(file, include):
    """Rules for an include of LibTorch or another library."""
    text = include.text
    library = file.area in ("include", "src")
    if library and text.startswith(WHOLE_TORCH):
        return "the library includes narrow headers, never all of torch"
    if library and text.startswith(C10D):
        if not file.path.startswith("src/comm/engine/c10d/"):
            return "c10d is included by src/comm/engine/c10d only"
    if library and file.layer in PURE and text.startswith(TORCH):
        if not text.startswith(tuple(PURE[file.layer])):
            allowed = ", ".join(PURE[file.layer]) or "nothing"
            return f"{file.layer} is pure: of LibTorch it may include {allowed}"
    return ""


def check_includes(files):
    for file in files.values():
        if file.area in ("include", "src") and file.layer and \
                file.layer not in LAYERS:
            yield f"{file.path}:1: {file.layer} is not a layer of LAYERS"
        for include in file.includes:
            check = check_own if include.target else check_foreign
            problem = check(file, include)
            if problem:
                yield f"{file.path}:{include.line}: {include.text}: {problem}"


def check_cycles(files, units):
    """Yields each include cycle once, from its first file in walking order; those
    among files of layers are circles of units."""
    done, path = set(), []

    def walk(name):
        if name in path:
            yield path[path.index(name):] + [name]
        if name in path or name in done:
            return
        path.append(name)
        for include in files[name].includes:
            if include.target in files:
                yield from walk(include.target)
        path.pop()
        done.add(name)

    for name in files:
        for cycle in walk(name):
            if units.keys() >= set(cycle):
                continue
            yield f"{cycle[0]}:1: include cycle: {' -> '.join(cycle)}"


def check_cmake(root):
    """Yields the DEPENDS of tessera_layer() calls that the table forbids."""
    path = root / "src/CMakeLists.txt"
    text = path.read_text() if path.exists() else ""
    for call in re.finditer(r"tessera_layer\((\w+)([^)]*)\)", text):
        layer = call[1]
        depends = re.search(r"\bDEPENDS\b([^)]*?)(?:\b[A-Z]{3,}\b|$)", call[2])
        for other in depends[1].split() if depends else []:
            if other not in LAYERS.get(layer, []):
                line = text[:call.start()].count("\n") + 1
                yield f"src/CMakeLists.txt:{line}: {layer} may not depend on {other}"


def check_tree(root):
    root = root.resolve()
    files = read_tree(root)
    units = layer_folders.read_units(files)
    problems = [*check_includes(files), *check_cycles(files, units), *check_cmake(root),
                *layer_folders.check_folders(files, units),
                *layer_folders.check_units(files, units),
                *layer_folders.check_counts(files),
                *layer_folders.check_definitions(root, units)]
    return len(files), problems


def main():
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    here = pathlib.Path(__file__).resolve().parent.parent
    parser.add_argument("--root", type=pathlib.Path, default=here)
    count, problems = check_tree(parser.parse_args().root)
    print(*problems, sep="\n", end="\n" if problems else "")
    print(f"check_layers: {count} files, {len(problems)} problems")
    return 1 if problems or not count else 0


if __name__ == "__main__":
    sys.exit(main())
