#!/usr/bin/env python3
"""Makes the source package, builds a wheel from what it holds, and runs README's program
with that in a fresh venv, with no compiler and no CMake on PATH.

  tests/python/wheel_install.py [--work FOLDER] [--wheel FILE]

Takes long: the whole library is compiled. torch is the one that `make setup` found,
read through a .pth file, so that none is fetched. Part of `make check-long`; prints sizes and
seconds.
"""
import argparse
import os
import pathlib
import shutil
import subprocess
import sys
import tempfile
import time

ROOT = pathlib.Path(__file__).resolve().parents[2]
sys.path.insert(0, str(ROOT / "scripts"))
sys.path.insert(0, str(ROOT / "tests/python"))
import wheel as wheels  # noqa: E402
from pip_install import readme_programs  # noqa: E402

NOT_PACKED = ("tests", "benchmarks", ".ci")


def run(*command, **options):
    print("+", *command, flush=True)
    subprocess.run([str(part) for part in command], check=True, **options)


def unpacked_sdist(work):
    run(ROOT / "scripts/wheel.py", "--sdist", "--output", work)
    path = next(work.glob("tessera-*.tar.gz"))
    shutil.unpack_archive(path, work)
    tree = work / path.name.removesuffix(".tar.gz")
    names = {p.name for p in tree.iterdir()}
    assert {"CMakeLists.txt", "src", "include", "python", "PKG-INFO"} <= names, names
    assert not names & set(NOT_PACKED), names
    return tree


def build(work):
    tree = unpacked_sdist(work)
    begin = time.monotonic()
    python = wheels.installed([])[0][0]
    run(tree / "scripts/wheel.py", "--output", work, python)
    print(f"wheel_install: built in {time.monotonic() - begin:.0f} s")
    return next(work.glob("tessera-*.whl"))


def site_packages(python):
    return subprocess.run(
        [python, "-c", "import sysconfig; print(sysconfig.get_path('purelib'))"],
        text=True, check=True, stdout=subprocess.PIPE).stdout.strip()


def fresh_venv(work, python):
    venv = work / "venv"
    run(python, "-m", "venv", "--clear", venv)
    # An old one would hide that of the torch.
    run(venv / "bin/python", "-m", "pip", "uninstall", "-q", "-y", "setuptools")
    (pathlib.Path(site_packages(venv / "bin/python")) / "torch.pth").write_text(
        site_packages(python) + "\n")
    return venv


def check_wrong_torch(venv, work, env):
    """Another torch is one clear line, before any library is loaded."""
    other = work / "other/torch"
    other.mkdir(parents=True, exist_ok=True)
    (other / "__init__.py").write_text("__version__ = '2.99.1+cpu'\n")
    result = subprocess.run(
        [venv / "bin/python", "-c", "import tessera"], text=True, capture_output=True,
        cwd=work, env={**env, "PYTHONPATH": str(other.parent)})
    last = result.stderr.strip().splitlines()[-1]
    assert result.returncode == 1 and last.startswith("ImportError: tessera was built with"), \
        result.stderr
    assert "this is torch 2.99.1+cpu" in last and "make wheel" in last, last
    print("wheel_install:", last)


def check(wheel, work):
    python = wheels.installed([])[0][0]
    venv = fresh_venv(work, python)
    # Only what the venv itself brings: no compiler, no CMake.
    env = {"PATH": str(venv / "bin"), "HOME": str(work), "TMPDIR": str(work)}
    begin = time.monotonic()
    run(venv / "bin/python", "-m", "pip", "install", "--no-index", "-q", wheel, env=env)
    seconds = time.monotonic() - begin
    programs = readme_programs()
    assert programs, "README.md has no Python program"
    for number, code in enumerate(programs):
        program = work / f"readme_{number}.py"
        program.write_text(code)
        run(venv / "bin/python", "-W", "ignore", program, cwd=work, env=env)
    run(venv / "bin/python", "-c",
        "import tessera; print(tessera.__file__, tessera.__version__)", cwd=work, env=env)
    check_wrong_torch(venv, work, env)
    print(f"wheel_install: {wheel.name}, {wheel.stat().st_size / 2**20:.1f} MiB, "
          f"installed in {seconds:.1f} s")


def main():
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--work", type=pathlib.Path, help="an empty folder")
    parser.add_argument("--wheel", type=pathlib.Path, help="this one instead of building")
    arguments = parser.parse_args()
    with tempfile.TemporaryDirectory() as folder:
        work = (arguments.work or pathlib.Path(folder)).resolve()
        work.mkdir(parents=True, exist_ok=True)
        check((arguments.wheel or build(work)).resolve(), work)


if __name__ == "__main__":
    os.environ.pop("PYTHONPATH", None)
    main()
