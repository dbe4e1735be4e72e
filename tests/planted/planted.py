#!/usr/bin/env python3
"""Plants faults that parts of `make check-long` must find before they are believed.

  tests/planted/planted.py header BUILD   a header that needs another one before it
                                          does not compile as BUILD compiles headers
  tests/planted/planted.py export         a library that shows a function which no
                                          public header marks is refused

Exits 1 when the fault is not found, or when the same without it is refused too.
"""
import json
import pathlib
import shlex
import subprocess
import sys
import tempfile

ROOT = pathlib.Path(__file__).resolve().parents[2]


def run(command, **options):
    return subprocess.run(command, text=True, stdout=subprocess.PIPE,
                          stderr=subprocess.STDOUT, **options)


def compile_alone(build, folder, header):
    """Compiles a header's text with the options that BUILD has for headers."""
    entries = json.loads((build / "compile_commands.json").read_text())
    entry = next((e for e in entries if "/headers_alone/" in e["file"]), None)
    if entry is None:
        sys.exit(f"planted: {build} compiles no header alone")
    (folder / "planted.h").write_text(header)
    source = folder / "planted.cpp"
    source.write_text('#include "planted.h"\n#include "planted.h"\n')
    command = shlex.split(entry["command"])
    command[command.index("-o") + 1] = str(folder / "planted.o")
    command = [str(source) if part == entry["file"] else part for part in command]
    return run(command, cwd=entry["directory"])


def header_is_found(folder, build):
    body = "#pragma once\n{}namespace tessera {{\nstd::vector<int> planted();\n}}\n"
    whole = compile_alone(build.resolve(), folder, body.format("#include <vector>\n"))
    if whole.returncode != 0:
        return f"a whole header does not compile:\n{whole.stdout}"
    needy = compile_alone(build.resolve(), folder, body.format(""))
    return "" if needy.returncode != 0 else "a header without its includes compiles"


def export_is_found(folder):
    source = folder / "planted.cpp"
    source.write_text("namespace tessera {\nint planted_export() { return 1; }\n}\n")
    library = folder / "libplanted.so"
    built = run(["c++", "-shared", "-fPIC", source, "-o", library])
    if built.returncode != 0:
        return built.stdout
    checked = run([sys.executable, "-B", ROOT / "scripts/check_exports.py",
                   "--library", library])
    found = checked.returncode != 0 and "tessera::planted_export" in checked.stdout
    return "" if found else f"an unmarked symbol is not refused:\n{checked.stdout}"


FAULTS = {"header": header_is_found, "export": export_is_found}


def main():
    if len(sys.argv) < 2 or sys.argv[1] not in FAULTS:
        print(__doc__)
        return 2
    with tempfile.TemporaryDirectory() as folder:
        wrong = FAULTS[sys.argv[1]](
            pathlib.Path(folder), *map(pathlib.Path, sys.argv[2:]))
    print(f"planted: {wrong or sys.argv[1] + ': planted fault found'}")
    return 1 if wrong else 0


if __name__ == "__main__":
    sys.exit(main())
