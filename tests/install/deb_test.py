#!/usr/bin/env python3
"""Makes the Debian package of the release build, unpacks it below a scratch root, and
compiles and runs an outside program against it, without CMake and with it.

  tests/install/deb_test.py [BUILD-FOLDER]      build-release unless it is named

Part of `make check-long`. Prints the size of the package.
"""
import os
import pathlib
import shutil
import subprocess
import sys
import tempfile

ROOT = pathlib.Path(__file__).resolve().parents[2]
CONSUMER = pathlib.Path(__file__).parent / "consumer"
NAMES = {"usr/include/tessera/tessera.h", "usr/lib/libtessera.so", "usr/bin/tessera",
         "usr/lib/pkgconfig/tessera.pc", "usr/lib/cmake/Tessera/TesseraConfig.cmake"}
CLEAN = {k: v for k, v in os.environ.items()
         if k not in ("PYTHONPATH", "LD_LIBRARY_PATH", "Torch_DIR", "CMAKE_PREFIX_PATH")}


def run(*command, **options):
    print("+", *command, flush=True)
    return subprocess.run([str(part) for part in command], check=True, text=True,
                          stdout=subprocess.PIPE, **{"env": CLEAN, **options}).stdout


def without_cmake(prefix, work):
    env = {**CLEAN, "PKG_CONFIG_PATH": str(prefix / "lib/pkgconfig")}
    flags, libs = (run("pkg-config", what, "tessera", env=env).split()
                   for what in ("--cflags", "--libs"))
    program = work / "without_cmake"
    run(os.environ.get("CXX", "c++"), *flags, "-O0", CONSUMER / "without_cmake.cpp", *libs,
        "-o", program)
    assert "sum 12" in run(program)


def with_cmake(prefix, work):
    run("cmake", "-S", CONSUMER, "-B", work / "build", "-G", "Ninja",
        f"-DCMAKE_PREFIX_PATH={prefix}", "-DCMAKE_BUILD_TYPE=Debug")
    run("cmake", "--build", work / "build")
    assert "consumer: ok" in run(work / "build/consumer")


def main():
    build = pathlib.Path(sys.argv[1] if sys.argv[1:] else ROOT / "build-release").resolve()
    for tool in ("dpkg-deb", "cpack", "pkg-config"):
        if not shutil.which(tool):
            print(f"skipped: no {tool}")
            return 0
    with tempfile.TemporaryDirectory() as folder:
        work = pathlib.Path(folder)
        run("cpack", "-B", work, cwd=build)
        package = next(work.glob("tessera_*.deb"))
        size = package.stat().st_size / 2**20
        print(run("dpkg-deb", "--info", package))
        run("dpkg-deb", "-x", package, work / "root")
        files = {p.relative_to(work / "root").as_posix()
                 for p in (work / "root").rglob("*") if not p.is_dir()}
        assert NAMES <= files, NAMES - files
        assert not [f for f in files if "python" in f or not f.startswith("usr/")], files
        prefix = work / "root/usr"
        assert "aten::mm" in run(prefix / "bin/tessera", "ops", "aten::mm")
        without_cmake(prefix, work)
        with_cmake(prefix, work)
        print(f"deb_test: {package.name}, {size:.1f} MiB, {len(files)} files")
    return 0


if __name__ == "__main__":
    sys.exit(main())
