#!/usr/bin/env python3
"""Builds a wheel of the Python package for each torch that is installed.

  scripts/wheel.py [PYTHON...]    wheels into dist/; by default for python3 and .venv's
  scripts/wheel.py --sdist        the sources, dist/tessera-VERSION.tar.gz

A wheel works with the 2.x series of torch that it was built with: its name says so
(tessera-0.1.0+torch2.13-...), and it requires that series. The libraries in it find torch
beside them, so no compiler, no path and no variable is needed. Objects stay in
build-wheel/ for another time. JOBS=n limits what is compiled at a time.
"""
import argparse
import base64
import hashlib
import os
import pathlib
import re
import shutil
import subprocess
import sys
import tempfile
import zipfile

import find_torch

ROOT = pathlib.Path(__file__).resolve().parents[1]
BUILD = ROOT / "build-wheel"
BACKEND = BUILD / "backend"
REQUIRES = "scikit-build-core>=0.10"
# The oldest glibc, 2.N, of a system whose libstdc++ has these versions of GLIBCXX_3.4.
GLIBC_OF_GLIBCXX = {29: 34, 30: 35, 31: 38, 32: 38, 33: 39}


def say(text):
    print(f"wheel: {text}", file=sys.stderr, flush=True)


def torch_of(python):
    """Returns (python, version of its torch), or nothing where it has no supported one."""
    ask = ("import importlib.util as u, pathlib, sys; "
           "s = u.find_spec('torch'); "
           "print(sys.executable, s.origin if s else '', sep='\\n')")
    try:
        answer = subprocess.run([python, "-I", "-c", ask], text=True, check=True,
                                capture_output=True).stdout.splitlines()
    except (OSError, subprocess.CalledProcessError):
        return None
    if not answer[1]:
        return None
    version = find_torch.version_of(pathlib.Path(answer[1]).parent)
    return (answer[0], version) if find_torch.is_supported(version) else None


def installed(pythons):
    """Returns the Pythons with a torch, one per version of Python's and of torch's."""
    found = {}
    for python in pythons or ["python3", ROOT / ".venv/bin/python"]:
        torch = torch_of(python)
        if torch:
            found.setdefault(torch, None)
        elif pythons:
            raise SystemExit(f"wheel: {python} has no torch of a supported version, "
                             f"{find_torch.SUPPORTED}; pip install torch there first")
    if not found:
        raise SystemExit("wheel: neither python3 nor .venv/bin/python has a supported "
                         "torch; run 'make setup', or name a Python that has one")
    return list(found)


def backend_environment(python):
    """Fetches the build backend, and it alone: an isolated build could fetch a torch."""
    if not (BACKEND / "scikit_build_core").is_dir():
        say(f"installing {REQUIRES} into {BACKEND.relative_to(ROOT)}")
        subprocess.run([python, "-m", "pip", "install", "-q", "--target", BACKEND,
                        "--disable-pip-version-check", REQUIRES], check=True)
    jobs = os.environ.get("JOBS") or str(os.cpu_count())
    return {**os.environ, "PYTHONPATH": str(BACKEND), "PYTHONDONTWRITEBYTECODE": "1",
            "CMAKE_GENERATOR": "Ninja", "CMAKE_BUILD_PARALLEL_LEVEL": jobs}


def call_backend(python, call):
    """Calls the backend; returns what it made. ninja's line is on a terminal, else a line
    now and then."""
    command = [python, "-c", f"import scikit_build_core.build as b; {call}"]
    if not sys.stdout.isatty():
        command.insert(0, ROOT / "scripts/build_progress.py")
    subprocess.run(command, check=True, cwd=ROOT, env=backend_environment(python))


def build_wheel(python, version, output):
    series = ".".join(version.split(".")[:2])
    with tempfile.TemporaryDirectory() as folder:
        tag = subprocess.run(
            [python, "-c", "import sys; print(sys.implementation.cache_tag)"],
            text=True, check=True, capture_output=True).stdout.strip()
        settings = {"build-dir": str(BUILD / f"{tag}-torch{version}")}
        call_backend(python, f"b.build_wheel({folder!r}, {settings!r})")
        return finish(next(pathlib.Path(folder).glob("*.whl")), series, output)


