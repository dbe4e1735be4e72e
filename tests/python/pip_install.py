#!/usr/bin/env python3
"""Installs the package into a fresh venv as a user does, and runs README's snippet.

  tests/python/pip_install.py [--work FOLDER] [--venv FOLDER] [-- PIP-OPTIONS...]

Takes long: the whole library is compiled. `-- -C build-dir=FOLDER` keeps the objects
for another time. Part of `make check-long`.
"""
import argparse
import os
import pathlib
import subprocess
import sys
import tempfile

ROOT = pathlib.Path(__file__).resolve().parents[2]
TORCH = "torch==2.13.0"
sys.path.insert(0, str(ROOT / "scripts"))
import snippets  # noqa: E402


def run(*command, **options):
    print("+", *command, flush=True)
    subprocess.run([str(part) for part in command], check=True, **options)


def readme_programs():
    blocks = snippets.read_blocks("README.md", (ROOT / "README.md").read_text())
    return [block.code for block in blocks if snippets.is_python_program(block)]


def install_and_run(work, venv, options):
    run(sys.executable, "-m", "venv", "--clear", venv)
    python = venv / "bin/python"
    pip = [python, "-m", "pip", "install", "--disable-pip-version-check", "-q"]
    run(*pip, TORCH, "numpy")
    clean = {k: v for k, v in os.environ.items()
             if k not in ("PYTHONPATH", "LD_LIBRARY_PATH", "Torch_DIR",
                          "CMAKE_PREFIX_PATH")}
    run(*pip, *options, ".", cwd=ROOT, env=clean)
    programs = readme_programs()
    assert programs, "README.md has no Python program"
    # Elsewhere, so that nothing of the source tree is imported.
    for number, code in enumerate(programs):
        program = work / f"readme_{number}.py"
        program.write_text(code)
        run(python, "-W", "ignore", program, cwd=work, env=clean)
    run(python, "-c", "import tessera; print(tessera.__file__, tessera.__version__)",
        cwd=work, env=clean)


def main():
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--work", type=pathlib.Path, help="where programs run")
    parser.add_argument("--venv", type=pathlib.Path, help="WORK/venv where left out")
    parser.add_argument("options", nargs="*", help="for pip install")
    arguments = parser.parse_args()
    with tempfile.TemporaryDirectory() as folder:
        work = (arguments.work or pathlib.Path(folder)).resolve()
        work.mkdir(parents=True, exist_ok=True)
        venv = (arguments.venv or work / "venv").absolute()
        install_and_run(work, venv, arguments.options)


if __name__ == "__main__":
    main()
