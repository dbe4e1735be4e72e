#!/usr/bin/env python3
"""Gives every layer a detail namespace of its own, inside tessera::detail.

  namespace tessera::detail {    in src/comm/**, include/tessera/comm/**   becomes
  namespace tessera::detail::inline comm_layer {

The namespaces are inline, so that `detail::Name` and unqualified names of lower
layers mean what they meant. But two layers that define one name define two things:
where a source sees both, the compiler says so, and where none does, the linker no
longer takes one for the other.

Files are known by their layer's folder, so this works before and after files move
inside a layer. A branch in progress runs it after a merge; a second run changes
nothing.

  scripts/house/layer_namespaces.py [--dry-run]
"""
import argparse
import pathlib
import re
import subprocess
import sys

LAYERS = ("layout", "plan", "rules", "comm", "tensor", "modules", "parallel",
          "sharded_tensor", "checkpoint")
# Types that another layer's header declares before they are defined.
FORWARD = {"RandomCounters": "comm"}
OPEN = re.compile(r"^(namespace (?:tessera::)?detail)( \{)", re.MULTILINE)
CLOSE = re.compile(r"^(\}  // namespace (?:tessera::)?detail)$", re.MULTILINE)


def layer_of(path):
    """Returns the layer of a file of the library, or ""."""
    parts = path.split("/")
    if parts[0] == "src" and len(parts) > 2:
        return parts[1] if parts[1] in LAYERS else ""
    if parts[:2] == ["include", "tessera"] and len(parts) > 3:
        return parts[2] if parts[2] in LAYERS else ""
    return ""


def with_layer(path, text):
    layer = layer_of(path)
    if not layer:
        return text
    for name, other in FORWARD.items():
        if other != layer:
            space = f"namespace detail::inline {other}_layer"
            text = re.sub(
                rf"^namespace detail {{\n((?:class|struct) {name};\n)",
                rf"{space} {{\n\1}}  // {space}\nnamespace detail {{\n", text,
                flags=re.MULTILINE)
    text = OPEN.sub(rf"\1::inline {layer}_layer\2", text)
    return CLOSE.sub(rf"\1::inline {layer}_layer", text)


def main():
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--root", type=pathlib.Path,
                        default=pathlib.Path(__file__).resolve().parents[2])
    parser.add_argument("--dry-run", action="store_true")
    arguments = parser.parse_args()
    names = subprocess.run(
        ["git", "ls-files", "--cached", "--others", "--exclude-standard", "src",
         "include"], cwd=arguments.root, capture_output=True, text=True,
        check=True).stdout.splitlines()
    changed = 0
    for name in names:
        path = arguments.root / name
        if not name.endswith((".h", ".cpp", ".cu", ".cuh")) or not path.is_file():
            continue
        text = path.read_text()
        result = with_layer(name, text)
        if result != text:
            changed += 1
            if not arguments.dry_run:
                path.write_text(result)
    print(f"layer_namespaces: {changed} files")
    return 0


if __name__ == "__main__":
    sys.exit(main())