def build_sdist(python, output):
    with tempfile.TemporaryDirectory() as folder:
        call_backend(python, f"b.build_sdist({folder!r})")
        made = next(pathlib.Path(folder).glob("*.tar.gz"))
        return pathlib.Path(shutil.move(made, output / made.name))


def needed_versions(library):
    """Returns the versions that a library asks of those that it is linked to."""
    with tempfile.NamedTemporaryFile(suffix=".so") as file:
        file.write(library)
        file.flush()
        output = subprocess.run(["readelf", "-V", "--wide", file.name], text=True,
                                check=True, capture_output=True).stdout
    return set(re.findall(r"Name: (\S+)\s+Flags", output))


def platform_tag(versions, tag):
    """Returns the oldest manylinux tag that these versions allow; `tag` itself where the
    libstdc++ is not known."""
    def newest(prefix):
        return max((int(v[len(prefix):].split(".")[0]) for v in versions
                    if re.fullmatch(re.escape(prefix) + r"\d+(\.\d+)*", v)), default=0)
    glibc, glibcxx = newest("GLIBC_2."), newest("GLIBCXX_3.4.")
    if glibcxx > max(GLIBC_OF_GLIBCXX):
        return tag
    by_library = GLIBC_OF_GLIBCXX.get(glibcxx, 0)
    return tag.replace("linux_", f"manylinux_2_{max(glibc, by_library, 17)}_", 1)


def record_line(name, data):
    digest = base64.urlsafe_b64encode(hashlib.sha256(data).digest()).decode().rstrip("=")
    return f"{name},sha256={digest},{len(data)}\n"


def finish(wheel, series, output):
    """Writes the wheel anew, with its torch in the version and in what it requires, and
    the systems that it works on in its tag."""
    name, version, python, abi, tag = wheel.stem.split("-")
    local = f"{version}+torch{series}"
    old_info, new_info = f"{name}-{version}.dist-info", f"{name}-{local}.dist-info"
    with zipfile.ZipFile(wheel) as archive:
        files = {i: archive.read(i) for i in archive.infolist() if not i.is_dir()}
    libraries = [data for i, data in files.items() if ".so" in i.filename]
    versions = set().union(*map(needed_versions, libraries)) if libraries else set()
    new_tag = platform_tag(versions, tag)

    path = output / f"{name}-{local}-{python}-{abi}-{new_tag}.whl"
    record = ""
    with zipfile.ZipFile(path, "w", zipfile.ZIP_DEFLATED) as archive:
        for info, data in files.items():
            if info.filename == f"{old_info}/RECORD":
                continue
            if info.filename == f"{old_info}/METADATA":
                text = re.sub(rf"^Version: {re.escape(version)}$", f"Version: {local}",
                              data.decode(), count=1, flags=re.M)
                data = re.sub(r"^Requires-Dist: torch\b.*$",
                              f"Requires-Dist: torch=={series}.*", text,
                              flags=re.M).encode()
            elif info.filename == f"{old_info}/WHEEL":
                data = re.sub(rb"^(Tag: .*-).*$", rb"\g<1>" + new_tag.encode(), data,
                              flags=re.M)
            info.filename = info.filename.replace(old_info, new_info, 1)
            record += record_line(info.filename, data)
            archive.writestr(info, data, zipfile.ZIP_DEFLATED)
        record += f"{new_info}/RECORD,,\n"
        archive.writestr(f"{new_info}/RECORD", record)
    return path


def main():
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--output", type=pathlib.Path, default=ROOT / "dist")
    parser.add_argument("--sdist", action="store_true", help="the sources instead")
    parser.add_argument("pythons", nargs="*", metavar="PYTHON")
    arguments = parser.parse_args()
    output = arguments.output.resolve()
    output.mkdir(parents=True, exist_ok=True)
    pythons = installed(arguments.pythons)
    if arguments.sdist:
        made = [build_sdist(pythons[0][0], output)]
    else:
        made = []
        for python, version in pythons:
            say(f"torch {version} of {python}")
            made.append(build_wheel(python, version, output))
    for path in made:
        print(f"{path}  {path.stat().st_size / 2**20:.1f} MiB")
    return 0


if __name__ == "__main__":
    sys.exit(main())
