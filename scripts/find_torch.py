#!/usr/bin/env python3
"""Prints where this Python's LibTorch keeps its CMake package.

Exits 1 when this Python has no torch, 2 when its version is not one that
Tessera supports (the version goes to stderr). Reads files only: importing torch
would take seconds. With --modules, also exits 1 when one of them is missing.
"""
import argparse
import importlib.util
import pathlib
import re
import sys

# First and last. cmake/find_torch.cmake and setup.sh read this line.
SUPPORTED = ((2, 11), (2, 14))


def version_of(package):
    text = (package / "version.py").read_text()
    return re.search(r"__version__\s*=\s*['\"]([^'\"]+)", text).group(1)


def is_supported(version, exact=None):
    if exact:
        return version.split("+")[0] == exact
    first, last = SUPPORTED
    return first <= tuple(int(n) for n in version.split(".")[:2]) <= last


def main():
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--exact", help="the only version that will do")
    parser.add_argument("--modules", nargs="*", default=[])
    arguments = parser.parse_args()
    spec = importlib.util.find_spec("torch")
    if not spec or not spec.origin:
        return 1
    package = pathlib.Path(spec.origin).parent
    version = version_of(package)
    if not is_supported(version, arguments.exact):
        print(version, file=sys.stderr)
        return 2
    # Wheels keep the package beside the module, conda below its own prefix.
    places = [p / "share" / "cmake" for p in (package, pathlib.Path(sys.prefix))]
    found = [p for p in places if (p / "Torch" / "TorchConfig.cmake").exists()]
    if not found:
        return 1
    print(found[0])
    missing = [m for m in arguments.modules if not importlib.util.find_spec(m)]
    return 1 if missing else 0


if __name__ == "__main__":
    sys.exit(main())
